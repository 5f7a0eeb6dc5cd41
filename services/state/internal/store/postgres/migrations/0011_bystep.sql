-- Two indexes that every step paid for. A checkpoint is found by its step, which its id
-- tells. Results are found by their session, whose lock lets nobody write one twice.

DROP INDEX checkpoints_id;
ALTER TABLE results DROP CONSTRAINT results_tenant_session_id_call_id_key;
