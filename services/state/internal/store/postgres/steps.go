package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// stepPage selects the steps of a page and one more. Each has the step before it, the
// lowest possible ordinal of its messages, and the size of the page up to it. The
// messages follow those of the step before, and those from before the run.
// octet_length does not read the record.
const stepPage = `(SELECT k.*, sum(octet_length(k.record) + k.message_bytes) OVER (ORDER BY k.step) AS total, row_number() OVER (ORDER BY k.step) AS place FROM
	(SELECT c.*, coalesce(f.step, 0) AS follows, f.run_id IS DISTINCT FROM c.run_id AS begins, b.ordinal AS first,
			(SELECT coalesce(sum(size), 0)::bigint FROM messages WHERE tenant = $1 AND session_id = $2 AND ordinal >= b.ordinal
				AND ordinal < c.message_count AND step = c.step AND run_id = c.run_id) AS message_bytes
		FROM (SELECT * FROM checkpoints WHERE tenant = $1::text AND session_id = $2::text AND step > $3::bigint
			AND ($4::text = '' OR run_id = $4) ORDER BY step LIMIT $5::bigint + 1) c
		LEFT JOIN LATERAL (SELECT step, run_id, message_count FROM checkpoints WHERE tenant = $1 AND session_id = $2 AND step < c.step
			ORDER BY step DESC LIMIT 1) f ON true
		LEFT JOIN LATERAL (SELECT start_message_count FROM runs WHERE tenant = $1 AND session_id = $2 AND run_id >= c.run_id AND run_id <= c.run_id
			ORDER BY run_id LIMIT 1) r ON true
		CROSS JOIN LATERAL (SELECT greatest(coalesce(f.message_count, 0), coalesce(r.start_message_count, 0)) AS ordinal) b) k)`

// inStepPage is the condition that a step belongs to the page.
const inStepPage = `k.place <= $5 AND (k.place = 1 OR k.total <= $6::bigint)`

var readSteps = union(`WITH k AS MATERIALIZED `+stepPage+` `,
	sessionQuery,
	newestQuery,
	query{`step`, `checkpoints WHERE tenant = $1::text AND session_id = $2::text AND step <= $3::bigint ORDER BY step DESC LIMIT 1`},
	query{inStepPage + `, k.follows::bigint, k.begins, ` + checkpointRead.Select("k") + `, CASE WHEN ` + inStepPage + ` THEN k.record ELSE ''::bytea END`, `k ORDER BY k.step`},
	query{messageRead.Select("m"), `k
		CROSS JOIN LATERAL (SELECT * FROM messages WHERE tenant = $1 AND session_id = $2 AND ordinal >= k.first AND ordinal < k.message_count
			AND step = k.step AND run_id = k.run_id ORDER BY ordinal) m
		WHERE ` + inStepPage + ` ORDER BY k.step, m.ordinal`},
	query{runListed.Select("r"), `(SELECT run_id, min(step) AS step FROM k WHERE ` + inStepPage + ` GROUP BY run_id) o
		CROSS JOIN LATERAL (SELECT * FROM runs WHERE tenant = $1 AND session_id = $2 AND run_id >= o.run_id AND run_id <= o.run_id ORDER BY run_id LIMIT 1) r
		ORDER BY o.step`})

// Steps implements store.Reader.
func (s ownedReader) Steps(ctx context.Context, key session.Key, page store.StepPage) (*store.Steps, error) {
	found := &store.Steps{Session: session.Session{Key: key}}
	known := false
	byStep := map[int32]*session.StoredStep{}
	found.Page = make([]session.StoredStep, 0, page.Limit) // byStep points into it, so it must not grow
	err := s.query(ctx, readSteps, scanParts(
		func(row pgx.CollectableRow) error {
			known = true
			return row.Scan(sessionColumns.Destinations(nil, &found.Session)...)
		},
		scanRuns(runColumns, func(run *session.Run) { found.Current = run }),
		scanInto(&found.LastStep),
		scanEach(func(to []any, step *pagedStep) []any { return step.destinations(to) }, func(step *pagedStep) {
			if !step.belongs {
				found.More = true
				return
			}
			found.Page = append(found.Page, step.StoredStep)
			byStep[step.Step] = &found.Page[len(found.Page)-1]
		}),
		scanEach(messageRead.Destinations, func(m *session.Message) {
			if step := byStep[m.Step]; step != nil {
				step.Messages = append(step.Messages, *m)
			}
		}),
		scanRuns(runListed, func(run *session.Run) { found.Runs = append(found.Runs, *run) }),
	), arguments(key, page.After, page.RunID, page.Limit, page.MaxBytes)...)
	if err == nil && (!known || s.hides(found.Session.UserID)) {
		err = session.SessionNotFound(key)
	}
	if err != nil {
		return nil, wrap(ctx, err, "read the steps of session %q", key.SessionID)
	}
	return found, nil
}

// pagedStep is a row of readStepPage.
type pagedStep struct {
	belongs bool // the step is in the page
	session.StoredStep
}

func (s *pagedStep) destinations(to []any) []any {
	to = append(to, &s.belongs, &s.Follows, &s.BeginsRun)
	return checkpointColumns.Destinations(to, &s.Checkpoint)
}
