package scheduler

import (
	"context"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// maxHandOverBytes bounds a claim that a command makes, because other commands wait for
// the same transaction. Larger claims are left to the claim loops, which also handle
// those that no message can carry.
const maxHandOverBytes = 4 << 20

// HandOver lets a command claim the run that it begins, in the write that begins it, for
// an executor with a free credit and a claim loop in this replica. So no loop has to
// look for the run. The command takes the credit when it begins a run, and not before.
//
// It lives as long as its command, and no two goroutines may use it at once. The command
// calls Reset before each try, Claim once its change is decided, and Finish when it has
// ended. Abandon is for a command that may not come to Finish.
// A nil HandOver never claims.
type HandOver struct {
	scheduler *Scheduler
	executor  *claimer       // nil until one is found
	looked    bool           // an executor was looked for
	reserved  bool           // a credit of the executor is taken
	claim     *store.Decided // of the last try that made one
	current   bool           // the last try has made the claim
	wrote     bool           // the last try writes something
	finished  bool
}

// HandOver looks for an executor that serves the agent and has a free credit. With an
// empty agent, Claim looks for one once the command has decided which run it begins.
func (s *Scheduler) HandOver(agentType string) *HandOver {
	h := &HandOver{scheduler: s}
	if agentType != "" {
		h.findExecutor(agentType)
	}
	return h
}

func (h *HandOver) findExecutor(agentType string) {
	h.executor, h.looked = h.scheduler.hub.findIdle(agentType), true
}

func (h *HandOver) command() session.HandOver {
	return session.HandOver{
		Claim: session.Claim{ExecutorID: h.executor.executorID, Now: h.scheduler.millis()},
		Tail:  h.scheduler.config.tail(), Bytes: maxHandOverBytes,
	}
}

// Need adds what a claim carries to the need of the command.
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

// Claim claims the run that the command begins in its own session, and changes own
// accordingly. It leaves own as it is when own begins no run or no executor has a free credit.
// It gives *session.Wider when the view lacks what a claim carries.
func (h *HandOver) Claim(v *session.View, own *session.Change) error {
	if h == nil || own == nil {
		return nil
	}
	h.wrote = true
	if h.executor == nil && !h.looked && own.Begins() {
		if h.findExecutor(own.NewRun.AgentType); h.executor != nil {
			return &session.Wider{Targets: []session.Target{{Key: own.Session.Key, Need: h.Need(session.Need{})}}}
		}
	}
	if h.executor == nil || !own.Begins() {
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

// Finish takes the error of the command. It passes a claim that was written to the
// stream, releases it if the stream has ended, and gives back an unused credit.
//
// If the command has failed, a former claim may be written all the same: the answer to
// the commit was lost, or the command has found its own former try. Such a claim is
// released in the background. That changes nothing where it was not written.
func (h *HandOver) Finish(ctx context.Context, err error) {
	if h.finished = true; !h.reserved {
		return
	}
	written := err == nil && h.current
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

// releaseUncertain releases a claim that may not have been written. If that fails, the
// executor does not list the run as held, and it is requeued as lost.
func (c *claimer) releaseUncertain(ctx context.Context, claim store.Decided) {
	ctx, cancel := cleanup(ctx)
	defer cancel()
	ref := (&Claim{Decided: claim}).ref()
	if err := c.Commands.Release(ctx, ref); err == nil {
		c.Log.WarnContext(ctx, "a claim whose writing was not answered was given back", "session", ref.SessionID, "run", ref.RunID)
	}
}
