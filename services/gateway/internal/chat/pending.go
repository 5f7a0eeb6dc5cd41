package chat

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast/pkg/position"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// isAnswered reports whether a call of a client tool has its answer. The call is in the present
// chunk. It reads the session at most once, and not for calls of the step in flight: those
// cannot have been answered.
func (d *delivery) isAnswered(call string) bool {
	run := d.currentRun()
	if run != "" && run != d.run.GetRunId() {
		return true // another run has continued the one that made the call
	}
	if d.loaded == nil {
		if d.readFailed || d.current == nil || d.current.Sequence > d.session.GetPosition() && position.Of(d.current.Sequence).Attempt != position.Stored {
			return false
		}
		whole, err := d.loadSession(answeredTimeout)
		if err != nil { // a second answer does no harm
			d.readFailed = true
			return false
		}
		d.loaded = whole
	}
	if now := d.loaded.GetCurrentRun(); now.GetRunId() == d.run.GetRunId() && conversation.Executing(now) {
		return false // the session has the call only when the run has suspended
	}
	for _, c := range d.loaded.GetCalls() {
		if c.GetToolCallId() == call {
			return c.GetAnswer() != nil
		}
	}
	return true
}

// How long a read of the session may take, on the goroutine that writes the stream. If the first
// kind fails, a client may run a tool again, which does no harm. If the second kind fails, the
// stream is cut.
const (
	answeredTimeout = 2 * time.Second
	pendingTimeout  = 10 * time.Second
)

// loadSession reads the session.
func (d *delivery) loadSession(timeout time.Duration) (*statev1.GetSessionResponse, error) {
	ctx, cancel := context.WithTimeout(d.ctx, timeout)
	defer cancel()
	return d.chat.sessions.Whole(ctx, d.session.GetTenant(), d.session.GetSessionId())
}

// errStopped: the session was ended while it waited for answers.
var errStopped = errors.New("the calls wait for nobody any more")

// pendingCalls gives the calls that wait now that the run has suspended. If the client sent answers before
// the run suspended on their calls, it submits them.
//
// errNext: another run continues the message, and is d.run now. errStopped: no run continues the
// message, and d.session says why. The calls that were answered before come with it.
func (d *delivery) pendingCalls() ([]uistream.Asked, error) {
	whole, err := d.loadSession(pendingTimeout)
	if err != nil {
		return nil, err
	}
	if err := d.continueWith(whole.GetSession(), whole.GetCurrentRun()); err != nil {
		return nil, err
	}
	if whole.GetCurrentRun().GetRunId() != d.run.GetRunId() { // another message follows, so no call waits
		return nil, nil
	}
	if conversation.Stopped(whole.GetSession(), whole.GetCurrentRun()) {
		d.session = whole.GetSession()
		return conversation.AskedOf(d.session.GetSessionId(), whole.GetCalls()), errStopped
	}
	asked := conversation.AskedOf(d.session.GetSessionId(), whole.GetCalls())
	if d.resent == nil || d.resent.submit == nil || !slices.ContainsFunc(asked, d.clientHasEnd) {
		return asked, nil
	}
	submit := d.resent.submit
	d.resent.submit = nil
	t, err := submit(d.ctx)
	if err != nil {
		return nil, err
	}
	d.resent.idle = d.resent.idle && !t.accepted
	return asked, d.continueWith(t.session, t.run)
}

// continueWith makes the run d.run and gives errNext if the run continues the message.
func (d *delivery) continueWith(session *statev1.Session, run *statev1.Run) error {
	if run.GetMessageId() != d.run.GetMessageId() || run.GetTurn() <= d.run.GetTurn() {
		return nil
	}
	runs, err := d.chat.sessions.Message(d.ctx, session.GetTenant(), run)
	if err != nil {
		return err
	}
	d.session, d.run = session, run
	d.put(0, d.t.GoOn(conversation.RunOf(run).Metadata()))
	d.writers = runIDs(runs)
	d.loaded, d.readFailed = nil, false
	d.copy.nextRun()
	if d.resent != nil {
		d.resent.idle = false
	}
	return errNext
}

// endStopped ends a message after errStopped, even for a client that has its end already.
func (d *delivery) endStopped() { d.end(0, d.t.Stopped(conversation.WhyStopped(d.session))) }

// unknownCalls gives the open calls that the client does not know.
func (d *delivery) unknownCalls() []uistream.Asked {
	var calls []*statev1.Call
	for _, c := range d.resent.partial.GetCalls() {
		if _, known := d.resent.reply.calls[c.GetToolCallId()]; !known {
			calls = append(calls, c)
		}
	}
	return conversation.AskedOf(d.session.GetSessionId(), calls)
}

// clientHasEnd reports whether an open call has an answer or an end at the client.
func (d *delivery) clientHasEnd(a uistream.Asked) bool {
	return a.Answer == nil && a.Approved == nil && d.resent.reply.calls[a.CallID] > callWaiting
}

// isOpenAtClient reports whether a call is open, and the client has it as open.
func (d *delivery) isOpenAtClient(a uistream.Asked) bool {
	return a.Answer == nil && a.Approved == nil && d.resent.reply.calls[a.CallID] <= callWaiting
}

// preventResend replaces the end in parts for a client that wants the message to go on, but received
// nothing new: it must not send the message again. Calls that wait for the client are new.
func (d *delivery) preventResend(asked []uistream.Asked, parts []uistream.Part) []uistream.Part {
	if d.resent == nil || !d.resent.idle || d.copy.sentNew || slices.ContainsFunc(asked, d.isOpenAtClient) {
		return parts
	}
	end := parts[len(parts)-1]
	if d.major < uistream.Newest {
		end = uistream.Error(nothingNewText)
	} else {
		end.FinishReason = "interrupted" // apps do not continue by themselves after that
	}
	return append(parts[:len(parts)-1:len(parts)-1], end)
}

const nothingNewText = "Nothing waits for this answer any more."
