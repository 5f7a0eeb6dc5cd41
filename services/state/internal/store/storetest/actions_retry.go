package storetest

import (
	"fmt"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// mostSteps is the failure code of a run at its limit of steps.
const mostSteps = "framework_max_steps"

// retry retries the newest run. It cannot be drawn after a rewind or a truncation to before
// the run.
func (h *history) retry(key session.Key) action {
	p := h.sessions[key]
	if p == nil || p.Status != session.Failed && (p.Status != session.Active || h.bursting) {
		return action{}
	}
	if n := len(p.Runs); n > 0 && (p.StartState == nil || p.Runs[n-1].From > len(p.Messages)) {
		return action{}
	}
	c := retry{session.Retry{RunRequest: h.drawPost(key), Addition: h.drawAddition()}}
	if rapid.Bool().Draw(h.T, "nothing new") {
		c.Messages = nil
	}
	a := h.rewindingAction("retry", c, func(p *modelSession, _ map[session.Key]*modelSession) string {
		switch {
		case p.Aborted:
			return "RUN_CANCELLED"
		case p.Status == session.Active:
			return "SESSION_BUSY"
		case p.Status == session.Completed:
			return "SESSION_COMPLETED"
		case p.Status.Suspended():
			return "SESSION_SUSPENDED"
		case p.Status != session.Failed:
			return "SESSION_CHANGED"
		}
		p.retryNewest(c.Retry)
		return ""
	})
	return h.completeStart(a, c.RunRequest)
}

func (p *modelSession) retryNewest(c session.Retry) {
	valid := p.retryCheckpoint()
	switch {
	case p.keepsSteps(valid):
		p.Version++
	case valid != nil:
		p.rewindTo(valid)
	default:
		p.restartNewest(c)
		return
	}
	p.applyAddition(c.Addition)
	p.beginWithMessages(c.RunRequest, session.EntryResume)
}

// retryCheckpoint returns the newest run's last checkpoint without a failure; nil for none.
func (p *modelSession) retryCheckpoint() *modelCheckpoint {
	for _, k := range slices.Backward(p.Checkpoints) {
		if k.Run == p.Runs[len(p.Runs)-1].ID && !k.Failed {
			return &k
		}
	}
	return nil
}

// keepsSteps reports whether a retry removes nothing.
func (p *modelSession) keepsSteps(good *modelCheckpoint) bool {
	if len(p.Runs) == 0 || p.MaxSteps {
		return true
	}
	r := p.Runs[len(p.Runs)-1]
	if good == nil && (r.Finished == 0 || p.StartState == nil) {
		return true
	}
	result := fmt.Sprint("@", r.ID, "#", r.Finished)
	return slices.ContainsFunc(p.Messages, func(id string) bool { return strings.HasSuffix(id, result) })
}

// restartNewest rolls the newest run back. Its messages become the retry's.
func (p *modelSession) restartNewest(c session.Retry) {
	failed := p.Runs[len(p.Runs)-1]
	p.Version++
	p.rollBack(failed)
	for id, run := range p.RunByMessage {
		if run == failed.ID {
			p.RunByMessage[id] = c.RunID
		}
	}
	p.applyAddition(c.Addition)
	p.beginWithMessages(c.RunRequest, session.EntryResume)
	repeat := &p.Runs[len(p.Runs)-1]
	repeat.From, repeat.FromTurn = failed.From, failed.From
}
