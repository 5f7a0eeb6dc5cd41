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
func (w *world) retry(key session.Key) act {
	p := w.sessions[key]
	if p == nil || p.Status != session.Failed && (p.Status != session.Active || w.bursts) {
		return act{}
	}
	if n := len(p.Runs); n > 0 && (p.Began == nil || p.Runs[n-1].From > len(p.Messages)) {
		return act{}
	}
	c := retry{session.Retry{Post: w.post(key), Addition: w.addition()}}
	if rapid.Bool().Draw(w.T, "nothing new") {
		c.Messages = nil
	}
	a := w.goingBack("retry", c, func(p *plain, _ map[session.Key]*plain) string {
		switch {
		case p.Aborted:
			return "RUN_CANCELLED"
		case p.Status != session.Failed:
			return "SESSION_CHANGED"
		}
		p.retry(c.Retry)
		return ""
	})
	return w.starting(a, c.Post)
}

func (p *plain) retry(c session.Retry) {
	good := p.goodCheckpoint()
	switch {
	case p.stays(good):
		p.Version++
	case good != nil:
		p.back(good)
	default:
		p.anew(c)
		return
	}
	p.add(c.Addition)
	p.bring(c.Post, session.EntryResume)
}

// goodCheckpoint is the newest of the newest run at which it had not failed.
func (p *plain) goodCheckpoint() *plainCheckpoint {
	for _, k := range slices.Backward(p.Checkpoints) {
		if k.Run == p.Runs[len(p.Runs)-1].ID && !k.Failed {
			return &k
		}
	}
	return nil
}

// stays reports whether the retry takes nothing back.
func (p *plain) stays(good *plainCheckpoint) bool {
	if len(p.Runs) == 0 || p.MaxSteps {
		return true
	}
	r := p.Runs[len(p.Runs)-1]
	if good == nil && (r.Finished == 0 || p.Began == nil) {
		return true
	}
	result := fmt.Sprint("@", r.ID, "#", r.Finished)
	return slices.ContainsFunc(p.Messages, func(id string) bool { return strings.HasSuffix(id, result) })
}

// anew takes the newest run back but for its messages, which become those of another.
func (p *plain) anew(c session.Retry) {
	failed := p.Runs[len(p.Runs)-1]
	p.Version++
	p.undo(failed)
	for id, run := range p.Runner {
		if run == failed.ID {
			p.Runner[id] = c.RunID
		}
	}
	p.add(c.Addition)
	p.bring(c.Post, session.EntryResume)
	again := &p.Runs[len(p.Runs)-1]
	again.From, again.FromTurn = failed.From, failed.From
}
