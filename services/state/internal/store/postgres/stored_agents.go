package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/table"
)

var (
	storedAgentColumns = table.StoredAgents.All()

	// One request at a time changes the agents of a tenant, so that their number stays within the limit.
	lockStoredAgents = prepared(`SELECT pg_advisory_xact_lock('stored_agents'::regclass::oid::integer, hashtext($1::text))`)
	readStoredAgent  = prepared(`SELECT ` + storedAgentColumns.Select("a") + ` FROM stored_agents a
		WHERE a.tenant = $1::text AND a.agent_type = $2::text`)
	listStored = prepared(`SELECT ` + storedAgentColumns.Select("a") + ` FROM stored_agents a
		WHERE a.tenant = $1::text ORDER BY a.agent_type COLLATE "C"`)
	countStoredAgents = prepared(`SELECT count(*), EXISTS (SELECT 1 FROM executors e WHERE $2::text = ANY (e.agents))
		FROM stored_agents WHERE tenant = $1::text`)
	insertDefinition = prepared(`INSERT INTO definitions (tenant, hash, definition, stored_at)
		VALUES ($1::text, $2::text, $3::text, $4::bigint) ON CONFLICT DO NOTHING`)
	upsertStoredAgent = prepared(func() string {
		in := columnsOf(&table.StoredAgents, storedAgentColumns)
		return insertText(in, table.StoredAgents.Name, `(SELECT `+in.placeholders(1, "")+`) AS v`) +
			` ON CONFLICT (tenant, agent_type) DO UPDATE SET ` + excluded(&table.StoredAgents)
	}())
	// The row of all stored agents is there from the first one on, whether an executor serves them or not.
	insertStoredType = prepared(`INSERT INTO agents (agent_type, description, on_busy, state_schema, remote, announced_at)
		VALUES ($1::text, '', '', '', false, $2::bigint) ON CONFLICT DO NOTHING`)
	deleteUnusedDefinitions = prepared(`DELETE FROM definitions d WHERE d.tenant = $1::text
		AND NOT EXISTS (SELECT 1 FROM stored_agents a WHERE a.tenant = d.tenant AND a.definition = d.hash)
		AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.status = 'running' AND r.tenant = d.tenant AND r.definition = d.hash)`)
	deleteStoredAgent = prepared(`DELETE FROM stored_agents WHERE tenant = $1::text AND agent_type = $2::text`)
	readDefinition    = prepared(`SELECT definition FROM definitions WHERE tenant = $1::text AND hash = $2::text`)
	eraseStoredAgents = prepared(`DELETE FROM stored_agents WHERE tenant = $1::text`)
	eraseDefinitions  = prepared(`DELETE FROM definitions WHERE tenant = $1::text`)
)

// errUnchanged ends a change that has nothing to write.
var errUnchanged = errors.New("nothing to change")

// StoreAgent implements store.StoredAgents.
func (s storedAgents) StoreAgent(
	ctx context.Context, tenant string, a session.StoredAgent, expected *string, most int, event session.AuditEvent,
) (former *session.StoredAgent, err error) {
	err = s.change(ctx, tenant, a.Type, event, func(found *session.StoredAgent, announced bool, stored int, p *pipeline) error {
		former = found
		if err := store.CheckStoring(a.Type, found, announced, expected, stored, most); err != nil {
			return err
		}
		if found != nil && found.Definition == a.Definition {
			return errUnchanged
		}
		values := rows{values: storedAgentColumns.Fields([]any{tenant}, &a), count: 1}
		p.exec(insertDefinition, tenant, a.Definition, a.Text, int64(a.At))
		p.queue(upsertStoredAgent, p.appendArguments(nil, &values, true), nil)
		p.exec(insertStoredType, session.StoredAgents, int64(a.At))
		return nil
	})
	return former, wrap(ctx, err, "store the agent %q of tenant %q", a.Type, tenant)
}

// DeleteAgent implements store.StoredAgents.
func (s storedAgents) DeleteAgent(ctx context.Context, tenant, name string, expected *string, event session.AuditEvent) error {
	err := s.change(ctx, tenant, name, event, func(found *session.StoredAgent, _ bool, _ int, p *pipeline) error {
		if found == nil {
			return store.AgentNotStored(name)
		}
		p.exec(deleteStoredAgent, tenant, name)
		return store.CheckExpected(name, found, expected)
	})
	return wrap(ctx, err, "delete the agent %q of tenant %q", name, tenant)
}

// change reads an agent, and runs the statements of decide in the same transaction, unless it gives an error. errUnchanged
// is none to the caller.
func (s storedAgents) change(
	ctx context.Context, tenant, name string, event session.AuditEvent,
	decide func(found *session.StoredAgent, announced bool, stored int, p *pipeline) error,
) error {
	once := func(conn *pgx.Conn) error {
		var p pipeline
		var found *session.StoredAgent
		var stored int64
		var announced bool
		p.exec(begin)
		p.exec(lockStoredAgents, tenant)
		p.queue(readStoredAgent, []any{tenant, name}, scanStoredAgents(func(a *session.StoredAgent) { found = a }))
		p.queue(countStoredAgents, []any{tenant, name}, scanInto(&stored, &announced))
		defer rollBack(ctx, conn)
		if err := p.run(ctx, conn); err != nil {
			return err
		}
		if err := decide(found, announced, int(stored), &p); err != nil {
			return err
		}
		p.exec(deleteUnusedDefinitions, tenant)
		if event.Actor != "" {
			var audit rows
			addRow(&audit, &session.Key{Tenant: tenant}, auditColumns, &event)
			p.each(writes[auditInsert], &audit, nil)
		}
		p.exec(commit)
		return p.run(ctx, conn)
	}
	err := s.withConn(ctx, func(conn *pgx.Conn) (err error) {
		for range attempts {
			if err = once(conn); !isConflict(err) {
				break
			}
		}
		return asUnavailable(err)
	})
	if errors.Is(err, errUnchanged) {
		return nil
	}
	return err
}

func scanStoredAgents(take func(*session.StoredAgent)) func(pgx.CollectableRow) error {
	return scanEach(storedAgentColumns.Destinations, take)
}

// StoredAgent implements store.StoredAgents.
func (s storedAgents) StoredAgent(ctx context.Context, tenant, name string) (found *session.StoredAgent, err error) {
	err = s.query(ctx, readStoredAgent, scanStoredAgents(func(a *session.StoredAgent) { found = a }), tenant, name)
	if err == nil && found == nil {
		err = store.AgentNotStored(name)
	}
	if err == nil {
		found.Text, err = s.Definition(ctx, tenant, found.Definition)
	}
	return found, wrap(ctx, err, "read the agent %q of tenant %q", name, tenant)
}

// StoredAgentsOf implements store.StoredAgents.
func (s storedAgents) StoredAgentsOf(ctx context.Context, tenant string) (list []session.StoredAgent, err error) {
	err = s.query(ctx, listStored, scanStoredAgents(func(a *session.StoredAgent) { list = append(list, *a) }), tenant)
	return list, wrap(ctx, err, "list the agents of tenant %q", tenant)
}

// Definition implements store.StoredAgents.
func (s storedAgents) Definition(ctx context.Context, tenant, hash string) (text string, err error) {
	err = s.query(ctx, readDefinition, scanInto(&text), tenant, hash)
	if err == nil && text == "" {
		err = store.DefinitionNotFound(hash)
	}
	return text, wrap(ctx, err, "read a definition of tenant %q", tenant)
}

// EraseAgents implements store.StoredAgents.
func (s storedAgents) EraseAgents(ctx context.Context, tenant string) (erased int64, err error) {
	err = s.execute(ctx, func(p *pipeline) {
		p.count(eraseStoredAgents, &erased, tenant)
		p.exec(eraseDefinitions, tenant)
	})
	return erased, wrap(ctx, err, "erase the agents of tenant %q", tenant)
}
