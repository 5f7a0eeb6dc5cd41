package postgres

import (
	"encoding/json"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// spare is how many candidates a search for queued runs reads for each run that it
// returns, because other transactions may hold the locks of some.
const spare = `4`

// Claims with caps take turns, over all replicas: each counts what the one before it has begun. The
// lock is taken by a statement of its own, because a statement does not see what was committed after
// its beginning.
var lockCaps = prepared(`SELECT pg_advisory_xact_lock('runs'::regclass::oid::bigint)`)

// Conditions on caps, with the caps in $8. A missing cap is NULL.
const (
	capOfTenant = `NULLIF(COALESCE(($8::jsonb -> 'tenants' -> r.tenant ->> 'tenant')::bigint, ($8::jsonb ->> 'tenant')::bigint), 0)`
	capOfUser   = `CASE WHEN r.user_id <> '' THEN NULLIF(COALESCE(($8::jsonb -> 'tenants' -> r.tenant -> 'users' ->> r.user_id)::bigint,
		($8::jsonb -> 'tenants' -> r.tenant ->> 'user')::bigint, ($8::jsonb ->> 'user')::bigint), 0) END`

	// How many more runs of the tenant and of the user of r may begin; NULL for any number.
	roomOfTenant = `CASE WHEN ` + capOfTenant + ` IS NOT NULL THEN ` + capOfTenant + ` - (SELECT count(*) FROM runs b
		WHERE b.status = 'running' AND b.tenant = r.tenant) END`
	roomOfUser = `CASE WHEN ` + capOfUser + ` IS NOT NULL THEN ` + capOfUser + ` - (SELECT count(*) FROM runs b
		WHERE b.status = 'running' AND b.tenant = r.tenant AND b.user_id = r.user_id) END`

	// The users of a tenant r at their cap.
	fullUsers = `ARRAY(SELECT r.user_id FROM runs r WHERE r.status = 'running' AND r.tenant = t.tenant
		GROUP BY r.tenant, r.user_id HAVING count(*) >= ` + capOfUser + `)`
)

// tenantsWhere selects the tenants with queued runs of an agent, in their order, by one
// index probe each, and at most $3.
func tenantsWhere(condition, room string) string {
	next := `SELECT r.tenant FROM runs r WHERE r.status = 'queued' AND r.due_at = 0 AND r.agent_type = a.agent_type AND ` + condition
	const first = ` ORDER BY r.tenant LIMIT 1`
	return `(WITH RECURSIVE ring AS ((` + next + first + `)
		UNION ALL SELECT (` + next + ` AND r.tenant > ring.tenant` + first + `) FROM ring WHERE ring.tenant IS NOT NULL)
		SELECT r.tenant FROM ring r WHERE r.tenant IS NOT NULL` + room + ` LIMIT $3::bigint)`
}

// candidates selects queued runs of an agent, those of $5 and of the tenants after it first. room is a
// condition on a tenant r; ofTenant and delayed are conditions on the runs r of a tenant, and on the
// delayed runs.
func candidates(room, ofTenant, delayed string) string {
	const columns = `r.tenant, r.session_id, r.run_id, r.created_at, r.priority, r.user_id, r.agent_type`
	return `SELECT o.* FROM (SELECT r.tenant FROM (SELECT $5::text AS tenant) r WHERE true` + room + `
			UNION ALL ` + tenantsWhere("r.tenant > $5::text", room) + ` UNION ALL ` + tenantsWhere("r.tenant < $5::text", room) + `) t
		CROSS JOIN LATERAL (SELECT ` + columns + ` FROM runs r
			WHERE r.status = 'queued' AND r.due_at = 0 AND r.agent_type = a.agent_type AND r.tenant = t.tenant` + ofTenant + `
			ORDER BY r.priority DESC, r.created_at LIMIT ` + spare + ` * $3::bigint) o
		UNION ALL
		(SELECT ` + columns + ` FROM runs r
			WHERE r.status = 'queued' AND r.due_at > 0 AND r.due_at <= $4::bigint AND r.agent_type = a.agent_type` + delayed + `
			ORDER BY r.due_at, r.created_at LIMIT ` + spare + ` * $3::bigint)`
}

// queuedOf selects the candidates of all agents.
func queuedOf(candidates string) string {
	return `SELECT q.* FROM (SELECT DISTINCT unnest($1::text[])) AS a (agent_type)
		CROSS JOIN LATERAL (` + candidates + `) q
		WHERE EXISTS (SELECT 1 FROM executors e WHERE e.executor_id = $2::text)`
}

// inTurns locks the sessions of the first runs of those selected, in the turns of their tenants, and says of which runs the
// agent is stored. It skips locked sessions. What is left of a turn comes first.
func inTurns(selected string) *statement {
	return prepared(`SELECT c.tenant, c.session_id, c.run_id, c.agent_type = '` + session.StoredAgents + `' FROM (
			SELECT q.*, CASE WHEN q.place < 0 THEN -1 ELSE q.place / COALESCE(($6::jsonb ->> q.tenant)::bigint, 1) END AS turn FROM (
				SELECT q.*, row_number() OVER (PARTITION BY q.tenant ORDER BY q.priority DESC, q.created_at) - 1 - CASE q.tenant WHEN $5::text
					THEN $7::bigint ELSE 0 END AS place
				FROM (` + selected + `) q) q
			ORDER BY turn, q.tenant <= $5::text, q.tenant, q.priority DESC, q.created_at) c
		CROSS JOIN LATERAL (SELECT 1 FROM sessions WHERE tenant = c.tenant AND session_id = c.session_id FOR UPDATE SKIP LOCKED) s
		LIMIT $3::bigint`)
}

// withinCaps selects the candidates r that may begin together.
func withinCaps(candidates string) string {
	const first = ` ORDER BY r.priority DESC, r.created_at)`
	return `SELECT r.tenant, r.session_id, r.run_id, r.created_at, r.priority, r.agent_type FROM (
			SELECT r.*, row_number() OVER (PARTITION BY r.tenant` + first + ` AS of_tenant FROM (
				SELECT r.*, row_number() OVER (PARTITION BY r.tenant, r.user_id` + first + ` AS of_user FROM (` + candidates + `) r) r
			WHERE COALESCE(r.of_user <= ` + roomOfUser + `, true)) r
		WHERE COALESCE(r.of_tenant <= ` + roomOfTenant + `, true)`
}

var (
	findQueued       = inTurns(queuedOf(candidates("", "", "")))
	findQueuedCapped = inTurns(withinCaps(queuedOf(candidates(
		` AND COALESCE(`+roomOfTenant+` > 0, true)`,
		` AND r.user_id <> ALL (`+fullUsers+`)`,
		` AND COALESCE(`+roomOfTenant+` > 0, true) AND COALESCE(`+roomOfUser+` > 0, true)`))))
)

func queuedStatement(due store.Queued, limit int) (*statement, []any, error) {
	weights, err := json.Marshal(due.Weights)
	args := []any{due.AgentTypes, due.ExecutorID, limit, due.Now, due.After, string(weights), due.Left}
	if err != nil || due.Caps == nil {
		return findQueued, args, err
	}
	caps, err := json.Marshal(due.Caps)
	return findQueuedCapped, append(args, string(caps)), err
}
