package postgres

import (
	"cmp"
	"context"
	"slices"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

var (
	upsertExecutor = prepared(`INSERT INTO executors (executor_id, heard_at, agents) VALUES ($1::text, $2::bigint, $3::text[])
		ON CONFLICT (executor_id) DO UPDATE SET heard_at = excluded.heard_at, agents = excluded.agents`)
	upsertAgents = prepared(`INSERT INTO agents (agent_type, description, on_busy, announced_at)
		SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[])
		ON CONFLICT (agent_type) DO UPDATE SET description = excluded.description, on_busy = excluded.on_busy, announced_at = excluded.announced_at`)
)

// Announce implements store.Registry.
func (s *Store) Announce(ctx context.Context, executorID string, agents []session.Agent, now session.Millis) error {
	// Executors that announce the same agents at once lock them in one order.
	sorted := slices.SortedStableFunc(slices.Values(agents), func(a, b session.Agent) int { return cmp.Compare(a.Type, b.Type) })
	var w rows
	var types []string
	for i, a := range sorted {
		if i+1 == len(sorted) || sorted[i+1].Type != a.Type { // the last description stands
			w.next().text(a.Type, a.Description, string(a.OnBusy)).number(int64(now))
			types = append(types, a.Type)
		}
	}
	err := s.pipe(ctx, func(p *pipeline) {
		p.exec(upsertExecutor, text(executorID), number(now), texts(types))
		if w.count > 0 {
			p.exec(upsertAgents, w.params()...)
		}
	})
	return wrap(ctx, err, "announce executor %q", executorID)
}

var (
	readStops = prepared(`SELECT r.executor_id, r.run_id, r.stop FROM runs r
		WHERE r.executor_id = ANY ($1::text[]) AND r.status = 'running' AND r.stop <> '' ORDER BY r.run_id COLLATE "C"`)
	beat       = prepared(`UPDATE executors SET heard_at = $1::bigint WHERE executor_id = $2::text`)
	forget     = prepared(`DELETE FROM executors WHERE heard_at < $1::bigint`)
	readHeard  = prepared(`SELECT executor_id, heard_at FROM executors`)
	listAgents = prepared(`SELECT agent_type, description, on_busy FROM agents ORDER BY agent_type COLLATE "C"`)
)

// Beat implements store.Registry.
func (s *Store) Beat(ctx context.Context, executorID string, now session.Millis) (bool, error) {
	var known int64
	err := s.pipe(ctx, func(p *pipeline) { p.count(beat, &known, number(now), text(executorID)) })
	return known > 0, wrap(ctx, err, "heartbeat of executor %q", executorID)
}

// Stops implements store.Registry.
func (s *Store) Stops(ctx context.Context, executorIDs ...string) (stopped []store.StoppedRun, err error) {
	err = s.ask(ctx, readStops, func(r *row) {
		one := store.StoppedRun{ExecutorID: r.text(), RunID: r.text()}
		r.json(store.In(&one.Stop))
		stopped = append(stopped, one)
	}, texts(executorIDs))
	return stopped, wrap(ctx, err, "read the stops of %d executors", len(executorIDs))
}

// Forget implements store.Registry.
func (s *Store) Forget(ctx context.Context, heardBefore session.Millis) (int, error) {
	var gone int64
	err := s.pipe(ctx, func(p *pipeline) { p.count(forget, &gone, number(heardBefore)) })
	return int(gone), wrap(ctx, err, "forget silent executors")
}

// Heard implements store.Registry.
func (s *Store) Heard(ctx context.Context) (map[string]session.Millis, error) {
	heard := map[string]session.Millis{}
	err := s.ask(ctx, readHeard, func(r *row) {
		id := r.text()
		heard[id] = session.Millis(r.number())
	})
	return heard, wrap(ctx, err, "read when executors were heard")
}

// forgetUnheard passes over the rows that somebody else has locked: a heartbeat,
// or another replica that comes to the same end. So nobody waits for it.
var forgetUnheard = prepared(`DELETE FROM executors WHERE executor_id IN (
	SELECT e.executor_id FROM executors e
	JOIN unnest($1::text[], $2::bigint[]) AS u (executor_id, heard_at) ON u.executor_id = e.executor_id AND u.heard_at = e.heard_at
	FOR UPDATE OF e SKIP LOCKED) RETURNING executor_id`)

// ForgetUnheard implements store.Registry.
func (s *Store) ForgetUnheard(ctx context.Context, since map[string]session.Millis) (gone []string, err error) {
	if len(since) == 0 {
		return nil, nil
	}
	var w rows
	for id, then := range since {
		w.next().text(id).number(int64(then))
	}
	err = s.pipe(ctx, func(p *pipeline) {
		gone = nil
		p.queue(forgetUnheard, w.params(), func(r *row) { gone = append(gone, r.text()) })
	})
	return gone, wrap(ctx, err, "forget %d executors", len(since))
}

// Agents implements store.Registry.
func (s *Store) Agents(ctx context.Context) (agents []session.Agent, err error) {
	err = s.ask(ctx, listAgents, func(r *row) {
		agents = append(agents, session.Agent{Type: r.text(), Description: r.text(), OnBusy: session.BusyPolicy(r.text())})
	})
	return agents, wrap(ctx, err, "read agents")
}
