package cloudflare

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/chat"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/files"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
)

// chatSync is what a client knows of the conversation. The goroutine of work uses it.
type chatSync struct {
	shown   view
	offered string // the turn offered to the client, before the client asks for it
	next    *answeredTurn
	offer   <-chan time.Time // when next is offered to a client that does not ask
	// approved is the suspended run whose approval the client has answered last.
	approved string
	tools    bool // of the page were logged
}

// answeredTurn is the run after calls that the client has answered.
type answeredTurn struct {
	run   string
	adds  bool  // the client adds the run to its message, and does not begin the message again
	after int64 // the client has the message up to here
}

// offerAfter is how long the gateway waits for a client to ask for the run after its answer. Clients
// ask at once, and a stream offered before would be shown in another way.
const offerAfter = 500 * time.Millisecond

// view is the part of a session that a conversation shows. Equal views show equal conversations.
type view struct {
	run      string
	messages int64
	answers  int
}

func viewOf(now *statev1.GetSessionResponse) view {
	v := view{run: now.GetCurrentRun().GetRunId(), messages: now.GetSession().GetMessageCount()}
	for _, call := range now.GetCalls() {
		if call.GetAnswer() != nil {
			v.answers++
		}
	}
	return v
}

// isLive reports whether the session writes a message.
func isLive(now *statev1.GetSessionResponse) bool {
	return conversation.Executing(now.GetCurrentRun()) || conversation.AwaitsOthers(now)
}

// conversation reads the newest conversation and encodes it.
func (c *connection) conversation(ctx context.Context, onConnect bool) ([]byte, view, error) {
	now, err := c.Sessions.SessionDetails(ctx, c.tenant, c.address.session)
	if err != nil {
		return nil, view{}, err
	}
	messages, err := c.transcript(ctx, now)
	files.Show(c.base, messages)
	return messagesFrame(messages, onConnect), viewOf(now), err
}

// sendConversation sends the newest conversation.
func (c *connection) sendConversation(onConnect bool) error {
	text, shown, err := c.conversation(retry.Request(c.ctx), onConnect)
	if err != nil {
		return c.failed("the conversation cannot be read", err)
	}
	c.chat.shown = shown
	return c.conn.Write(text)
}

// failed logs a failure that the client does not learn of. It returns the cause of the end of the
// socket, nil if it stays.
func (c *connection) failed(what string, err error) error {
	if c.ctx.Err() != nil {
		return context.Cause(c.ctx)
	}
	c.Log.WarnContext(c.ctx, what, "session", c.address.session, "error", err)
	return nil
}

// greetChat sends a new client the conversation, which may have changed since it loaded the messages,
// and offers the live turn.
func (c *connection) greetChat(now *reading) error {
	if now.GetSession().GetMessageCount() > 0 {
		if err := c.sendConversation(true); err != nil {
			return err
		}
	}
	c.chat.shown = viewOf(now.GetSessionResponse)
	if !isLive(now.GetSessionResponse) {
		return nil
	}
	c.chat.shown, c.chat.offered = view{}, requestID(now.GetCurrentRun())
	return c.conn.Write(resumingFrame(c.chat.offered, ""))
}

// showChat shows a new turn of another client, or what has changed outside of a turn.
func (c *connection) showChat(now *reading) error {
	session, run := now.GetSessionResponse, now.GetCurrentRun()
	if c.turns.isOld(now) {
		return nil
	}
	if isLive(session) {
		if c.turns.of(run) != nil || c.turns.ended(run) || c.chat.offered == requestID(run) || c.isNext(run) {
			return nil
		}
		return c.observe(run)
	}
	if c.turns.any() != nil {
		return nil
	}
	if shown, ended := c.turns.takeLast(run); ended {
		c.chat.shown = shown
		if shown == (view{}) { // the client has its own message, and needs no conversation
			c.chat.shown = viewOf(session)
		}
	}
	switch {
	case viewOf(session) == c.chat.shown:
		return nil
	case session.GetSession().GetMessageCount() == 0:
		c.chat.shown = viewOf(session)
		return c.conn.Write(clearFrame)
	}
	return c.sendConversation(false)
}

// isNext reports whether the client is about to ask for the run.
func (c *connection) isNext(run *statev1.Run) bool {
	return c.chat.next != nil && c.chat.next.run == run.GetRunId()
}

// observe delivers the turn of another client, after the message that it answers.
func (c *connection) observe(run *statev1.Run) error {
	if run.GetEntry() == statev1.RunEntry_RUN_ENTRY_START {
		if err := c.sendConversation(false); err != nil {
			return err
		}
	}
	e, err := c.reopen(chat.ReopenRequest{RunID: run.GetRunId()})
	if err != nil || e == nil {
		return c.ignore("a turn cannot be read", err)
	}
	c.start(&turn{id: requestID(run), kind: observed}, e)
	return nil
}

// ignore is failed for an error that may be nil.
func (c *connection) ignore(what string, err error) error {
	if err == nil {
		return nil
	}
	return c.failed(what, err)
}

func (c *connection) reopen(r chat.ReopenRequest) (*chat.Exchange, error) {
	r.Tenant, r.SessionID, r.Major = c.tenant, c.address.session, c.major
	return c.Chat.Reopen(retry.Request(c.ctx), r)
}

// request starts the turn of a message. A repeated request with a known id is the same
// request.
func (c *connection) request(f received) error {
	if httpapi.CheckID("id", f.ID) != nil || c.turns.find(f.ID) != nil {
		return nil //nolint:nilerr // without an id there is no one to answer
	}
	switch {
	case c.readOnly:
		return c.conn.Write(refusal(f.ID, readOnlyText))
	case c.turns.count() >= c.Requests:
		return c.refuse(f.ID, fault.New(fault.Exhausted, "TOO_MANY_REQUESTS",
			"%d requests are in flight on this socket; HOLDFAST_GATEWAY_MAX_SOCKET_CHATS is the limit", c.Requests))
	}
	if f.failed != nil {
		return c.refuse(f.ID, f.failed)
	}
	e, err := c.openChat(f)
	if err != nil {
		return c.refuse(f.ID, err)
	}
	c.turns.drop(e.MessageID())
	c.chat.offered = ""
	c.start(&turn{id: f.ID, kind: own, files: f.files}, e)
	c.instance.changed(c.ctx)
	return nil
}

// refuse ends a request with the sentence of an error.
func (c *connection) refuse(id string, err error) error {
	if c.ctx.Err() != nil {
		return context.Cause(c.ctx)
	}
	sentence, code, detail := httpapi.ErrorTexts(err)
	c.Log.InfoContext(c.ctx, "chat request refused", "session", c.address.session, "code", code, "detail", detail)
	return c.conn.Write(refusal(id, sentence))
}

// openChat opens the exchange of a request. Clients do not tell whether they replace a message; they
// send it under the id of the one that they replace.
func (c *connection) openChat(f received) (*chat.Exchange, error) {
	body, err := c.post(f.Init.Body)
	if err != nil {
		return nil, err
	}
	r := chat.Request{
		Tenant: c.tenant, Major: c.major, Header: http.Header{requestKeyHeader: {f.ID}}, OnBusy: statev1.BusyPolicy_BUSY_POLICY_ENQUEUE,
		KeepMissing: true, // these clients say what they remove
	}
	ctx := retry.Request(c.ctx)
	if r.Body, err = json.Marshal(body); err != nil {
		return nil, err
	}
	e, err := c.Chat.Open(ctx, r)
	if fault.ReasonOf(err) != "MESSAGE_EXISTS" {
		return e, err
	}
	body["messageId"] = encode(lastID(body["messages"]))
	if r.Body, err = json.Marshal(body); err != nil {
		return nil, err
	}
	return c.Chat.Open(ctx, r)
}

// requestKeyHeader has the key that makes a request safe to repeat.
const requestKeyHeader = "X-Holdfast-Request-Key"

// post returns the body of the equivalent POST /chat.
func (c *connection) post(text string) (map[string]json.RawMessage, error) {
	body := map[string]json.RawMessage{}
	if err := httpapi.DecodeJSON([]byte(text), &body); err != nil {
		return nil, err
	}
	for name := range body { // the instance says what these are
		if folded := strings.ToLower(name); folded == "id" || folded == "agenttype" { // as chat decodes them
			delete(body, name)
		}
	}
	if tools := c.pageTools(body["clientTools"]); tools != nil {
		body["tools"] = tools
	}
	delete(body, "clientTools")
	body["id"] = encode(c.address.session)
	if c.instance.last().GetSession() == nil {
		body["agentType"] = encode(c.address.agent)
	}
	return body, nil
}

// pageTools returns the tools that a page brings, in the form of POST /chat; nil for none. The tools that the agent has
// are left out. An agent that permits none to callers declares the tools of its pages itself: then all are left out, and
// logged once for a socket.
func (c *connection) pageTools(text json.RawMessage) json.RawMessage {
	var list []struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters,omitempty"`
	}
	if json.Unmarshal(text, &list) != nil || len(list) == 0 {
		return nil
	}
	if c.address.tools == nil {
		if !c.chat.tools {
			c.chat.tools = true
			names := make([]string, min(len(list), maxNotedTools))
			for i := range names {
				names[i] = fmt.Sprintf("%.64s", list[i].Name)
			}
			c.Log.InfoContext(c.ctx, "the tools of a page are ignored; the agent must declare its client tools, or permit callerTools",
				"session", c.address.session, "tools", names)
		}
		return nil
	}
	tools := []map[string]any{}
	for _, t := range list {
		if slices.Contains(c.address.tools.GetTaken(), t.Name) {
			continue
		}
		schema := t.Parameters
		if len(schema) == 0 { // optional for these clients
			schema = json.RawMessage(`{"type":"object"}`)
		}
		tools = append(tools, map[string]any{"name": t.Name, "description": t.Description, "inputSchema": schema})
	}
	return encode(tools)
}

// maxNotedTools bounds the tools in the log.
const maxNotedTools = 20

// lastID returns the id of the last message.
func lastID(messages json.RawMessage) string {
	var list []struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(messages, &list) != nil || len(list) == 0 {
		return ""
	}
	return list[len(list)-1].ID
}
