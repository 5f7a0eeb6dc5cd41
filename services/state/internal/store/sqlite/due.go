package sqlite

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// UpdateDue implements store.Updater. It looks with a reader first, so that
// those who ask again and again for work that is not there do not stand in the
// way of the writer.
func (s *Store) UpdateDue(ctx context.Context, due store.Due, need session.Need, limit int, decide store.DecideDue) ([]store.Decided, error) {
	something := false
	err := s.read(ctx, func(c *connection) (err error) {
		something, err = anyDue(ctx, c, due)
		return err
	})
	if err != nil || !something {
		return nil, wrap(ctx, err, "find due runs")
	}
	var done []store.Decided
	var refused error
	err = s.write(ctx, func(ctx context.Context, c *connection) error {
		found, err := candidates(ctx, c, due, limit)
		if err != nil {
			return err
		}
		for _, one := range found {
			v, err := viewDue(ctx, c, one, need)
			if err != nil {
				return err
			}
			change, err := decide(v)
			if err != nil {
				refused = err
				return err
			}
			if change == nil {
				continue
			}
			if err := apply(ctx, c, one.key, v, change); err != nil {
				return fmt.Errorf("write session %q of tenant %q: %w", one.key.SessionID, one.key.Tenant, err)
			}
			done = append(done, store.Decided{View: v, Change: change})
		}
		return nil
	})
	if refused != nil {
		return nil, refused
	}
	if err != nil {
		return nil, wrap(ctx, err, "update due runs")
	}
	return done, nil
}

func viewDue(ctx context.Context, c *connection, one candidate, need session.Need) (*session.View, error) {
	need.RunID, need.Open = one.runID, true
	v, err := view(ctx, c, one.key, need)
	if err != nil {
		return nil, err
	}
	_, err = c.one(ctx, `SELECT NOT EXISTS (SELECT 1 FROM executors WHERE executor_id = ?)`, arguments(v.Run.ExecutorID), &v.HolderSilent)
	return v, err
}

type candidate struct {
	key       session.Key
	runID     string
	createdAt session.Millis
}

// dueQuery is a query for due runs. Its last argument is how many of them.
type dueQuery struct {
	query string
	args  []any
}

const dueRun = `SELECT r.tenant, r.session_id, r.run_id, r.created_at FROM runs r WHERE `

const (
	registered = ` AND EXISTS (SELECT 1 FROM executors e WHERE e.executor_id = ?)`
	nobodys    = ` AND NOT EXISTS (SELECT 1 FROM executors e WHERE e.executor_id = r.executor_id)`
	oldest     = ` ORDER BY r.created_at, r.tenant, r.session_id LIMIT ?`
)

// The queries for due runs. Those of one agent walk an index in its order, and
// so find the first runs at the same price however many there are.
const (
	queuedAtOnce = dueRun + `r.status = 'queued' AND r.agent_type = ? AND r.due_at = 0` + registered + oldest
	queuedLater  = dueRun + `r.status = 'queued' AND r.agent_type = ? AND r.due_at > 0 AND r.due_at <= ?` + registered + ` ORDER BY r.due_at LIMIT ?`
	toStop       = dueRun + `r.status = 'queued' AND r.stop <> '' AND r.agent_type = ? AND +r.due_at <= ?` + registered + oldest
	overdue      = dueRun + `r.status = 'queued' AND r.stop = '' AND r.deadline_at > 0 AND r.agent_type = ? AND r.deadline_at <= ? AND +r.due_at <= ?` +
		registered + ` ORDER BY r.deadline_at LIMIT ?`
	silent = dueRun + `r.executor_id <> '' AND r.status = 'running'` + nobodys + ` LIMIT ?`
	lost   = dueRun + `r.executor_id <> '' AND r.executor_id = ? AND r.status = 'running' AND r.claimed_at < ? AND r.run_id NOT IN (SELECT value FROM json_each(?)) LIMIT ?`
)

// unserved are the agents that no registered executor announces: none, as a rule.
const unserved = `SELECT a.agent_type FROM agents a WHERE NOT EXISTS (
	SELECT 1 FROM executors e WHERE a.agent_type IN (SELECT value FROM json_each(e.agents)))`

// dueQueries returns the queries that together find the due runs.
func dueQueries(ctx context.Context, c *connection, due store.Due) (queries []dueQuery, err error) {
	switch due := due.(type) {
	case store.Queued:
		for _, agent := range once(due.AgentTypes) {
			queries = append(queries, dueQuery{queuedAtOnce, arguments(agent, due.ExecutorID)}, dueQuery{queuedLater, arguments(agent, due.Now, due.ExecutorID)})
		}
	case store.Orphaned:
		err = c.each(ctx, unserved, nil, func(row scanner) error {
			var agent string
			err := row.Scan(&agent)
			queries = append(queries,
				dueQuery{toStop, arguments(agent, due.Now, due.ExecutorID)},
				dueQuery{overdue, arguments(agent, due.Now, due.Now, due.ExecutorID)})
			return err
		})
	case store.Silent:
		queries = append(queries, dueQuery{silent, nil})
	case store.Lost:
		queries = append(queries, dueQuery{lost, arguments(due.ExecutorID, due.ClaimedBefore, list(due.Held))})
	default:
		return nil, fmt.Errorf("unknown kind of due work %T", due)
	}
	return queries, err
}

// once returns every item once.
func once(items []string) []string { return slices.Compact(slices.Sorted(slices.Values(items))) }

// anyDue reports whether candidates would find something.
func anyDue(ctx context.Context, c *connection, due store.Due) (bool, error) {
	queries, err := dueQueries(ctx, c, due)
	if err != nil {
		return false, err
	}
	for _, one := range queries {
		if found, err := findRuns(ctx, c, one, 1); err != nil || len(found) > 0 {
			return len(found) > 0, err
		}
	}
	return false, nil
}

// waited is how many of an agent's runs whose wait is over are put in order of
// their age. Where there are more, those come first whose wait was over first:
// looking at all of them would make every claim as slow as they are many.
const waited = 128

// candidates returns at most limit runs that are due, the oldest first.
func candidates(ctx context.Context, c *connection, due store.Due, limit int) ([]candidate, error) {
	queries, err := dueQueries(ctx, c, due)
	if err != nil {
		return nil, err
	}
	var all []candidate
	for _, one := range queries {
		most := limit
		if one.query == queuedLater {
			most = max(limit, waited)
		}
		found, err := findRuns(ctx, c, one, most)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.createdAt, b.createdAt), cmp.Compare(a.key.Tenant, b.key.Tenant), cmp.Compare(a.key.SessionID, b.key.SessionID))
	})
	return all[:min(limit, len(all))], nil
}

func findRuns(ctx context.Context, c *connection, q dueQuery, most int) ([]candidate, error) {
	var found []candidate
	err := c.each(ctx, q.query, append(slices.Clip(q.args), most), func(row scanner) error {
		var one candidate
		err := row.Scan(&one.key.Tenant, &one.key.SessionID, &one.runID, &one.createdAt)
		found = append(found, one)
		return err
	})
	return found, err
}
