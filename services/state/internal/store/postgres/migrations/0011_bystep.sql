-- Three indexes were a sixth of what a step costs. A checkpoint is found by its step, which
-- its id tells. Usage and results are found by their session, whose lock lets nobody
-- write one of them twice.

DROP INDEX checkpoints_id;
ALTER TABLE usage_entries DROP CONSTRAINT usage_entries_pkey;
CREATE INDEX usage_entries_session ON usage_entries (tenant, session_id);
ALTER TABLE results DROP CONSTRAINT results_tenant_session_id_call_id_key;
