package chat

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast/pkg/position"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// isAnswered reports whether the client tool call of the current chunk has an answer. It loads the
// session at most once, and not for calls of the step in flight, because they have no answer yet.
func (d *delivery) isAnswered(call string) bool {
	run := d.currentRun()
	if run != "" && run != d.run.GetRunId() {
		return true // another run has continued the message after the call
	}
	if d.loaded == nil {
		if d.readFailed || d.current == nil {
			return false
		}
		if at := d.current.Sequence; at > d.session.GetPosition() && position.Of(at).Attempt != position.Stored {
			return false
		}
		details, err := d.loadSession()
		if err != nil { // a second answer is harmless
			d.readFailed = true
			return false
		}
		d.loaded = details
	}
	if now := d.loaded.GetCurrentRun(); now.GetRunId() == d.run.GetRunId() && conversation.Executing(now) {
		return false // the session gets the call when the run suspends
	}
	for _, c := range d.loaded.GetCalls() {
		if c.GetToolCallId() == call {
			return c.GetAnswer() != nil
		}
	}
	return true
}

// Timeouts of session loads on the goroutine that writes the stream. If the first load fails, a
// client may run a tool again, which is harmless. If the second fails, the stream is cut.
const (
	answeredTimeout = 2 * time.Second
	pendingTimeout  = 10 * time.Second
)

// loadSession loads the session.
func (d *delivery) loadSession() (*statev1.GetSessionResponse, error) {
	ctx, cancel := context.WithTimeout(d.ctx, answeredTimeout)
	defer cancel()
	return d.chat.sessions.SessionDetails(ctx, d.session.GetTenant(), d.session.GetSessionId())
}

// loadMessage loads the session with the runs of the message.
func (d *delivery) loadMessage() (*statev1.GetSessionResponse, error) {
	ctx, cancel := context.WithTimeout(d.ctx, pendingTimeout)
	defer cancel()
	return d.chat.sessions.SessionOfMessage(ctx, d.session.GetTenant(), d.session.GetSessionId(), d.run.GetRunId())
}

// errStopped: the session was ended while it waited for answers.
var errStopped = errors.New("the session was stopped while it waited")

// pendingCalls returns the pending calls of the suspended run. If the client has answered calls
// before the run suspended on them, it submits the answers again.
//
// errNext: another run continues the message, and is d.run now. errStopped: no run continues the
// message, d.session has the reason, and the answered calls come with the error.
func (d *delivery) pendingCalls() ([]uistream.PendingCall, error) {
	details, err := d.loadMessage()
	if err != nil {
		return nil, err
	}
	if err := d.continueWith(details); err != nil {
		return nil, err
	}
	if details.GetCurrentRun().GetRunId() != d.run.GetRunId() { // another message follows, so no call is pending
		return nil, nil
	}
	if conversation.Stopped(details.GetSession(), details.GetCurrentRun()) {
		d.session = details.GetSession()
		return conversation.PendingCalls(details), errStopped
	}
	asked := conversation.PendingCalls(details)
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
	return asked, d.continueWith(&statev1.GetSessionResponse{Session: t.session, MessageRuns: t.runs})
}

// writePending writes the calls missing at the client. A client with answers to calls below the root keeps the other
// calls in its last step, unless the step was reset.
func (d *delivery) writePending(asked []uistream.PendingCall) {
	if d.copy == nil || !d.copy.untilEnd || d.copy.passed {
		d.write(0, d.t.Pending(asked))
		return
	}
	var lacking, others []uistream.PendingCall
	for _, a := range asked {
		if _, known := d.resent.reply.calls[a.CallID]; a.Message != "" && (d.emptyStep || !known) {
			lacking = append(lacking, a)
		} else {
			others = append(others, a)
		}
	}
	parts := d.t.Pending(lacking)
	d.t.Pending(others)
	if !d.emptyStep {
		parts = slices.DeleteFunc(parts, isStepStart)
	}
	d.copy.passed = len(parts) > 0
	d.put(parts)
}

// continueWith makes the newest run of the message d.run and returns errNext if it continues the message.
func (d *delivery) continueWith(now *statev1.GetSessionResponse) error {
	runs := now.GetMessageRuns()
	if len(runs) == 0 {
		return nil
	}
	run := runs[len(runs)-1]
	if run.GetMessageId() != d.run.GetMessageId() || run.GetTurn() <= d.run.GetTurn() {
		return nil
	}
	d.session = now.GetSession()
	d.run = run
	d.writers = runIDs(runs)
	d.put(d.t.UpdateMetadata(conversation.RunOf(run).Metadata()))
	d.loaded = nil
	d.readFailed = false
	d.copy.nextRun()
	if d.resent != nil {
		d.resent.idle = false
	}
	return errNext
}

// askForMoreAnswers ends the stream after answers to only some of the open calls. The client receives the open calls that
// it lacks.
func (d *delivery) askForMoreAnswers() error {
	lacking := slices.DeleteFunc(slices.Clone(d.resent.awaited), func(c *statev1.Call) bool {
		_, known := d.resent.reply.calls[c.GetToolCallId()]
		return known
	})
	d.put(d.t.Start())
	d.t.Chunk(0, &eventv1.Chunk{Event: &eventv1.Chunk_RunSuspended{RunSuspended: &eventv1.RunSuspended{Reason: "client_tool"}}})
	d.put(d.t.Pending(conversation.PendingCalls(&statev1.GetSessionResponse{Session: d.session, CurrentRun: d.run, Calls: lacking})))
	d.end(0, d.t.Finish(uistream.Paused))
	return d.out.Flush()
}

// clientHasEnd reports whether the client has an answer or end of an open call.
func (d *delivery) clientHasEnd(a uistream.PendingCall) bool {
	return a.Answer == nil && a.Approved == nil && d.resent.reply.calls[a.CallID] > callWaiting
}

// isOpenAtClient reports whether a call is open, for the client as well.
func (d *delivery) isOpenAtClient(a uistream.PendingCall) bool {
	return a.Answer == nil && a.Approved == nil && d.resent.reply.calls[a.CallID] <= callWaiting
}

// preventResend changes the end in parts if the client has answered calls and received nothing new,
// to prevent a resend of the message. Open calls are new.
func (d *delivery) preventResend(asked []uistream.PendingCall, parts []uistream.Part) []uistream.Part {
	if d.resent == nil || !d.resent.idle || d.copy.sentNew || slices.ContainsFunc(asked, d.isOpenAtClient) {
		return parts
	}
	end := parts[len(parts)-1]
	if d.major < uistream.DefaultMajor {
		end = uistream.Error(nothingNewText)
	} else {
		end.FinishReason = "interrupted" // apps do not continue by themselves after this
	}
	return append(parts[:len(parts)-1:len(parts)-1], end)
}

const nothingNewText = "Nothing waits for this answer any more."
