package worker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/agent"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/writer"
)

// conclude tells readers how the run ended, and the state service that they know.
func (r *runner) conclude(ctx context.Context, o loop.Outcome) error {
	if err := r.tell(ctx, r.step, lastChunk(o, r.usage)); err != nil {
		return err
	}
	r.worker.passed(ctx, PointLastTold)
	return r.close(ctx, o)
}

// close ends the stream behind everything that was told. The run has finished:
// while the stream tier is away, its slot is free for others.
func (r *runner) close(ctx context.Context, o loop.Outcome) error {
	for {
		_, whole, err := r.stand(ctx, false, nil)
		if err == nil && !whole {
			r.yield()
			_, _, err = r.stand(ctx, true, nil)
		}
		if err != nil {
			return err
		}
		err = r.settleWith(ctx, o)
		if !errors.Is(err, writer.ErrRenewed) {
			return err
		}
	}
}

// missed learns which committed steps of the run a lost owner may not have told.
func (r *runner) missed(ctx context.Context) (err error) {
	if r.safe < r.step {
		r.untold, err = r.committed(ctx, r.safe, r.step, r.messages)
	}
	return err
}

// leftOpen learns what a lost owner has left to somebody outside with the end of the run.
// No step has taken an answer to that: the session's next run waits until this one is
// settled. Where it cannot be learned readers are told the rest all the same.
func (r *runner) leftOpen(ctx context.Context, o loop.Outcome) error {
	if !suspends(o) {
		return nil
	}
	found, err := call(ctx, r, func(ctx context.Context) (*statev1.GetSessionResponse, error) {
		return r.worker.peers.Sessions.GetSession(ctx, &statev1.GetSessionRequest{Tenant: r.ref.GetTenant(), SessionId: r.ref.GetSessionId()})
	})
	switch {
	case ctx.Err() != nil || lost(err):
		return err
	case err != nil:
		r.log.ErrorContext(ctx, "readers may not be told what the run has asked", "error", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range found.GetCalls() {
		if c.GetSessionId() == r.ref.GetSessionId() && c.GetRunId() == r.ref.GetRunId() && c.GetStep() == r.step {
			r.left = append(r.left, toOpenCall(c))
		}
	}
	return nil
}

// committed gives the run's steps after the one up to the other from the
// conversation, of which messages are stored.
func (r *runner) committed(ctx context.Context, after, upTo int32, messages int64) ([]untold, error) {
	stored, err := r.stored(ctx, messages)
	if err != nil {
		return nil, err
	}
	said := make(map[int32][]agent.Message)
	decisions := make(map[string]loop.Decision)
	for _, s := range stored {
		m := s.GetMessage()
		if m.GetRunId() != r.started.GetRunId() || m.GetStep() <= after || m.GetStep() > upTo {
			continue
		}
		message, err := toMessage(m)
		if err != nil {
			return nil, err
		}
		said[m.GetStep()] = append(said[m.GetStep()], message)
		toDecisions(decisions, m)
	}
	var steps []untold
	gone := r.takenBack(stored, messages)
	for step := after + 1; step <= upTo; step++ {
		if gone && len(said[step]) == 0 {
			continue
		}
		steps = append(steps, untold{step: step, messages: said[step], drain: drained(said[step]), decisions: decisions})
	}
	return steps, nil
}

// takenBack reports whether what the run has said was taken back since it has finished: there
// is less of the conversation, or its end is what a user has said in another run.
func (r *runner) takenBack(stored []*statev1.StoredMessage, messages int64) bool {
	switch {
	case !r.finished.Load() || messages == 0:
		return false
	case int64(len(stored)) < messages:
		return true
	}
	last := stored[messages-1].GetMessage()
	return last.GetRole() == eventv1.Role_ROLE_USER && !last.GetHidden() && last.GetRunId() != r.started.GetRunId()
}

// drained reports whether the messages are of a step that was about calls of an earlier one:
// of what it has answered there are results at most, and no message with the calls.
func drained(messages []agent.Message) bool {
	return !slices.ContainsFunc(messages, func(m agent.Message) bool { return m.Role == agent.RoleAssistant })
}

func (r *runner) settleWith(ctx context.Context, o loop.Outcome) error {
	sequence, err := r.writer.Terminal(ctx, terminal(r.ref.GetRunId(), o, r.usage))
	if err != nil {
		return fmt.Errorf("write the terminal record: %w", err)
	}
	r.worker.passed(ctx, PointTerminated)
	return r.settled(ctx, sequence)
}

// settled ends what is to be done for the run, once the hook of its end has ended.
func (r *runner) settled(ctx context.Context, sequence int64) error {
	r.after.Wait()
	_, err := call(ctx, r, func(ctx context.Context) (*statev1.SettleRunResponse, error) {
		return r.worker.peers.Work.SettleRun(ctx, &statev1.SettleRunRequest{Run: r.ref, StreamSequence: sequence})
	})
	if err != nil {
		return fmt.Errorf("settle the run: %w", err)
	}
	r.worker.passed(ctx, PointSettled)
	return nil
}

// settle writes what is missing of the end of a run that has finished. The first
// rewind voids nothing: it fences the former owner, whose leftovers cannot follow
// the end, and finds out whether the end stands.
func (r *runner) settle(ctx context.Context) error {
	r.worker.passed(ctx, PointClaimed)
	outcome := toOutcome(r.started)
	r.after.Go(func() { r.afterLost(ctx, outcome) })
	_, told, err := r.rewind(ctx, r.base, math.MaxInt32, r.worker.config.StreamPatience)
	if errors.Is(err, writer.ErrAway) {
		r.yield()
		_, told, err = r.rewind(ctx, r.base, math.MaxInt32, 0)
	}
	if err != nil {
		return err
	}
	if told.terminal > 0 { // it was written behind a stream that was whole
		return r.settled(ctx, told.terminal)
	}
	if err := r.leftOpen(ctx, outcome); err != nil {
		return err
	}
	if err := r.missed(ctx); err != nil {
		return err
	}
	r.note(r.step, []*eventv1.Chunk{lastChunk(outcome, r.usage)})
	r.retell(false)
	r.begin()
	return r.close(ctx, outcome)
}

// afterLost calls the hook of the run's end once more: its executor was lost before it
// was through with the run.
func (r *runner) afterLost(ctx context.Context, o loop.Outcome) {
	if err := r.resolve(ctx); err != nil {
		r.log.WarnContext(ctx, "hooks do not hear of the end of the run: its agent is not here", "error", err)
		return
	}
	state, err := agent.ParseState([]byte(r.session.GetCustomState()))
	if err != nil {
		r.log.WarnContext(ctx, "hooks see no state at the end of the run", "error", err)
	}
	r.writes.state = state
	r.ended(ctx, o)
}
