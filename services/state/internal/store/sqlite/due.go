package sqlite

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// UpdateDue implements store.Updater. It searches with a reader first, so that
// frequent searches without a result do not block the writer.
func (s *Store) UpdateDue(
	ctx context.Context, due store.Due, need session.Need, limit int, decide store.DecideDue,
) ([]store.Decided, error) {
	something := false
	err := s.read(ctx, func(c *connection) (err error) {
		something, err = isAnyDue(ctx, c, due)
		return err
	})
	if err != nil || !something {
		return nil, wrap(ctx, err, "find due runs")
	}
	var done []store.Decided
	var refused error
	err = s.write(ctx, func(ctx context.Context, c *connection) error {
		found, err := findDue(ctx, c, due, limit)
		if err != nil {
			return err
		}
		for _, one := range found {
			v, err := loadDue(ctx, c, one, need)
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
			if err := s.apply(ctx, c, one.key, v, change); err != nil {
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

func loadDue(ctx context.Context, c *connection, one candidate, need session.Need) (*session.View, error) {
	need.RunID, need.Live = one.runID, true
	need.Definition = one.agentType == session.StoredAgents
	v, err := loadView(ctx, c, one.key, need)
	if err != nil {
		return nil, err
	}
	_, err = c.queryRow(ctx, `SELECT NOT EXISTS (SELECT 1 FROM executors WHERE executor_id = ?)`, arguments(v.Run.ExecutorID),
		&v.OwnerUnregistered)
	return v, err
}

type candidate struct {
	key       session.Key
	runID     string
	createdAt session.Millis
	priority  int32
	userID    string
	agentType string
	turn      int64 // of its tenant, of a queued run
}

// dueQuery is a query for due runs, and its arguments but for the last: the limit.
type dueQuery struct {
	query string
	args  []any
}

const selectDue = `SELECT r.tenant, r.session_id, r.run_id, r.created_at, r.priority, r.user_id, r.agent_type FROM runs r WHERE `

const (
	registered   = ` AND EXISTS (SELECT 1 FROM executors e WHERE e.executor_id = ?)`
	unregistered = ` AND NOT EXISTS (SELECT 1 FROM executors e WHERE e.executor_id = r.executor_id)`
	longQueued   = ` AND r.created_at <= ? AND r.claimed_at <= ?`
	unserved     = ` AND NOT EXISTS (SELECT 1 FROM executors e WHERE ? IN (SELECT value FROM json_each(e.agents)))`
	oldestFirst  = ` ORDER BY r.created_at, r.tenant, r.session_id LIMIT 0 + ?`
)

// The queries for due runs. The queries for an agent read an index in its order, so the
// costs do not depend on the number of runs.
const (
	queuedAny = selectDue + `r.status = 'queued' AND r.due_at = 0 AND r.agent_type = ?` + registered + ` LIMIT 0 + ?`
	queuedNow = selectDue + `r.status = 'queued' AND r.due_at = 0 AND r.agent_type = ? AND r.tenant = ?` + registered + `
		ORDER BY r.priority DESC, r.created_at LIMIT 0 + ?`
	queuedDelayed = selectDue + `r.status = 'queued' AND r.agent_type = ? AND r.due_at > 0 AND r.due_at <= ?` + registered + `
		ORDER BY r.due_at LIMIT 0 + ?`
	queuedStopped = selectDue + `r.status = 'queued' AND r.stop <> '' AND r.agent_type = ? AND +r.due_at <= ?` + registered + oldestFirst
	queuedOverdue = selectDue + `r.status = 'queued' AND r.stop = '' AND r.deadline_at > 0 AND r.agent_type = ? AND r.deadline_at <= ?
		AND +r.due_at <= ?` +
		registered + ` ORDER BY r.deadline_at LIMIT 0 + ?`
	unservedNow = selectDue + `r.status = 'queued' AND r.due_at = 0 AND r.agent_type = ?` + longQueued + unserved + registered + `
		LIMIT 0 + ?`
	unservedDelayed = selectDue + `r.status = 'queued' AND r.agent_type = ? AND r.due_at > 0
		AND r.due_at <= ?` + longQueued + unserved + registered + ` LIMIT 0 + ?`
	runningUnregistered = selectDue + `r.executor_id <> '' AND r.status = 'running'` + unregistered + ` LIMIT 0 + ?`
	runningLost         = selectDue + `r.executor_id <> '' AND r.executor_id = ? AND r.status = 'running' AND r.claimed_at < ?
		AND r.run_id NOT IN (SELECT value FROM json_each(?)) LIMIT 0 + ?`
)

// nextTenant selects the next tenant with queued runs of an agent.
const nextTenant = `SELECT r.tenant FROM runs r
	WHERE r.status = 'queued' AND r.due_at = 0 AND r.agent_type = ? AND r.tenant > ? ORDER BY r.tenant LIMIT 1`

// unservedAgents selects the agents that no registered executor announces, usually none.
const unservedAgents = `SELECT a.agent_type, a.announced_at FROM agents a WHERE NOT EXISTS (
	SELECT 1 FROM executors e WHERE a.agent_type IN (SELECT value FROM json_each(e.agents)))`

// dueQueries returns the queries whose results are the due runs.
func dueQueries(ctx context.Context, c *connection, due store.Due) (queries []dueQuery, err error) {
	switch due := due.(type) {
	case store.Queued:
		for _, agent := range distinct(due.AgentTypes) {
			queries = append(queries, dueQuery{queuedAny, arguments(agent, due.ExecutorID)},
				dueQuery{queuedDelayed, arguments(agent, due.Now, due.ExecutorID)})
		}
	case store.Orphaned:
		err = c.forEach(ctx, unservedAgents, nil, func(row scanner) error {
			var agent string
			var announcedAt session.Millis
			err := row.Scan(&agent, &announcedAt)
			queries = append(queries,
				dueQuery{queuedStopped, arguments(agent, due.Now, due.ExecutorID)},
				dueQuery{queuedOverdue, arguments(agent, due.Now, due.Now, due.ExecutorID)})
			return err
		})
	case store.Unserved:
		for _, agent := range distinct(due.AgentTypes) {
			queries = append(queries,
				dueQuery{unservedNow, arguments(agent, due.QueuedBefore, due.QueuedBefore, agent, due.ExecutorID)},
				dueQuery{unservedDelayed, arguments(agent, due.Now, due.QueuedBefore, due.QueuedBefore, agent, due.ExecutorID)})
		}
	case store.OwnerUnregistered:
		queries = append(queries, dueQuery{runningUnregistered, nil})
	case store.LostClaims:
		queries = append(queries, dueQuery{runningLost, arguments(due.ExecutorID, due.ClaimedBefore, jsonList(due.HeldRunIDs))})
	default:
		return nil, fmt.Errorf("unknown kind of due work %T", due)
	}
	return queries, err
}

// distinct returns the items sorted and without duplicates.
func distinct(items []string) []string { return slices.Compact(slices.Sorted(slices.Values(items))) }

// isAnyDue reports whether findDue would find a run.
func isAnyDue(ctx context.Context, c *connection, due store.Due) (bool, error) {
	if queued, ok := due.(store.Queued); ok && queued.Caps != nil {
		found, err := findQueued(ctx, c, queued, 1)
		return len(found) > 0, err
	}
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

// maxDelayed is how many delayed runs of an agent are sorted by age once they are due.
// When more are due, the runs with the earliest due times come first, since sorting all
// of them would slow every claim down.
const maxDelayed = 128

// findDue returns at most limit due runs: those of Queued by turns of the tenants, others
// the oldest first.
func findDue(ctx context.Context, c *connection, due store.Due, limit int) ([]candidate, error) {
	if due, ok := due.(store.Queued); ok {
		return findQueued(ctx, c, due, limit)
	}
	queries, err := dueQueries(ctx, c, due)
	if err != nil {
		return nil, err
	}
	var all []candidate
	for _, one := range queries {
		found, err := findRuns(ctx, c, one, limit)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	slices.SortFunc(all, olderFirst)
	return all[:min(limit, len(all))], nil
}

func olderFirst(a, b candidate) int {
	return cmp.Or(cmp.Compare(a.createdAt, b.createdAt), cmp.Compare(a.key.Tenant, b.key.Tenant),
		cmp.Compare(a.key.SessionID, b.key.SessionID))
}

// findRuns returns the first runs of a query.
func findRuns(ctx context.Context, c *connection, q dueQuery, most int) ([]candidate, error) {
	return keepRuns(ctx, c, q, most, most, func(candidate) bool { return true })
}

// keepRuns returns the first runs of a query that keep accepts, at most most. It examines at most
// examined runs; -1 for all.
func keepRuns(
	ctx context.Context, c *connection, q dueQuery, examined, most int, keep func(candidate) bool,
) (found []candidate, err error) {
	err = c.forEachUntil(ctx, q.query, append(slices.Clip(q.args), examined), func(row scanner) (bool, error) {
		var one candidate
		err := row.Scan(&one.key.Tenant, &one.key.SessionID, &one.runID, &one.createdAt, &one.priority, &one.userID, &one.agentType)
		if err == nil && keep(one) {
			found = append(found, one)
		}
		return len(found) < most, err
	})
	return found, err
}
