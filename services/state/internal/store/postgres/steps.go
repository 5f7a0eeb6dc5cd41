package postgres

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// readSteps reads the steps behind $3: at most one more than the limit, so the last row tells whether more follow. Each
// table is read by one scan, and Steps puts the rows together. The messages lie behind those of the step before the page,
// and behind those from before the run. Records and bodies beyond the page's size are empty: the database does not read
// them. octet_length does not read a record either.
var readSteps = union(
	`WITH c AS MATERIALIZED (SELECT *, sum(octet_length(record)) OVER (ORDER BY step) - octet_length(record) AS before
		FROM checkpoints WHERE tenant = $1::text AND session_id = $2::text AND step > $3::bigint AND ($4::text = '' OR run_id = $4)
		ORDER BY step LIMIT $5::bigint + 1),
	b AS MATERIALIZED (SELECT min(step) AS first, max(message_count) AS messages FROM c),
	f AS MATERIALIZED (SELECT step, run_id, message_count FROM checkpoints
		WHERE tenant = $1 AND session_id = $2 AND step < (SELECT first FROM b) ORDER BY step DESC LIMIT 1),
	r AS MATERIALIZED (SELECT o.step AS first, r.* FROM (SELECT run_id, min(step) AS step FROM c GROUP BY run_id) o
		CROSS JOIN LATERAL (SELECT * FROM runs WHERE tenant = $1 AND session_id = $2 AND run_id >= o.run_id AND run_id <= o.run_id
			ORDER BY run_id LIMIT 1) r
		ORDER BY o.step) `,
	sessionQuery,
	newestQuery,
	query{`step`, `checkpoints WHERE tenant = $1::text AND session_id = $2::text AND step <= $3::bigint ORDER BY step DESC LIMIT 1`},
	query{`step, run_id, message_count`, `f`},
	query{runListed.Select("r"), `r ORDER BY r.first`},
	query{
		`octet_length(c.record), ` + checkpointRead.Select("c") + `, CASE WHEN c.before <= $6::bigint THEN c.record ELSE ''::bytea END`,
		`c ORDER BY c.step`,
	},
	query{
		`m.size, ` + messageRead.Without("body").
			Select("m") +
			`, CASE WHEN m.step = (SELECT first FROM b) OR m.before <= $6::bigint THEN m.body ELSE ''::bytea END`,
		`(SELECT *, sum(size) OVER (ORDER BY ordinal) - size AS before FROM messages WHERE tenant = $1 AND session_id = $2
			AND ordinal >= greatest(0, (SELECT message_count FROM f), (SELECT start_message_count FROM r WHERE r.first = (SELECT first FROM b)))
			AND ordinal < (SELECT messages FROM b) AND step >= (SELECT first FROM b)) m ORDER BY m.ordinal`,
	},
)

// pagedStep is a step whose membership in the page is not known yet.
type pagedStep struct {
	session.StoredStep
	size     int   // of its record and messages
	from, to int64 // bounds of the ordinals of its messages
	cut      bool  // a body is missing: the step is beyond the page's size
}

// pagedMessage is a message, perhaps without its body.
type pagedMessage struct {
	session.Message
	size int
}

// Steps implements store.Reader.
func (s ownedReader) Steps(ctx context.Context, key session.Key, page store.StepPage) (*store.Steps, error) {
	found := &store.Steps{Session: session.Session{Key: key}}
	known := false
	var former session.Checkpoint // the step before the page
	steps := make([]pagedStep, 0, page.Limit+1)
	next := 0 // the step of the next message
	err := s.query(ctx, readSteps, scanParts(
		func(row pgx.CollectableRow) error {
			known = true
			return row.Scan(sessionColumns.Destinations(nil, &found.Session)...)
		},
		scanRuns(runColumns, func(run *session.Run) { found.Current = run }),
		scanInto(&found.LastStep),
		scanInto(&former.Step, &former.RunID, &former.MessageCount),
		scanRuns(runListed, func(run *session.Run) { found.Runs = append(found.Runs, *run) }),
		func(row pgx.CollectableRow) error {
			steps = append(steps, pagedStep{})
			step := &steps[len(steps)-1]
			err := row.Scan(checkpointColumns.Destinations([]any{&step.size}, &step.Checkpoint)...)
			step.Follows, step.BeginsRun = former.Step, former.RunID != step.RunID
			step.from, step.to = former.MessageCount, step.MessageCount
			for i := range found.Runs {
				if found.Runs[i].RunID == step.RunID {
					step.from = max(step.from, found.Runs[i].StartMessageCount)
				}
			}
			former = step.Checkpoint
			return err
		},
		scanEach(func(to []any, m *pagedMessage) []any {
			return messageRead.Destinations(append(to, &m.size), &m.Message)
		}, func(m *pagedMessage) {
			for next < len(steps) && m.Ordinal >= steps[next].to {
				next++
			}
			if next == len(steps) || m.Step != steps[next].Step || m.RunID != steps[next].RunID || m.Ordinal < steps[next].from {
				return
			}
			step := &steps[next]
			step.size += m.size
			step.cut = step.cut || len(m.Body) < m.size
			step.Messages = append(step.Messages, m.Message)
		}),
	), arguments(key, page.After, page.RunID, page.Limit, page.MaxBytes)...)
	if err == nil && (!known || s.hides(found.Session.UserID)) {
		err = session.SessionNotFound(key)
	}
	if err != nil {
		return nil, wrap(ctx, err, "read the steps of session %q", key.SessionID)
	}
	total := 0
	found.Page = make([]session.StoredStep, 0, len(steps))
	for i, step := range steps {
		total += step.size
		if i == page.Limit || i > 0 && (total > page.MaxBytes || step.cut) {
			found.More = true
			break
		}
		found.Page = append(found.Page, step.StoredStep)
	}
	found.Runs = slices.DeleteFunc(found.Runs, func(run session.Run) bool {
		return !slices.ContainsFunc(found.Page, func(step session.StoredStep) bool { return step.RunID == run.RunID })
	})
	return found, nil
}
