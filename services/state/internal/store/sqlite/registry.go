package sqlite

import (
	"context"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/table"
)

// Announce implements store.Registry.
func (s registry) Announce(
	ctx context.Context, executorID string, agents []session.Agent, now session.Millis, problems ...session.Problem,
) error {
	types := make([]string, len(agents))
	for i, a := range agents {
		types[i] = a.Type
	}
	encoded, err := table.EncodeProblems(problems)
	if err != nil {
		return err
	}
	err = s.write(ctx, func(ctx context.Context, c *connection) error {
		_, err := c.exec(ctx, `INSERT INTO executors (executor_id, heard_at, agents, problems) VALUES (?, ?, ?, ?)
			ON CONFLICT (executor_id) DO UPDATE SET heard_at = excluded.heard_at, agents = excluded.agents, problems = excluded.problems`,
			executorID, now, jsonList(types), encoded)
		if err != nil {
			return err
		}
		for _, a := range agents {
			_, err := c.exec(ctx, `INSERT INTO agents (agent_type, description, on_busy, state_schema, remote, rules, announced_at)
				VALUES (?, ?, ?, ?, ?, ?, ?)
				ON CONFLICT (agent_type) DO UPDATE SET description = excluded.description, on_busy = excluded.on_busy,
					state_schema = excluded.state_schema, remote = excluded.remote, rules = excluded.rules,
					announced_at = excluded.announced_at`,
				a.Type, a.Description, a.OnBusy, a.StateSchema, a.Remote, table.AsJSON(&a.Rules), now)
			if err != nil {
				return err
			}
		}
		return nil
	})
	return wrap(ctx, err, "announce executor %q", executorID)
}

// Problems implements store.Registry.
func (s registry) Problems(ctx context.Context) (map[string][]session.Problem, error) {
	problems := map[string][]session.Problem{}
	err := s.read(ctx, func(c *connection) error {
		return c.forEach(ctx, `SELECT executor_id, problems FROM executors WHERE problems <> ''`, nil, func(row scanner) error {
			var id, encoded string
			if err := row.Scan(&id, &encoded); err != nil {
				return err
			}
			return table.DecodeProblems(encoded, problems, id)
		})
	})
	return problems, wrap(ctx, err, "read the problems of executors")
}

// Heartbeat implements store.Registry.
func (s registry) Heartbeat(ctx context.Context, executorID string, now session.Millis) (known bool, err error) {
	err = s.write(ctx, func(ctx context.Context, c *connection) error {
		n, err := c.exec(ctx, `UPDATE executors SET heard_at = ? WHERE executor_id = ?`, now, executorID)
		known = n > 0
		return err
	})
	return known && err == nil, wrap(ctx, err, "heartbeat of executor %q", executorID)
}

// selectStops names its index, which is nearly empty. Without statistics, the planner
// might choose the index of all runs of an executor.
const selectStops = `SELECT r.executor_id, r.run_id, r.stop FROM runs r INDEXED BY runs_stopped
	WHERE r.executor_id IN (SELECT value FROM json_each(?)) AND r.status = 'running' AND r.stop <> '' ORDER BY r.run_id`

// Stops implements store.Registry.
func (s registry) Stops(ctx context.Context, executorIDs ...string) (stopped []store.StoppedRun, err error) {
	err = s.read(ctx, func(c *connection) error {
		return c.forEach(ctx, selectStops, arguments(jsonList(executorIDs)), func(row scanner) error {
			var one store.StoppedRun
			err := row.Scan(&one.ExecutorID, &one.RunID, table.AsJSON(&one.Stop))
			stopped = append(stopped, one)
			return err
		})
	})
	return stopped, wrap(ctx, err, "read stops of %d executors", len(executorIDs))
}

// UnregisterSilent implements store.Registry.
func (s registry) UnregisterSilent(ctx context.Context, seenBefore session.Millis) (int, error) {
	var n int64
	err := s.write(ctx, func(ctx context.Context, c *connection) (err error) {
		n, err = c.exec(ctx, `DELETE FROM executors WHERE heard_at < ?`, seenBefore)
		return err
	})
	return int(n), wrap(ctx, err, "unregister silent executors")
}

// LastSeen implements store.Registry.
func (s registry) LastSeen(ctx context.Context) (map[string]session.Millis, error) {
	heard := map[string]session.Millis{}
	err := s.read(ctx, func(c *connection) error {
		return c.forEach(ctx, `SELECT executor_id, heard_at FROM executors`, nil, func(row scanner) error {
			var id string
			var at session.Millis
			err := row.Scan(&id, &at)
			heard[id] = at
			return err
		})
	})
	return heard, wrap(ctx, err, "read when executors were last seen")
}

// UnregisterUnseen implements store.Registry.
func (s registry) UnregisterUnseen(ctx context.Context, since map[string]session.Millis) (gone []string, err error) {
	err = s.write(ctx, func(ctx context.Context, c *connection) error {
		gone = nil
		for id, then := range since {
			n, err := c.exec(ctx, `DELETE FROM executors WHERE executor_id = ? AND heard_at = ?`, id, then)
			if err != nil {
				return err
			}
			if n > 0 {
				gone = append(gone, id)
			}
		}
		return nil
	})
	return gone, wrap(ctx, err, "unregister %d executors", len(since))
}

// Agents implements store.Registry.
func (s registry) Agents(ctx context.Context) (agents []session.Agent, err error) {
	err = s.read(ctx, func(c *connection) error {
		query := `SELECT ` + agentFields + ` FROM agents WHERE agent_type <> ? ORDER BY agent_type`
		return c.forEach(ctx, query, arguments(session.StoredAgents), func(row scanner) error {
			var a session.Agent
			err := row.Scan(agentDestinations(&a)...)
			agents = append(agents, a)
			return err
		})
	})
	return agents, wrap(ctx, err, "read agents")
}

// Executors implements store.Registry.
func (s registry) Executors(ctx context.Context) (map[string]int64, error) {
	executors := map[string]int64{}
	err := s.read(ctx, func(c *connection) error {
		return c.forEach(ctx, `SELECT a.value, count(*) FROM executors e, json_each(e.agents) a GROUP BY a.value`, nil, func(row scanner) error {
			var agentType string
			var n int64
			err := row.Scan(&agentType, &n)
			executors[agentType] = n
			return err
		})
	})
	return executors, wrap(ctx, err, "count the executors of agents")
}

// Unserved implements store.Registry.
func (s registry) Unserved(ctx context.Context) (map[string]session.Millis, error) {
	unserved := map[string]session.Millis{}
	err := s.read(ctx, func(c *connection) error {
		return c.forEach(ctx, unservedAgents, nil, func(row scanner) error {
			var agentType string
			var at session.Millis
			err := row.Scan(&agentType, &at)
			unserved[agentType] = at
			return err
		})
	})
	return unserved, wrap(ctx, err, "read agents without executors")
}

const agentFields = `agent_type, description, on_busy, state_schema, remote, rules`

func agentDestinations(a *session.Agent) []any {
	return []any{&a.Type, &a.Description, &a.OnBusy, &a.StateSchema, &a.Remote, table.AsJSON(&a.Rules)}
}

// readAgent returns an agent of the tenant if it has stored one and no registered executor announces the type, or else
// what executors have announced; nil for an unknown agent.
func readAgent(ctx context.Context, c *connection, tenant, agentType string) (*session.Agent, error) {
	a := &session.Agent{}
	stored, err := c.queryRow(ctx, `SELECT `+agentFields+`, definition FROM stored_agents s WHERE tenant = ? AND agent_type = ?
		AND NOT EXISTS (SELECT 1 FROM executors e WHERE s.agent_type IN (SELECT value FROM json_each(e.agents)))`,
		arguments(tenant, agentType), append(agentDestinations(a), &a.Definition)...)
	if err != nil || stored {
		return a, err
	}
	found, err := c.queryRow(ctx, `SELECT `+agentFields+` FROM agents WHERE agent_type = ?`, arguments(agentType), agentDestinations(a)...)
	if err != nil || !found {
		return nil, err
	}
	return a, nil
}
