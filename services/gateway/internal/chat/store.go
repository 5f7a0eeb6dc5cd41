package chat

import (
	"errors"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// fromStore tells the run from the conversation that the state service keeps,
// which it can when the client was told nothing of the rest yet. errNext: the message goes
// on in another run.
func (d *delivery) fromStore() error {
	run, err := d.chat.sessions.Run(d.ctx, d.session.GetTenant(), d.run)
	if err != nil {
		return err
	}
	if d.written || conversation.Executing(run) {
		d.lost = true
		d.end(0, d.t.Fail(lostText))
		return d.out.Flush()
	}
	how, failed := ending(run.GetStatus()), run.GetStatus() == statev1.RunStatus_RUN_STATUS_FAILED
	var asked []uistream.Asked
	stopped := false
	if how == uistream.Paused && !failed {
		asked, err = d.left()
		if stopped = errors.Is(err, errStopped); err != nil && !stopped {
			return err
		}
	}
	answer, err := d.chat.sessions.Answer(d.ctx, d.session, run)
	if err != nil {
		return err
	}
	d.stored()
	d.write(0, d.t.Replay(answer))
	if stopped {
		d.write(0, d.t.Pending(asked))
		d.stop()
		return d.out.Flush()
	}
	if failed {
		d.end(0, d.t.Fail(run.GetFailure().GetError()))
		return d.out.Flush()
	}
	if how == uistream.Paused {
		d.write(0, d.t.Pending(asked))
	}
	d.end(0, d.still(asked, d.t.Finish(how)))
	return d.out.Flush()
}

// stored prepares the telling of a stored message, which does not say which run told a
// step, and has the end of a call in the step of the call.
func (d *delivery) stored() {
	d.told = nil
	if d.has == nil {
		if d.after > 0 {
			d.startAnew()
		}
		return
	}
	d.forget()
	for _, run := range d.back.runs {
		if d.has.runs[run.GetRunId()] && run.GetMessageId() == d.run.GetMessageId() {
			d.has.steps += int(run.GetStepCount())
		}
	}
	d.has.runs = nil
}
