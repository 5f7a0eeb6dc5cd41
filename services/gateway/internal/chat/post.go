package chat

import (
	"context"
	"log/slog"
	"net/url"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
)

// The path of a request, from the answer of the state service; for logs and traces.
const (
	pathFresh      = "fresh"      // a new session
	pathContinue   = "continue"   // another message
	pathResume     = "resume"     // answers
	pathAbandon    = "abandon"    // a message instead of answers
	pathAttach     = "attach"     // nothing new: the run is live
	pathRetry      = "retry"      // nothing new: the run has ended
	pathStale      = "stale"      // refused: the conversation has a newer message
	pathRegenerate = "regenerate" // another answer
	pathEdit       = "edit"       // a replaced message
)

// busyHeader is onBusy of the body, for clients with a fixed body.
const busyHeader = "X-Holdfast-On-Busy"

// Headers with the request key. A POST with a key can be repeated.
const (
	requestKeyHeader  = "X-Holdfast-Request-Key"
	requestKeyHeader2 = "X-Helix-Request-Key"
)

// Reasons of refusals.
const (
	runStale        = "RUN_STALE"       // also of the state service
	answersUnknown  = "ANSWERS_UNKNOWN" // of the state service
	sessionNotFound = "SESSION_NOT_FOUND"

	messageInvalid = "MESSAGE_INVALID"
)

// post is one POST /chat.
type post struct {
	chat      *Chat
	request   Request
	body      *request
	operation operation
	key       string // from the client; "" for none
	busy      statev1.BusyPolicy
	counts    Effects                     // without the ignored fields
	submitted *statev1.SubmitCallsRequest // the answers as sent first, for a repetition; nil before
}

// effects returns the effects of the request so far.
func (p *post) effects() Effects {
	e := p.counts
	e.IgnoredFields = p.body.ignored
	return e
}

// open is Open for a decoded body.
func (c *Chat) open(ctx context.Context, r Request, body *request) (*Exchange, error) {
	p, err := c.check(r, body)
	if err != nil {
		return nil, err
	}
	e, err := p.handle(ctx)
	path := pathStale
	switch {
	case err == nil:
		path = e.path
	case fault.ReasonOf(err) != runStale:
		return nil, err
	}
	trace.SpanFromContext(ctx).SetAttributes(attribute.String("chat.path", path))
	c.log.LogAttrs(ctx, slog.LevelDebug, "chat", slog.String("chat.path", path), slog.String("session", body.ID))
	return e, err
}

// check validates the request.
func (c *Chat) check(r Request, body *request) (*post, error) {
	if err := httpapi.CheckID("id, the session's", body.ID); err != nil {
		return nil, err
	}
	if body.RunID == "" {
		header := r.Header.Get(httpapi.RunHeader)
		body.RunID = header
		if id, err := url.PathUnescape(header); err == nil { // escaped by headerText
			body.RunID = id
		}
	}
	for name, id := range map[string]string{"agentType": body.AgentType, "runId": body.RunID} {
		if id == "" {
			continue
		}
		if err := httpapi.CheckID(name, id); err != nil {
			return nil, err
		}
	}
	p := &post{chat: c, request: r, body: body}
	var err error
	if p.operation, err = body.operation(); err != nil {
		return nil, err
	}
	switch p.operation.intent {
	case send, edit:
		for _, part := range body.excerpt().last.Parts { // which of them are not stored
			if part.Type != "text" && part.Type != "file" && !strings.HasPrefix(part.Type, dataPrefix) {
				body.ignore(part.Type)
			}
		}
	case answer, attach:
		body.list.raw = nil // a stream may last long
		body.ignoreState()
	}
	for _, name := range []string{requestKeyHeader, requestKeyHeader2} {
		if p.key = r.Header.Get(name); p.key == "" {
			continue
		}
		if err := httpapi.CheckID(name, p.key); err != nil {
			return nil, err
		}
		break
	}
	p.busy, err = onBusy(r.Header, body)
	return p, err
}

func (p *post) handle(ctx context.Context) (*Exchange, error) {
	if err := checkSystem(ctx, &p.body.list); err != nil {
		return nil, err
	}
	switch p.operation.intent {
	case answer, attach:
		return p.answer(ctx)
	default:
		return p.start(ctx)
	}
}

// pathOf returns the path of a request for an existing run.
func pathOf(run *statev1.Run) string {
	if conversation.Executing(run) || conversation.Waiting(run) {
		return pathAttach
	}
	return pathRetry
}

// exchange returns an exchange for the last of the runs of a message. An empty path is that of an existing run.
func (p *post) exchange(path string, session *statev1.Session, runs []*statev1.Run) *Exchange {
	run := runs[len(runs)-1]
	if path == "" {
		path = pathOf(run)
	}
	return &Exchange{
		chat: p.chat, path: path, session: session, run: run, runs: runs,
		major: p.chat.majorOr(p.request.Major), effects: p.effects(),
	}
}
