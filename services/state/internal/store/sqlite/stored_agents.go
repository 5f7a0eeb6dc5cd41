package sqlite

import (
	"context"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/table"
)

var (
	storedAgentColumns = table.StoredAgents.All()
	insertStoredAgent  = insert(&table.StoredAgents)
	selectStored       = `SELECT ` + storedAgentColumns.Select("a") + ` FROM stored_agents a WHERE a.tenant = ?`
)

// StoreAgent implements store.StoredAgents.
func (s storedAgents) StoreAgent(
	ctx context.Context, tenant string, a session.StoredAgent, expected *string, most int, event session.AuditEvent,
) (former *session.StoredAgent, err error) {
	err = s.write(ctx, func(ctx context.Context, c *connection) error {
		if former, err = readStored(ctx, c, tenant, a.Type); err != nil {
			return err
		}
		var stored int
		var announced bool
		_, err := c.queryRow(ctx, `SELECT (SELECT count(*) FROM stored_agents WHERE tenant = ?1),
			EXISTS (SELECT 1 FROM executors e WHERE ?2 IN (SELECT value FROM json_each(e.agents)))`, arguments(tenant, a.Type), &stored, &announced)
		if err == nil {
			err = store.CheckStoring(a.Type, former, announced, expected, stored, most)
		}
		if err != nil || former != nil && former.Definition == a.Definition {
			return err
		}
		if _, err := c.exec(ctx, `INSERT INTO definitions (tenant, hash, definition, stored_at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING`,
			tenant, a.Definition, a.Text, a.At); err != nil {
			return err
		}
		if _, err := c.exec(ctx, `DELETE FROM stored_agents WHERE tenant = ? AND agent_type = ?`, tenant, a.Type); err != nil {
			return err
		}
		if _, err := c.exec(ctx, insertStoredAgent.text, storedAgentColumns.Values([]any{tenant}, &a)...); err != nil {
			return err
		}
		// The row of all stored agents is there from the first one on, whether an executor serves them or not.
		if _, err := c.exec(ctx, `INSERT INTO agents (agent_type, description, on_busy, state_schema, remote, announced_at)
			VALUES (?, '', '', '', FALSE, ?) ON CONFLICT DO NOTHING`, session.StoredAgents, a.At); err != nil {
			return err
		}
		return s.finishChange(ctx, c, tenant, event)
	})
	return former, wrap(ctx, err, "store the agent %q of tenant %q", a.Type, tenant)
}

// DeleteAgent implements store.StoredAgents.
func (s storedAgents) DeleteAgent(ctx context.Context, tenant, name string, expected *string, event session.AuditEvent) error {
	err := s.write(ctx, func(ctx context.Context, c *connection) error {
		found, err := readStored(ctx, c, tenant, name)
		if err == nil && found == nil {
			err = store.AgentNotStored(name)
		}
		if err == nil {
			err = store.CheckExpected(name, found, expected)
		}
		if err != nil {
			return err
		}
		if _, err := c.exec(ctx, `DELETE FROM stored_agents WHERE tenant = ? AND agent_type = ?`, tenant, name); err != nil {
			return err
		}
		return s.finishChange(ctx, c, tenant, event)
	})
	return wrap(ctx, err, "delete the agent %q of tenant %q", name, tenant)
}

// finishChange deletes the definitions that nothing uses any more, and records the change.
func (s storedAgents) finishChange(ctx context.Context, c *connection, tenant string, event session.AuditEvent) error {
	s.erased.Store(true)
	_, err := c.exec(ctx, `DELETE FROM definitions WHERE tenant = ?1
		AND hash NOT IN (SELECT definition FROM stored_agents WHERE tenant = ?1)
		AND hash NOT IN (SELECT definition FROM runs WHERE status IN ('waiting', 'queued', 'running') AND status = 'running' AND tenant = ?1)`,
		tenant)
	if err == nil && event.Actor != "" {
		_, err = c.exec(ctx, insertAudit.text, auditColumns.Values(arguments(tenant, ""), &event)...)
	}
	return err
}

// readStored returns a stored agent without its definition; nil for none.
func readStored(ctx context.Context, c *connection, tenant, name string) (*session.StoredAgent, error) {
	var a session.StoredAgent
	found, err := c.queryRow(ctx, selectStored+` AND a.agent_type = ?`, arguments(tenant, name), storedAgentColumns.Destinations(nil, &a)...)
	if !found {
		return nil, err
	}
	return &a, nil
}

// StoredAgent implements store.StoredAgents.
func (s storedAgents) StoredAgent(ctx context.Context, tenant, name string) (found *session.StoredAgent, err error) {
	err = s.read(ctx, func(c *connection) error {
		if found, err = readStored(ctx, c, tenant, name); err != nil {
			return err
		}
		if found == nil {
			return store.AgentNotStored(name)
		}
		found.Text, err = definition(ctx, c, tenant, found.Definition)
		return err
	})
	if err != nil {
		return nil, wrap(ctx, err, "read the agent %q of tenant %q", name, tenant)
	}
	return found, nil
}

// StoredAgentsOf implements store.StoredAgents.
func (s storedAgents) StoredAgentsOf(ctx context.Context, tenant string) (list []session.StoredAgent, err error) {
	err = s.read(ctx, func(c *connection) error {
		return c.forEach(ctx, selectStored+` ORDER BY a.agent_type`, arguments(tenant), func(row scanner) error {
			var a session.StoredAgent
			err := row.Scan(storedAgentColumns.Destinations(nil, &a)...)
			list = append(list, a)
			return err
		})
	})
	return list, wrap(ctx, err, "list the agents of tenant %q", tenant)
}

// Definition implements store.StoredAgents.
func (s storedAgents) Definition(ctx context.Context, tenant, hash string) (text string, err error) {
	err = s.read(ctx, func(c *connection) error {
		text, err = definition(ctx, c, tenant, hash)
		return err
	})
	return text, wrap(ctx, err, "read a definition of tenant %q", tenant)
}

func definition(ctx context.Context, c *connection, tenant, hash string) (text string, err error) {
	found, err := c.queryRow(ctx, `SELECT definition FROM definitions WHERE tenant = ? AND hash = ?`, arguments(tenant, hash), &text)
	if err == nil && !found {
		err = store.DefinitionNotFound(hash)
	}
	return text, err
}

// EraseAgents implements store.StoredAgents.
func (s storedAgents) EraseAgents(ctx context.Context, tenant string) (int64, error) {
	return auditLog(s).changeRows(ctx, arguments(tenant),
		`DELETE FROM definitions WHERE tenant = ?`, `DELETE FROM stored_agents WHERE tenant = ?`)
}
