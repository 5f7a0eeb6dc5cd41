package scheduler

import (
	"context"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// maxHandOverBytes bounds a claim made by a command, because other commands wait for the same
// transaction. The claim loops handle larger ones.
const maxHandOverBytes = 4 << 20

// HandOver lets a command claim its new run in the write that begins it, for an idle executor
// of this replica, so no loop has to look for it. The command takes a credit only when it
// begins a run.
//
// A HandOver lives as long as its command, and is not safe for concurrent use. The command
// calls Reset before each try, Claim after its decision, and Finish at its end. A deferred
// Abandon covers a panic before Finish. A nil HandOver never claims.
type HandOver struct {
	scheduler *Scheduler
	executor  *claimer       // nil until one is found
	agentType string         // the agent of the last findExecutor; empty before
	reserved  bool           // a credit of the executor is taken
	claim     *store.Decided // the last one made
	current   bool           // the last try has made the claim
	wrote     bool           // the last try changes its own session
	finished  bool
}

// HandOver looks for an idle executor of the expected agent; of any agent if none is expected. If that executor does not serve
// the agent of the run, Claim looks for another.
func (s *Scheduler) HandOver(agentType string) *HandOver {
	h := &HandOver{scheduler: s}
	h.findExecutor(agentType)
	return h
}

func (h *HandOver) findExecutor(agentType string) {
	h.agentType = agentType
	h.executor = h.scheduler.hub.findIdle(agentType)
}

func (h *HandOver) command() session.HandOver {
	return session.HandOver{
		Claim: h.scheduler.claimBy(h.executor.executorID),
		Tail:  h.scheduler.config.tail(), MaxBytes: maxHandOverBytes,
	}
}

// Need adds the rows of a claim to the need of the command.
func (h *HandOver) Need(n session.Need) session.Need {
	if h.executor == nil {
		return n
	}
	return h.command().Need(n)
}

// Reset begins a try of the command. The try has claimed nothing so far.
func (h *HandOver) Reset() {
	if h != nil {
		h.current, h.wrote = false, false
	}
}

// Claim claims the new run of the command's own session, and changes own accordingly. Without a
// new run or an idle executor it changes nothing. It gives *session.IncompleteViewError when the view lacks
// rows for the claim.
func (h *HandOver) Claim(v *session.View, own *session.Change) error {
	if h == nil || own == nil {
		return nil
	}
	h.wrote = true
	if s := own.Session; s == nil || h.scheduler.isCapped(s.Tenant, s.UserID) {
		return nil // claims with caps count in the database
	}
	if !own.CanHandOver() {
		return nil
	}
	if agentType := own.NewRun.AgentType; agentType != h.agentType {
		if h.reserved { // an earlier try has found another agent; Finish gives the credit back
			return nil
		}
		if h.agentType == "" && h.scheduler.hub.serves(h.executor, agentType) {
			h.agentType = agentType
		} else if h.findExecutor(agentType); h.executor != nil {
			return &session.IncompleteViewError{Targets: []session.Target{{Key: own.Session.Key, Need: h.Need(session.Need{})}}}
		}
	}
	if h.executor == nil {
		return nil
	}
	if h.reserved = h.reserved || h.scheduler.hub.reserve(h.executor); !h.reserved { // another command was faster
		return nil
	}
	begun, change, err := h.command().Decide(v, own)
	if err != nil {
		return err
	}
	h.claim, h.current = nil, change != nil
	if h.current {
		h.claim = &store.Decided{View: begun, Change: change}
	}
	return nil
}

// Finish takes the error of the command. It passes a written claim to the stream, or releases
// it if the stream has ended, and gives back an unused credit.
//
// A failed command may have written a claim all the same: the answer to the commit was lost, or
// it found its own earlier try. Finish releases such a claim in the background.
func (h *HandOver) Finish(ctx context.Context, err error) {
	if h == nil {
		return
	}
	h.finished = true
	if !h.reserved {
		return
	}
	written := err == nil && h.current
	if written {
		h.scheduler.Meters.Claimed(ctx, h.claim.View.Run, h.scheduler.millis())
	}
	if written && h.executor.outbox.put(*h.claim, h.scheduler.Now()) {
		return
	}
	h.executor.credits.giveBack(1)
	switch {
	case written:
		h.executor.release(ctx, []store.Decided{*h.claim})
	case h.claim != nil && (err != nil || !h.wrote):
		h.scheduler.start(func() { h.executor.releaseUncertain(ctx, *h.claim) })
	}
}

// Abandon gives the credit back unless Finish was called.
func (h *HandOver) Abandon() {
	if !h.finished && h.reserved {
		h.executor.credits.giveBack(1)
	}
}

// releaseUncertain releases a claim, if it was written. If that fails, the run is requeued as
// lost.
func (c *claimer) releaseUncertain(ctx context.Context, claim store.Decided) {
	ctx, cancel := cleanup(ctx)
	defer cancel()
	ref := (&Claim{Decided: claim}).Ref()
	if err := c.Commands.Release(ctx, ref); err == nil {
		c.Log.WarnContext(ctx, "a claim whose writing was not answered was given back", "session", ref.SessionID, "run", ref.RunID)
	}
}
