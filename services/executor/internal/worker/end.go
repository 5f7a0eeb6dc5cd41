package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
)

// restorePatience is how long a run waits between two steps for a stream tier
// that was away.
const restorePatience = 250 * time.Millisecond

// untold is a committed step that readers have not seen, or not whole.
type untold struct {
	step         int
	messages     []agent.Message // the assistant's first
	checkpointID string          // empty: nobody knows it any more
}

// conclude tells readers how the run ended, and the state service that they know.
// The run has finished: while the stream tier is away, its slot is free for others.
func (r *runner) conclude(ctx context.Context, o loop.Outcome) error {
	for {
		if r.writer.Lossy() || len(r.untold) > 0 {
			r.yield()
			if err := r.restore(ctx, 0); err != nil {
				return err
			}
		}
		if err := r.tell(ctx, r.step, lastChunk(o, r.usage)); err != nil {
			return err
		}
		if _, err := r.writer.Flush(ctx); err != nil {
			return err
		}
		if !r.writer.Lossy() {
			return r.settleWith(ctx, o)
		}
	}
}

// restore makes a stream whole that has lost chunks: it takes back what was told
// of steps that are not whole, and tells the committed ones again from what was
// committed. A patience of 0 has no end; else the writer may stay lossy.
func (r *runner) restore(ctx context.Context, patience time.Duration) error {
	if err := r.rewind(ctx, r.safe, reasonStepRetried, patience); err != nil || r.writer.Lossy() {
		return err
	}
	if err := r.reopen(ctx); err != nil {
		return err
	}
	for _, step := range r.untold {
		if err := r.tellAll(ctx, int32(step.step), step.chunks()); err != nil {
			return err
		}
	}
	_, err := r.writer.Flush(ctx)
	if err == nil && !r.writer.Lossy() {
		// The base stays below what was just told: a later rewind has to see that it
		// stands.
		r.safe, r.untold = r.step, nil
	}
	return err
}

// chunks are those of the whole step.
func (u untold) chunks() []*eventv1.Chunk {
	chunks := []*eventv1.Chunk{stepStarted()}
	if len(u.messages) > 0 {
		chunks = planChunks(u.messages[0])
		for _, m := range u.messages[1:] {
			for _, result := range m.Results() {
				chunks = append(chunks, toolEnd(result))
			}
		}
	}
	return append(chunks, stepCommitted(u.checkpointID))
}

// missed learns which committed steps of the run a lost owner could not tell,
// from the conversation.
func (r *runner) missed(ctx context.Context) error {
	if r.safe >= r.step {
		return nil
	}
	stored, err := r.stored(ctx, r.session.GetMessageCount())
	if err != nil {
		return err
	}
	steps := make(map[int32][]agent.Message)
	for _, s := range stored {
		m := s.GetMessage()
		if m.GetRunId() != r.started.GetRunId() || m.GetStep() <= r.safe {
			continue
		}
		message, err := toMessage(m)
		if err != nil {
			return err
		}
		steps[m.GetStep()] = append(steps[m.GetStep()], message)
	}
	for step := r.safe + 1; step <= r.step; step++ {
		r.untold = append(r.untold, untold{step: int(step), messages: steps[step]})
	}
	return nil
}

func lastChunk(o loop.Outcome, usage *eventv1.Usage) *eventv1.Chunk {
	if o.Failure != nil {
		return runError(*o.Failure)
	}
	return runCompleted(o, usage)
}

func (r *runner) settleWith(ctx context.Context, o loop.Outcome) error {
	sequence, err := r.writer.Terminal(ctx, terminal(r.ref.GetRunId(), o, r.usage))
	if err != nil {
		return fmt.Errorf("write the terminal record: %w", err)
	}
	return r.settled(ctx, sequence)
}

func (r *runner) settled(ctx context.Context, sequence int64) error {
	_, err := call(ctx, r, func(ctx context.Context) (*statev1.SettleRunResponse, error) {
		return r.worker.peers.Work.SettleRun(ctx, &statev1.SettleRunRequest{Run: r.ref, StreamSequence: sequence})
	})
	if err != nil {
		return fmt.Errorf("settle the run: %w", err)
	}
	return nil
}

// settle writes what is missing of the end of a run that has finished. The rewind
// fences the former owner, whose leftovers cannot follow the end.
func (r *runner) settle(ctx context.Context) error {
	if err := r.rewind(ctx, r.step, reasonExecutorLost, r.worker.config.StreamPatience); err != nil {
		return err
	}
	if r.writer.Lossy() {
		r.yield()
		if err := r.rewind(ctx, r.step, reasonExecutorLost, 0); err != nil {
			return err
		}
	}
	if r.told.terminal > 0 { // it was written behind a stream that was whole
		return r.settled(ctx, r.told.terminal)
	}
	outcome := toOutcome(r.started)
	if err := r.missed(ctx); err != nil {
		return err
	}
	if len(r.untold) > 0 {
		return r.conclude(ctx, outcome)
	}
	if r.told.ended {
		return r.settleWith(ctx, outcome)
	}
	if err := r.reopen(ctx); err != nil {
		return err
	}
	return r.conclude(ctx, outcome)
}
