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

// answered reports whether a call that a client has to answer, and that is being told,
// has its answer. It asks the state service at most once, and not for calls that are
// younger than what the session has recorded: nobody has been asked them before.
func (d *delivery) answered(call string) bool {
	run := d.teller()
	if run != "" && run != d.run.GetRunId() {
		return true // the run has been continued
	}
	if d.whole == nil {
		if d.blind || d.told == nil || d.told.Sequence > d.session.GetPosition() && position.Of(d.told.Sequence).Attempt != position.Stored {
			return false
		}
		whole, err := d.now(answeredTimeout)
		if err != nil { // an answer that is given twice does no harm
			d.blind = true
			return false
		}
		d.whole = whole
	}
	if now := d.whole.GetCurrentRun(); now.GetRunId() == d.run.GetRunId() && conversation.Executing(now) {
		return false // the call is not known before the run suspends
	}
	for _, c := range d.whole.GetCalls() {
		if c.GetToolCallId() == call {
			return c.GetAnswer() != nil
		}
	}
	return true
}

// For how long the state service is asked, on the goroutine that hands out the frames of
// the stream. Without the first answer a client may run a tool again, which does no
// harm; without the second the stream is cut.
const (
	answeredTimeout = 2 * time.Second
	pendingTimeout  = 10 * time.Second
)

// now gives the session as it is now.
func (d *delivery) now(timeout time.Duration) (*statev1.GetSessionResponse, error) {
	ctx, cancel := context.WithTimeout(d.ctx, timeout)
	defer cancel()
	return d.chat.sessions.Whole(ctx, d.session.GetTenant(), d.session.GetSessionId())
}

// errStopped: the session was ended while it waited for answers.
var errStopped = errors.New("nobody is asked any more")

// left gives the calls that the run, which has suspended, leaves to somebody outside.
// errNext: the message goes on in another run, which is d.run now. It may do so because
// the client had answers before the run suspended on their calls: they are given here.
// errStopped, with the calls that were answered before: the message goes on in none, and
// d.session says why.
func (d *delivery) left() ([]uistream.Asked, error) {
	whole, err := d.now(pendingTimeout)
	if err != nil {
		return nil, err
	}
	if err := d.goOn(whole.GetSession(), whole.GetCurrentRun()); err != nil {
		return nil, err
	}
	if whole.GetCurrentRun().GetRunId() != d.run.GetRunId() { // another message follows: all has been answered
		return nil, nil
	}
	if conversation.Stopped(whole.GetSession(), whole.GetCurrentRun()) {
		d.session = whole.GetSession()
		return conversation.AskedOf(d.session.GetSessionId(), whole.GetCalls()), errStopped
	}
	asked := conversation.AskedOf(d.session.GetSessionId(), whole.GetCalls())
	if d.back == nil || d.back.submit == nil || !slices.ContainsFunc(asked, d.thinksEnded) {
		return asked, nil
	}
	submit := d.back.submit
	d.back.submit = nil
	t, err := submit(d.ctx)
	if err != nil {
		return nil, err
	}
	d.back.idle = d.back.idle && !t.accepted
	return asked, d.goOn(t.session, t.run)
}

// goOn goes on with the run, by errNext, when it has continued the message of d.run.
func (d *delivery) goOn(session *statev1.Session, run *statev1.Run) error {
	if run.GetMessageId() != d.run.GetMessageId() || run.GetTurn() <= d.run.GetTurn() {
		return nil
	}
	runs, err := d.chat.sessions.Message(d.ctx, session.GetTenant(), run)
	if err != nil {
		return err
	}
	d.session, d.run = session, run
	d.put(0, d.t.GoOn(conversation.RunOf(run).Metadata()))
	d.wrote = ids(runs)
	d.whole, d.blind = nil, false
	d.has.next()
	if d.back != nil {
		d.back.idle = false
	}
	return errNext
}

// stop ends a message of which errStopped is true, for a client that has its end as well.
func (d *delivery) stop() { d.end(0, d.t.Stopped(conversation.WhyStopped(d.session))) }

// unknown gives the open calls that the client does not know.
func (d *delivery) unknown() []uistream.Asked {
	var calls []*statev1.Call
	for _, c := range d.back.partial.GetCalls() {
		if _, known := d.back.reply.calls[c.GetToolCallId()]; !known {
			calls = append(calls, c)
		}
	}
	return conversation.AskedOf(d.session.GetSessionId(), calls)
}

// thinksEnded reports whether a call is open that has an answer or an end at the client.
func (d *delivery) thinksEnded(a uistream.Asked) bool {
	return a.Answer == nil && a.Approved == nil && d.back.reply.calls[a.CallID] > waits
}

// isOpen reports whether a call is open, for the client as well.
func (d *delivery) isOpen(a uistream.Asked) bool {
	return a.Answer == nil && a.Approved == nil && d.back.reply.calls[a.CallID] <= waits
}

// still gives the end of a message, as in parts, to a client that wants to go on and is
// told no more than it has: it must not ask again. Calls that wait for it are more.
func (d *delivery) still(asked []uistream.Asked, parts []uistream.Part) []uistream.Part {
	if d.back == nil || !d.back.idle || d.has.more || slices.ContainsFunc(asked, d.isOpen) {
		return parts
	}
	end := parts[len(parts)-1]
	if d.major < uistream.Newest {
		end = uistream.Error(stillText)
	} else {
		end.FinishReason = "interrupted" // apps do not send on by themselves behind that
	}
	return append(parts[:len(parts)-1:len(parts)-1], end)
}

const stillText = "Nothing waits for this answer any more."
