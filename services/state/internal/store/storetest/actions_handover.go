package storetest

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// handOver returns the claim of a run by its first command.
func handOver(executorID string, now session.Millis) session.HandOver {
	return session.HandOver{
		Claim: session.Claim{ExecutorID: executorID, Now: now}, Tail: session.Tail{MaxMessages: 3, MaxBytes: 1 << 20}, MaxBytes: 1 << 20,
	}
}

// startingAction is newAction for a command that may begin a run of its session. Half of
// these actions hand the run over in the same write. The model then claims the run too,
// and the claim must carry the stored rows.
func startingAction[A any](
	h *history, name string, key session.Key, need session.Need, decide func(...*session.View) (*session.Change, A, error),
	predict func(p *modelSession, all map[session.Key]*modelSession) string,
) action {
	if !rapid.Bool().Draw(h.T, "hand over") {
		return newAction(h, name, key, need, decide, predict)
	}
	c := handOver(h.name, h.now)
	var made *store.Decided
	a := newActionWith(h, name+", handed over", key, c.Need(need), decide, withHandOver(c, &made),
		func(p *modelSession, all map[session.Key]*modelSession) string {
			had := p != nil && p.liveRun() != nil
			var waited []modelRun
			if p != nil {
				waited = slices.Clone(p.Queue)
			}
			reason := predict(p, all)
			if p = all[key]; reason != "" || had || p == nil {
				return reason
			}
			r := p.liveRun()
			if r == nil || slices.ContainsFunc(waited, func(q modelRun) bool { return q.ID == r.ID }) {
				return ""
			}
			r.Status = session.RunRunning
			h.recordClaim(key, p, r)
			return ""
		})
	send := a.send
	a.send = func() error {
		err := send()
		if err == nil && made != nil && !h.bursting {
			expectClaim(h.t, h.T, h.store, c, *made)
		}
		return err
	}
	return a
}

// withHandOver decides c after a command, and stores the claim of the last attempt in made.
func withHandOver(c session.HandOver, made **store.Decided) func(*session.View, *session.Change) error {
	return func(v *session.View, own *session.Change) error {
		*made = nil
		begun, change, err := c.Decide(v, own)
		if change != nil {
			*made = &store.Decided{View: begun, Change: change}
		}
		return err
	}
}
