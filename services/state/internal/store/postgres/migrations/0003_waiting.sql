-- Runs that wait for the live one, deadlines of runs, and where a run began, so
-- that what it does can be taken back. A run that waits has no turn.

ALTER TABLE runs
    ADD COLUMN deadline_at         BIGINT  NOT NULL DEFAULT 0,
    ADD COLUMN on_busy             TEXT    NOT NULL DEFAULT '' CHECK (on_busy IN ('', 'reject', 'enqueue', 'interrupt', 'rollback')),
    ADD COLUMN place               BIGINT  NOT NULL DEFAULT 0,
    ADD COLUMN start_message_count BIGINT  NOT NULL DEFAULT 0,
    ADD COLUMN start_state_version BIGINT  NOT NULL DEFAULT 0,
    ADD COLUMN start_state_base    BIGINT  NOT NULL DEFAULT 0,
    ADD COLUMN turn_message_count  BIGINT  NOT NULL DEFAULT 0,
    DROP CONSTRAINT runs_turn_check,
    DROP CONSTRAINT runs_status_check,
    DROP CONSTRAINT runs_tenant_session_id_turn_key,
    ADD CONSTRAINT runs_turn_check CHECK (turn >= 0),
    ADD CONSTRAINT runs_status_check CHECK (status IN ('waiting', 'queued', 'running', 'completed', 'failed', 'interrupted',
        'suspended_client_tool', 'suspended_awaiting_children', 'suspended_step_partial')),
    ADD CONSTRAINT runs_waiting_check CHECK (status <> 'waiting' OR (settled AND turn = 0 AND place >= 1)),
    ADD CONSTRAINT runs_begun_check CHECK (turn >= 1 OR settled);

CREATE UNIQUE INDEX runs_turn ON runs (tenant, session_id, turn) WHERE turn > 0;
CREATE UNIQUE INDEX runs_waiting ON runs (tenant, session_id, place) WHERE status = 'waiting';
CREATE INDEX runs_stopped ON runs (executor_id) WHERE status = 'running' AND stop <> '';

-- What a run keeps while it waits: its messages and its writes to the custom
-- state.
CREATE TABLE held_runs (
    tenant      TEXT NOT NULL,
    session_id  TEXT NOT NULL,
    run_id      TEXT NOT NULL CHECK (run_id <> ''),
    message_ids TEXT NOT NULL,
    held        TEXT NOT NULL,
    PRIMARY KEY (tenant, session_id, run_id)
);

ALTER TABLE sessions ADD COLUMN waiting INTEGER NOT NULL DEFAULT 0 CHECK (waiting >= 0);
ALTER TABLE agents ADD COLUMN on_busy TEXT NOT NULL DEFAULT '' CHECK (on_busy IN ('', 'reject', 'enqueue', 'interrupt', 'rollback'));
ALTER TABLE calls ADD COLUMN consumed_step INTEGER NOT NULL DEFAULT 0;
ALTER TABLE calls ADD COLUMN told_step INTEGER NOT NULL DEFAULT 0;
CREATE INDEX calls_consumed ON calls (tenant, session_id, consumed_step) WHERE consumed_at > 0;
CREATE INDEX calls_told ON calls (tenant, session_id, told_step) WHERE told_step > 0;
