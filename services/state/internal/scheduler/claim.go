package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

const (
	// claimBatch is how many runs one transaction claims at most: enough to make it
	// cheap, few enough to leave work for other executors.
	claimBatch = 16

	// claimTimeout bounds a transaction: an unreachable database must not block a stream.
	claimTimeout = 10 * time.Second

	// cleanupTimeout bounds the work after the end of a stream.
	cleanupTimeout = 5 * time.Second

	// usedSums bounds the sums of used tokens in a claim, one for each source and model.
	usedSums = 1000
)

// claim claims at most limit runs and sends them: with spare, one for each tenant without a running run. With all,
// orphaned runs and those of gone agents follow. It returns how many runs it claimed, and whether more may be queued.
// It gives back the unused ones of the limit credits that the caller took.
func (c *claimer) claim(ctx context.Context, limit int, spare, all bool) (n int, more bool, err error) {
	select {
	case <-c.stopping:
		return 0, false, errStopping()
	default:
	}
	used := 0
	defer func() { c.credits.giveBack(limit - used) }()
	command := c.claimBy(c.executorID)
	need := session.Need{State: true, Journal: true, Calls: true, Tail: c.config.tail()}
	due := store.Queued{ExecutorID: c.executorID, AgentTypes: c.agents, Now: command.Now, Weights: c.config.TenantWeights, Caps: c.Caps()}
	turn := &c.turn
	if spare {
		turn = &c.spareTurn
		due.Caps = due.Caps.LowerTenants(1)
	}
	due.After, due.Left = turn.last()
	runs, more, err := c.claimDue(ctx, due, need, limit, command.Decide)
	if err != nil {
		return 0, false, err
	}
	more = more || due.Caps != nil && len(runs) > 0 // runs of users at their cap may hide others
	turn.pass(runs)
	used, err = c.send(ctx, runs)
	n = len(runs)
	if err != nil || !all || n == limit {
		return n, more, err
	}
	orphaned := session.ClaimOrphaned{Claim: command, Grace: session.Millis(c.config.OrphanedAfter.Milliseconds())}
	orphans, _, err := c.claimDue(ctx, store.Orphaned{ExecutorID: c.executorID, Now: command.Now}, need, limit-n, orphaned.Decide)
	if err != nil {
		return n, more, err
	}
	sent, err := c.send(ctx, orphans)
	used, n = used+sent, n+len(orphans)
	if err != nil || n == limit {
		return n, more, err // the next poll finds further orphans
	}
	failing, err := c.claimOfGone(ctx, command, need, limit-n)
	if err != nil {
		return n, more, err
	}
	sent, err = c.send(ctx, failing)
	used += sent
	return n + len(failing), more, err
}

// claimOfGone claims at most limit runs of agents that are gone, to fail them.
func (c *claimer) claimOfGone(ctx context.Context, command session.Claim, need session.Need, limit int) ([]store.Decided, error) {
	gone := c.absence.gone(c.Now())
	if len(gone) == 0 {
		return nil, nil
	}
	before := command.Now - session.Millis(c.absence.after.Milliseconds())
	fail := session.ClaimUnserved{
		Claim: command, QueuedBefore: before,
		Reason: fmt.Sprintf(
			"no executor has served the agent for %v; start one, and send the message again, or raise HOLDFAST_STATE_AGENT_GONE_AFTER",
			c.absence.after,
		),
	}
	claimed, more, err := c.claimDue(
		ctx,
		store.Unserved{ExecutorID: c.executorID, AgentTypes: gone, QueuedBefore: before, Now: command.Now},
		need,
		limit,
		fail.Decide,
	)
	if more || err != nil {
		c.absence.rearm()
	}
	return claimed, err
}

// claimDue claims at most limit runs. more reports whether it found as many; another replica
// may have claimed some first.
func (c *claimer) claimDue(
	ctx context.Context,
	due store.Due,
	need session.Need,
	limit int,
	decide store.DecideDue,
) (claimed []store.Decided, more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	found := 0
	claimed, err = c.Store.UpdateDue(ctx, due, need, limit, func(v *session.View) (*session.Change, error) {
		found++ // over all tries: one query too many does no harm
		return decide(v)
	})
	for _, d := range claimed {
		c.Meters.Claimed(ctx, d.View.Run, c.millis())
	}
	return claimed, found >= limit, err
}

// send sends the claims, and returns how many. If sending fails, it releases the rest. A run
// fails if its claim exceeds a message.
func (c *claimer) send(ctx context.Context, claims []store.Decided) (sent int, err error) {
	for i, d := range claims {
		claim := Claim{Decided: d}
		claim.Used, err = c.usedTokens(ctx, d)
		if err == nil {
			err = c.sendClaim(claim)
		}
		if oversized, ok := errors.AsType[*OversizedError](err); ok {
			c.fail(ctx, claim, oversized)
			continue
		}
		if err != nil {
			c.release(ctx, claims[i:])
			return sent, err
		}
		c.stops.forget(c.box, claim.run().RunID)
		sent++
	}
	return sent, nil
}

func (c *claimer) sendClaim(claim Claim) error {
	c.sending.Lock()
	defer c.sending.Unlock()
	return c.stream.SendClaim(claim)
}

// usedTokens returns nil for a first claim, without a query.
func (c *claimer) usedTokens(ctx context.Context, d store.Decided) ([]store.UsageSum, error) {
	if d.View.Run.Attempt == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	key := d.View.Session.Key
	return c.Store.UsageSums(ctx, key.Tenant, store.UsageQuery{
		Sessions: []string{key.SessionID}, RunID: d.View.Run.RunID, Kinds: []session.UsageKind{session.UsageTokens},
	}, usedSums)
}

// fail ends a run with an oversized claim. Released, it would be claimed again at once and
// break one stream after the other.
func (c *claimer) fail(ctx context.Context, claim Claim, oversized *OversizedError) {
	ctx, cancel := cleanup(ctx)
	defer cancel()
	ref := claim.Ref()
	c.Log.ErrorContext(
		ctx,
		"a run is too large to be handed to an executor and fails",
		"session",
		ref.SessionID,
		"run",
		ref.RunID,
		"bytes",
		oversized.Bytes,
	)
	failure := session.Failure{
		Error: "What the conversation has to go on with is too large.", Code: "framework_internal_error", Detail: oversized.Error(),
	}
	if err := c.Commands.Fail(ctx, ref, failure, oversized.Bytes); err != nil {
		c.Log.WarnContext(ctx, "a run that is too large could not be failed; a later claim finds it", "run", ref.RunID, "error", err)
	}
}

func (c *claimer) release(ctx context.Context, claims []store.Decided) {
	ctx, cancel := cleanup(ctx)
	defer cancel()
	for _, d := range claims {
		ref := (&Claim{Decided: d}).Ref()
		if err := c.Commands.Release(ctx, ref); err != nil {
			// The executor does not list the run as held, so it is requeued as lost.
			c.Log.WarnContext(ctx, "release of a claim that could not be sent failed", "run", ref.RunID, "error", err)
		}
	}
}

// cleanup returns a context for work after the end of the caller's context.
func cleanup(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
}
