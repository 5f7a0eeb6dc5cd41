package postgres

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/table"
)

var (
	upsertExecutor = prepared(
		`INSERT INTO executors (executor_id, heard_at, agents, problems) VALUES ($1::text, $2::bigint, $3::text[], $4::text)
		ON CONFLICT (executor_id) DO UPDATE SET heard_at = excluded.heard_at, agents = excluded.agents, problems = excluded.problems`,
	)
	upsertAgents = prepared(`INSERT INTO agents (agent_type, description, on_busy, state_schema, remote, rules, announced_at)
		SELECT *, $7::bigint FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::boolean[], $6::text[])
		ON CONFLICT (agent_type) DO UPDATE SET description = excluded.description, on_busy = excluded.on_busy,
			state_schema = excluded.state_schema, remote = excluded.remote, rules = excluded.rules,
			announced_at = excluded.announced_at`)
)

// Announce implements store.Registry.
func (s registry) Announce(
	ctx context.Context,
	executorID string,
	agents []session.Agent,
	now session.Millis,
	problems ...session.Problem,
) error {
	// Concurrent announcements of the same agents lock them in one order.
	sorted := slices.SortedStableFunc(slices.Values(agents), func(a, b session.Agent) int { return cmp.Compare(a.Type, b.Type) })
	types, descriptions, policies, schemas := []string{}, []string{}, []string{}, []string{} // empty arrays, not NULL
	remote, rules := []bool{}, []table.JSON[*session.AgentRules]{}
	for i, a := range sorted {
		if i+1 == len(sorted) || sorted[i+1].Type != a.Type { // the last description wins
			types, descriptions, policies = append(types, a.Type), append(descriptions, a.Description), append(policies, string(a.OnBusy))
			schemas, remote, rules = append(schemas, a.StateSchema), append(remote, a.Remote), append(rules, table.AsJSON(&sorted[i].Rules))
		}
	}
	encoded, err := table.EncodeProblems(problems)
	if err != nil {
		return err
	}
	err = s.execute(ctx, func(p *pipeline) {
		p.exec(upsertExecutor, executorID, int64(now), types, encoded)
		p.exec(upsertAgents, types, descriptions, policies, schemas, remote, rules, int64(now))
	})
	return wrap(ctx, err, "announce executor %q", executorID)
}

var (
	readStops = prepared(`SELECT r.executor_id, r.run_id, r.stop FROM runs r
		WHERE r.executor_id = ANY ($1::text[]) AND r.status = 'running' AND r.stop <> '' ORDER BY r.run_id COLLATE "C"`)
	updateHeartbeat = prepared(`UPDATE executors SET heard_at = $1::bigint WHERE executor_id = $2::text`)
	deleteSilent    = prepared(`DELETE FROM executors WHERE heard_at < $1::bigint`)
	readLastSeen    = prepared(`SELECT executor_id, heard_at FROM executors`)
	listAgents      = prepared(`SELECT ` + agentColumns + ` FROM agents a WHERE agent_type <> $1::text ORDER BY agent_type COLLATE "C"`)
)

// Heartbeat implements store.Registry.
func (s registry) Heartbeat(ctx context.Context, executorID string, now session.Millis) (bool, error) {
	var known int64
	err := s.execute(ctx, func(p *pipeline) { p.count(updateHeartbeat, &known, int64(now), executorID) })
	return known > 0, wrap(ctx, err, "heartbeat of executor %q", executorID)
}

// Stops implements store.Registry.
func (s registry) Stops(ctx context.Context, executorIDs ...string) (stopped []store.StoppedRun, err error) {
	err = s.query(ctx, readStops, scanEach(func(to []any, r *store.StoppedRun) []any {
		return append(to, &r.ExecutorID, &r.RunID, table.AsJSON(&r.Stop))
	}, func(r *store.StoppedRun) { stopped = append(stopped, *r) }), notNil(executorIDs))
	return stopped, wrap(ctx, err, "read the stops of %d executors", len(executorIDs))
}

// UnregisterSilent implements store.Registry.
func (s registry) UnregisterSilent(ctx context.Context, seenBefore session.Millis) (int, error) {
	var gone int64
	err := s.execute(ctx, func(p *pipeline) { p.count(deleteSilent, &gone, int64(seenBefore)) })
	return int(gone), wrap(ctx, err, "unregister silent executors")
}

// LastSeen implements store.Registry.
func (s registry) LastSeen(ctx context.Context) (map[string]session.Millis, error) {
	heard := map[string]session.Millis{}
	err := s.query(ctx, readLastSeen, func(row pgx.CollectableRow) error {
		var id string
		var at int64
		err := row.Scan(&id, &at)
		heard[id] = session.Millis(at)
		return err
	})
	return heard, wrap(ctx, err, "read when executors were last seen")
}

// deleteUnseen skips rows locked by a heartbeat or by another replica.
var deleteUnseen = prepared(`DELETE FROM executors WHERE executor_id IN (
	SELECT e.executor_id FROM executors e
	JOIN unnest($1::text[], $2::bigint[]) AS u (executor_id, heard_at) ON u.executor_id = e.executor_id AND u.heard_at = e.heard_at
	FOR UPDATE OF e SKIP LOCKED) RETURNING executor_id`)

// UnregisterUnseen implements store.Registry.
func (s registry) UnregisterUnseen(ctx context.Context, since map[string]session.Millis) (gone []string, err error) {
	if len(since) == 0 {
		return nil, nil
	}
	var ids []string
	var times []int64
	for id, then := range since {
		ids, times = append(ids, id), append(times, int64(then))
	}
	err = s.execute(ctx, func(p *pipeline) {
		gone = nil
		p.queue(deleteUnseen, []any{ids, times}, scanEach(single[string], func(id *string) { gone = append(gone, *id) }))
	})
	return gone, wrap(ctx, err, "unregister %d executors", len(since))
}

// Agents implements store.Registry.
func (s registry) Agents(ctx context.Context) (agents []session.Agent, err error) {
	err = s.query(ctx, listAgents, scanEach(agentDestinations, func(a *session.Agent) { agents = append(agents, *a) }), session.StoredAgents)
	return agents, wrap(ctx, err, "read agents")
}

var listProblems = prepared(`SELECT executor_id, problems FROM executors WHERE problems <> ''`)

// Problems implements store.Registry.
func (s registry) Problems(ctx context.Context) (map[string][]session.Problem, error) {
	problems := map[string][]session.Problem{}
	err := s.query(ctx, listProblems, func(row pgx.CollectableRow) error {
		var id, encoded string
		if err := row.Scan(&id, &encoded); err != nil {
			return err
		}
		return table.DecodeProblems(encoded, problems, id)
	})
	return problems, wrap(ctx, err, "read the problems of executors")
}

var countExecutors = prepared(`SELECT u.agent_type, count(*) FROM executors e, unnest(e.agents) AS u (agent_type) GROUP BY u.agent_type`)

// Executors implements store.Registry.
func (s registry) Executors(ctx context.Context) (map[string]int64, error) {
	executors := map[string]int64{}
	err := s.query(ctx, countExecutors, func(row pgx.CollectableRow) error {
		var agentType string
		var n int64
		err := row.Scan(&agentType, &n)
		executors[agentType] = n
		return err
	})
	return executors, wrap(ctx, err, "count the executors of agents")
}

var listUnserved = prepared(`SELECT a.agent_type, a.announced_at FROM agents a
	WHERE NOT EXISTS (SELECT 1 FROM executors e WHERE a.agent_type = ANY (e.agents) OFFSET 0)`)

// Unserved implements store.Registry.
func (s registry) Unserved(ctx context.Context) (map[string]session.Millis, error) {
	unserved := map[string]session.Millis{}
	err := s.query(ctx, listUnserved, func(row pgx.CollectableRow) error {
		var agentType string
		var at int64
		err := row.Scan(&agentType, &at)
		unserved[agentType] = session.Millis(at)
		return err
	})
	return unserved, wrap(ctx, err, "read agents without executors")
}

const agentColumns = `a.agent_type, a.description, a.on_busy, a.state_schema, a.remote, a.rules`

func agentDestinations(to []any, a *session.Agent) []any {
	return append(to, &a.Type, &a.Description, (*string)(&a.OnBusy), &a.StateSchema, &a.Remote, table.AsJSON(&a.Rules))
}

// foundAgent selects the agent a of a type: an agent of the tenant if it has stored one and no registered executor
// announces the type, or else what executors have announced.
func foundAgent(agentType string) string {
	const columns = `agent_type, description, on_busy, state_schema, remote, rules, `
	return ` CROSS JOIN LATERAL (SELECT * FROM (
		SELECT ` + columns + `definition, 1 AS place FROM stored_agents s WHERE tenant = v.tenant AND s.agent_type = ` + agentType + `
			AND NOT EXISTS (SELECT 1 FROM executors e WHERE s.agent_type = ANY (e.agents) OFFSET 0)
		UNION ALL
		SELECT ` + columns + `'', 2 FROM agents WHERE agent_type = ` + agentType + `) known ORDER BY place LIMIT 1) a`
}

const foundAgentColumns = agentColumns + `, a.definition`

func foundAgentDestinations(to []any, a *session.Agent) []any {
	return append(agentDestinations(to, a), &a.Definition)
}
