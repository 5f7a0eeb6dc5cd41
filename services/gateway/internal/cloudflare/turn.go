package cloudflare

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/chat"
)

// turnKind is why a turn is delivered to a client.
type turnKind int

// The kinds of turns.
const (
	own          turnKind = iota // the client has sent the message
	observed                     // another client has sent it
	replayed                     // the client has asked for the message from its start
	continuation                 // the client has answered an approval of the message, and adds the rest to it
)

// turn is the delivery of one message to a client.
type turn struct {
	*connection
	id      string // of its frames
	kind    turnKind
	run     string // of the exchange, as it began
	message string
	ctx     context.Context //nolint:containedctx // until the end of the turn
	cancel  context.CancelFunc
	files   bool // the client needs the conversation for the references to its files
	aborted bool // by this client; guarded by the mu of turns
}

// requestID returns the id of a run's frames, equal for all clients: the id of the request that started the run, or
// else the run's own.
func requestID(run *statev1.Run) string {
	if key := run.GetRequestKey(); key != "" {
		return key
	}
	return run.GetRunId()
}

// start delivers an exchange. It replaces a turn with the same id: a client that asks twice wants the
// message from its start.
func (c *connection) start(t *turn, e *chat.Exchange) {
	t.connection, t.run, t.message = c, e.RunID(), e.MessageID()
	t.ctx, t.cancel = context.WithCancel(c.ctx)
	c.turns.replace(t)
	c.working.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				c.Log.ErrorContext(t.ctx, "turn panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				c.end(errPanic)
			}
		}()
		t.deliver(e)
	})
}

// deliver delivers the exchange to its end. If it cannot be finished, the socket ends, so that the
// client resumes.
func (t *turn) deliver(e *chat.Exchange) {
	defer t.cancel()
	out := &output{turn: t, exchange: e, replay: t.kind == replayed || t.kind == continuation}
	if err := e.Deliver(t.ctx, out); err != nil && t.ctx.Err() == nil {
		t.end(err)
	}
}

// output encodes a message as frames.
type output struct {
	*turn
	exchange *chat.Exchange
	waiting  [][]byte
	sequence int
	replay   bool // the frames belong to the replay
	parts    bool // a part behind the start was added
	failed   bool
	done     bool
}

// Begin implements chat.Output.
func (o *output) Begin() {
	if o.kind == continuation {
		o.Part(chat.Cursor{}, []byte(`{"type":"start"}`))
	}
}

// partHead is the beginning of a part.
type partHead struct {
	Type      string `json:"type"`
	ErrorText string `json:"errorText"`
}

// Part implements chat.Output.
func (o *output) Part(_ chat.Cursor, part []byte) {
	var head partHead
	_ = json.Unmarshal(part, &head) // parts are valid
	switch {
	case o.failed:
	case head.Type == "error":
		o.failed = true
		o.waiting = append(o.waiting, response{ID: o.id, Body: head.ErrorText, Error: true, Continuation: o.kind == continuation}.encode())
	default:
		sequence := o.sequence
		o.sequence++
		o.parts = o.parts || head.Type != "start"
		o.waiting = append(o.waiting, response{
			ID: o.id, Body: string(part), Sequence: &sequence, Continuation: o.kind == continuation, Replay: o.replay,
		}.encode())
	}
}

// Done implements chat.Output.
func (o *output) Done(chat.Cursor) { o.done = true }

// Flush implements chat.Output. A replay ends with the first parts behind the start. They were stored, and later parts
// are live.
func (o *output) Flush() error {
	if o.replay && o.parts {
		o.replay = false
		o.waiting = append(o.waiting, response{ID: o.id, Continuation: o.kind == continuation, Replay: true, ReplayComplete: true}.encode())
	}
	var shown view
	if o.done && (o.kind != own || o.files) {
		shown = o.addConversation()
	}
	for _, text := range o.waiting {
		if o.ctx.Err() != nil {
			return context.Cause(o.ctx)
		}
		if err := o.conn.Write(text); err != nil {
			return err
		}
	}
	o.waiting = nil
	if !o.done {
		return nil
	}
	defer o.instance.refresh()
	return o.turns.finish(o.turn, o.exchange.RunID(), shown, o.writeEnd)
}

// addConversation adds the stored conversation for a client with a possibly different one. It returns the client's
// view.
func (o *output) addConversation() view {
	text, shown, err := o.conversation(o.ctx, false)
	if err != nil { // the client has the message
		o.Log.WarnContext(o.ctx, "the conversation cannot be read after a turn", "session", o.address.session, "error", err)
		return view{}
	}
	o.waiting = append(o.waiting, text)
	return shown
}

// writeEnd writes the end. The mu of turns is held.
func (o *output) writeEnd() error {
	end := response{ID: o.id, Done: true, Outcome: outcomeCompleted, Continuation: o.kind == continuation}
	switch {
	case o.failed:
		end.Outcome = outcomeError
	case o.aborted:
		end.Outcome = outcomeAborted
	}
	return o.conn.Write(end.encode())
}

// Beat implements chat.Output. The connection pings the client instead.
func (o *output) Beat() error { return nil }
