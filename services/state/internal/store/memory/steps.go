package memory

import (
	"context"
	"slices"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// Steps implements store.Reader.
func (m *Store) Steps(ctx context.Context, key session.Key, page store.StepPage) (found *store.Steps, err error) {
	err = m.read(ctx, key, func(r *rows) error {
		found = &store.Steps{Session: copySession(r.session), Current: copyRun(r.run(r.session.CurrentRunID))}
		size := 0
		for i := range r.checkpoints {
			c := &r.checkpoints[i]
			if c.Step <= page.After {
				found.Stands = c.Step
				continue
			}
			if page.RunID != "" && c.RunID != page.RunID {
				continue
			}
			step := r.step(i)
			if size += stepBytes(&step); len(found.Page) == page.Limit || len(found.Page) > 0 && size > page.MaxBytes {
				found.More = true
				break
			}
			found.Page = append(found.Page, step)
		}
		found.Runs = r.runsOf(found.Page)
		return nil
	})
	return found, err
}

// step returns what there is of the checkpoint at that place.
func (r *rows) step(i int) session.StoredStep {
	c := &r.checkpoints[i]
	step := session.StoredStep{Checkpoint: *copyCheckpoint(c), BeginsRun: true}
	step.Record = append([]byte(nil), c.Record...)
	if i > 0 {
		former := &r.checkpoints[i-1]
		step.Follows, step.BeginsRun = former.Step, former.RunID != c.RunID
	}
	for _, message := range r.messages[:min(c.MessageCount, int64(len(r.messages)))] {
		if message.RunID == c.RunID && message.Step == c.Step {
			step.Messages = append(step.Messages, message)
		}
	}
	step.Messages = copyMessages(step.Messages)
	return step
}

func stepBytes(step *session.StoredStep) int {
	size := len(step.Record)
	for _, message := range step.Messages {
		size += len(message.Body)
	}
	return size
}

// runsOf returns the runs of the steps, without their outputs.
func (r *rows) runsOf(steps []session.StoredStep) (runs []session.Run) {
	for _, step := range steps {
		if slices.ContainsFunc(runs, func(run session.Run) bool { return run.RunID == step.RunID }) {
			continue
		}
		if run := copyRun(r.run(step.RunID)); run != nil {
			run.Outcome.Output = ""
			runs = append(runs, *run)
		}
	}
	return runs
}
