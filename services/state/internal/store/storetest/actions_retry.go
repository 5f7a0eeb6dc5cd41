package storetest

import (
	"fmt"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// mostSteps is the code of the failure of a run that has used all its steps.
const mostSteps = "framework_max_steps"

// retry tries the newest run again. It is left out where the session was rewound, or its
// messages truncated, to before that run.
func (h *history) retry(key session.Key) action {
	p := h.sessions[key]
	if p == nil || p.Status != session.Failed && (p.Status != session.Active || h.bursting) {
		return action{}
	}
	if n := len(p.Runs); n > 0 && (p.StartState == nil || p.Runs[n-1].From > len(p.Messages)) {
		return action{}
	}
	c := retry{session.Retry{Post: h.drawPost(key), Addition: h.drawAddition()}}
	if rapid.Bool().Draw(h.T, "nothing new") {
		c.Messages = nil
	}
	a := h.rewindingAction("retry", c, func(p *modelSession, _ map[session.Key]*modelSession) string {
		switch {
		case p.Aborted:
			return "RUN_CANCELLED"
		case p.Status != session.Failed:
			return "SESSION_CHANGED"
		}
		p.retryNewest(c.Retry)
		return ""
	})
	return h.completeStart(a, c.Post)
}

func (p *modelSession) retryNewest(c session.Retry) {
	good := p.retryCheckpoint()
	switch {
	case p.keepsSteps(good):
		p.Version++
	case good != nil:
		p.rewindTo(good)
	default:
		p.restartNewest(c)
		return
	}
	p.applyAddition(c.Addition)
	p.beginWithMessages(c.Post, session.EntryResume)
}

// retryCheckpoint is the newest of the newest run at which it had not failed.
func (p *modelSession) retryCheckpoint() *modelCheckpoint {
	for _, k := range slices.Backward(p.Checkpoints) {
		if k.Run == p.Runs[len(p.Runs)-1].ID && !k.Failed {
			return &k
		}
	}
	return nil
}

// keepsSteps reports whether the retry takes nothing back.
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

// restartNewest takes the newest run back but for its messages, which become those of another.
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
	p.beginWithMessages(c.Post, session.EntryResume)
	again := &p.Runs[len(p.Runs)-1]
	again.From, again.FromTurn = failed.From, failed.From
}
