-- Claims go round the tenants with queued runs of an agent.

DROP INDEX runs_due;
CREATE INDEX runs_due ON runs (agent_type, tenant, created_at) WHERE status = 'queued' AND due_at = 0;
CREATE INDEX runs_due_delayed ON runs (agent_type, due_at, created_at) WHERE status = 'queued' AND due_at > 0;
