-- Which agents an executor announces, as a list; nothing where it has announced
-- itself before this was kept: then it may be any. And the queued runs that need no
-- agent to end: hardly any row is in these.

ALTER TABLE executors ADD COLUMN agents TEXT;
CREATE INDEX runs_due_stopped ON runs (agent_type, created_at, tenant, session_id) WHERE status = 'queued' AND stop <> '';
CREATE INDEX runs_due_deadline ON runs (agent_type, deadline_at) WHERE status = 'queued' AND deadline_at > 0;
