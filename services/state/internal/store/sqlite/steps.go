package sqlite

import (
	"context"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// stepSizes selects the steps of a page and one more: the step, the step before it,
// whether it begins its run, the lowest possible ordinal of its messages, and its
// size. length does not read the record.
const stepSizes = `SELECT k.step, k.run_id, coalesce(f.step, 0), f.run_id IS NOT k.run_id, ` + firstOrdinal + `,
		length(k.record) + coalesce((SELECT sum(m.size) FROM messages m WHERE m.tenant = k.tenant AND m.session_id = k.session_id
			AND m.ordinal >= ` + firstOrdinal + ` AND m.ordinal < k.message_count AND m.step = k.step AND m.run_id = k.run_id), 0)
	FROM checkpoints k
	LEFT JOIN checkpoints f ON f.tenant = k.tenant AND f.session_id = k.session_id AND f.step =
		(SELECT max(step) FROM checkpoints WHERE tenant = k.tenant AND session_id = k.session_id AND step < k.step)
	LEFT JOIN runs r ON r.tenant = k.tenant AND r.session_id = k.session_id AND r.run_id = k.run_id
	WHERE k.tenant = ?1 AND k.session_id = ?2 AND k.step > ?3 AND (?4 = '' OR k.run_id = ?4)
	ORDER BY k.step LIMIT 0 + ?5`

// firstOrdinal is the lowest possible ordinal of the step's messages. Its messages
// follow those of the step before, and those from before its run.
const firstOrdinal = `max(coalesce(f.message_count, 0), coalesce(r.start_message_count, 0))`

// Steps implements store.Reader.
func (s ownedReader) Steps(ctx context.Context, key session.Key, page store.StepPage) (found *store.Steps, err error) {
	err = s.readOf(ctx, key, func(c *connection, of *session.Session) error {
		found = &store.Steps{Session: *of}
		if of.CurrentRunID != "" {
			if found.Current, err = readRun(ctx, c, runByID, key, of.CurrentRunID); err != nil {
				return err
			}
		}
		if _, err := c.queryRow(ctx, `SELECT coalesce(max(step), 0) FROM checkpoints WHERE tenant = ? AND session_id = ? AND step <= ?`,
			arguments(key.Tenant, key.SessionID, page.After), &found.LastStep); err != nil {
			return err
		}
		begins, err := readStepPage(ctx, c, key, page, found)
		if err != nil {
			return err
		}
		for i := range found.Page {
			if err := readStep(ctx, c, key, begins[i], &found.Page[i]); err != nil {
				return err
			}
		}
		return readRunsOf(ctx, c, key, found)
	})
	if err != nil {
		return nil, wrap(ctx, err, "read the steps of session %q", key.SessionID)
	}
	return found, nil
}

// readStepPage finds the steps of the page, and returns the first ordinal of each.
func readStepPage(
	ctx context.Context, c *connection, key session.Key, page store.StepPage, found *store.Steps,
) (begins []int64, err error) {
	total := 0
	err = c.forEachUntil(ctx, stepSizes, arguments(key.Tenant, key.SessionID, page.After, page.RunID, page.Limit+1),
		func(row scanner) (bool, error) {
			var step session.StoredStep
			var from int64
			var size int
			if err := row.Scan(&step.Step, &step.RunID, &step.Follows, &step.BeginsRun, &from, &size); err != nil {
				return false, err
			}
			total += size
			if n := len(found.Page); n == page.Limit || n > 0 && total > page.MaxBytes {
				found.More = true
				return false, nil
			}
			found.Page, begins = append(found.Page, step), append(begins, from)
			return true, nil
		})
	return begins, err
}

// readStep reads the checkpoint and the messages of a step.
func readStep(ctx context.Context, c *connection, key session.Key, from int64, step *session.StoredStep) (err error) {
	_, err = c.queryRow(ctx, `SELECT `+checkpointColumns.Select("k")+` FROM checkpoints k
		WHERE k.tenant = ? AND k.session_id = ? AND k.step = ?`,
		arguments(key.Tenant, key.SessionID, step.Step), checkpointColumns.Destinations(nil, &step.Checkpoint)...)
	if err != nil {
		return err
	}
	step.Messages, err = readMessages(ctx, c, `SELECT `+messageFields+` FROM messages m WHERE m.tenant = ? AND m.session_id = ?
		AND m.ordinal >= ? AND m.ordinal < ? AND m.step = ? AND m.run_id = ? ORDER BY m.ordinal`,
		key.Tenant, key.SessionID, from, step.MessageCount, step.Step, step.RunID)
	return err
}

var runWithoutOutput = `SELECT ` + runListed.Select("r") + ` FROM runs r WHERE r.tenant = ? AND r.session_id = ? AND r.run_id = ?`

// readRunsOf reads the runs of the page without their outputs.
func readRunsOf(ctx context.Context, c *connection, key session.Key, found *store.Steps) error {
	for i, step := range found.Page {
		if i > 0 && found.Page[i-1].RunID == step.RunID {
			continue
		}
		var run session.Run
		known, err := c.queryRow(ctx, runWithoutOutput, arguments(key.Tenant, key.SessionID, step.RunID), runListed.Destinations(nil, &run)...)
		if err != nil {
			return err
		}
		if known {
			fillOutcome(&run)
			found.Runs = append(found.Runs, run)
		}
	}
	return nil
}
