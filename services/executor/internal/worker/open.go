package worker

import (
	"context"
	"errors"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/writer"
)

// Reasons of a rewind.
const (
	reasonExecutorLost = "executor_lost"
	reasonStepRetried  = "step_retried"
)

// open makes the stream say what it should at this point, once: what a lost
// owner left behind is taken back or completed, while the run goes on. After an
// error readers may miss steps; what the run tells still reaches them.
func (r *runner) open(ctx context.Context, journal *loop.Journal) error {
	defer r.begin()
	r.opened = true
	if r.started.GetAttempt() <= 1 && journal == nil {
		return r.writer.Write(ctx, proto.CloneOf(r.head))
	}
	err := r.missed(ctx)
	if err == nil && journal != nil {
		var plan *agent.Message
		if !r.drains(journal.Plan) {
			plan = &journal.Plan // that of a drain was told by an earlier step
		}
		var adopted bool
		if adopted, err = r.adopt(ctx, journal, plan); adopted {
			return nil
		}
		if plan != nil {
			r.note(r.step+1, planChunks(*plan, r.fate()))
			r.said.begun(plan.Calls())
		}
	}
	r.retell(false)
	return err
}

// adopt goes on with what stands of the step in flight, where that is everything
// up to its plan, if it tells one, and nothing is missing before. What stands of a drain are
// ends: one that the journal does not have may be of an answer in whose place another one
// has come.
func (r *runner) adopt(ctx context.Context, journal *loop.Journal, plan *agent.Message) (bool, error) {
	if len(r.untold) > 0 {
		return false, nil
	}
	step := r.step + 1
	found, told, err := r.rewind(ctx, r.base, step, r.patience())
	if errors.Is(err, writer.ErrAway) {
		return false, nil
	}
	if err != nil || !told.has(r.head) || !told.continues(step) || plan != nil && !told.says(step, *plan, r.fate()) || plan == nil && !told.answers(journal) {
		return false, err
	}
	r.said.adopt(told)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, record := range found.Kept {
		if chunk := record.GetChunk(); chunk.GetAgentId() == r.started.GetRunId() && chunk.GetStep() == step {
			r.keep(chunk)
		}
	}
	return true, nil
}
