-- A run has a priority among the queued runs of its tenant, and the user whose quotas it counts for.

ALTER TABLE runs ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN user_id TEXT NOT NULL DEFAULT '';

DROP INDEX runs_due;
CREATE INDEX runs_due ON runs (agent_type, tenant, priority DESC, created_at, session_id) WHERE status = 'queued' AND due_at = 0;

-- Counts the runs of a tenant, and of a user, for the quotas.
CREATE INDEX runs_unfinished ON runs (status, tenant, user_id) WHERE status IN ('waiting', 'queued', 'running');
