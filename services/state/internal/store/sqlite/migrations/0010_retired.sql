-- What nothing reads any more: whether the end of a run stands in the stream, and sequences
-- of the stream. Positions have replaced them.

ALTER TABLE sessions DROP COLUMN stream_sequence;
ALTER TABLE sessions DROP COLUMN stream_step;
ALTER TABLE checkpoints DROP COLUMN stream_sequence;
ALTER TABLE plans DROP COLUMN stream_sequence;

-- SQLite changes a CHECK only by another table.
CREATE TABLE runs_rebuilt (
    tenant              TEXT    NOT NULL,
    session_id          TEXT    NOT NULL,
    run_id              TEXT    NOT NULL CHECK (run_id <> ''),
    agent_type          TEXT    NOT NULL,
    turn                INTEGER NOT NULL CHECK (turn >= 0),
    status              TEXT    NOT NULL CHECK (status IN ('waiting', 'queued', 'running', 'completed', 'failed', 'interrupted',
                            'suspended_client_tool', 'suspended_awaiting_children', 'suspended_step_partial')),
    request_key         TEXT    NOT NULL,
    request_hash        BLOB    NOT NULL,
    message_id          TEXT    NOT NULL,
    step_count          INTEGER NOT NULL CHECK (step_count >= 0),
    output              TEXT    NOT NULL,
    failure             TEXT    NOT NULL,
    completion_reason   TEXT    NOT NULL,
    attempt             INTEGER NOT NULL,
    epoch               INTEGER NOT NULL,
    executor_id         TEXT    NOT NULL,
    claimed_at          INTEGER NOT NULL,
    finish_step         INTEGER NOT NULL,
    finish_version      INTEGER NOT NULL,
    traceparent         TEXT    NOT NULL,
    tracestate          TEXT    NOT NULL,
    created_at          INTEGER NOT NULL,
    started_at          INTEGER NOT NULL,
    completed_at        INTEGER NOT NULL,
    entry               TEXT    NOT NULL DEFAULT 'start',
    stop                TEXT    NOT NULL DEFAULT '',
    due_at              INTEGER NOT NULL DEFAULT 0,
    losses              INTEGER NOT NULL DEFAULT 0,
    deadline_at         INTEGER NOT NULL DEFAULT 0,
    on_busy             TEXT    NOT NULL DEFAULT '' CHECK (on_busy IN ('', 'reject', 'enqueue', 'interrupt', 'rollback')),
    place               INTEGER NOT NULL DEFAULT 0,
    start_message_count INTEGER NOT NULL DEFAULT 0,
    start_state_version INTEGER NOT NULL DEFAULT 0,
    start_state_base    INTEGER NOT NULL DEFAULT 0,
    turn_message_count  INTEGER NOT NULL DEFAULT 0,
    finish_reason       TEXT    NOT NULL DEFAULT '',
    start_position      INTEGER NOT NULL DEFAULT 0,
    end_position        INTEGER NOT NULL DEFAULT 0,
    usage               TEXT    NOT NULL DEFAULT '',
    PRIMARY KEY (tenant, session_id, run_id),
    CHECK ((status = 'running') = (executor_id <> '')),
    CHECK (status <> 'waiting' OR (turn = 0 AND place >= 1)),
    CHECK (turn >= 1 OR status NOT IN ('queued', 'running'))
) STRICT;

INSERT INTO runs_rebuilt (tenant, session_id, run_id, agent_type, turn, status, request_key, request_hash, message_id,
    step_count, output, failure, completion_reason, attempt, epoch, executor_id, claimed_at, finish_step, finish_version,
    traceparent, tracestate, created_at, started_at, completed_at, entry, stop, due_at, losses, deadline_at, on_busy, place,
    start_message_count, start_state_version, start_state_base, turn_message_count, finish_reason, start_position, end_position, usage)
SELECT tenant, session_id, run_id, agent_type, turn, status, request_key, request_hash, message_id,
    step_count, output, failure, completion_reason, attempt, epoch, executor_id, claimed_at, finish_step, finish_version,
    traceparent, tracestate, created_at, started_at, completed_at, entry, stop, due_at, losses, deadline_at, on_busy, place,
    start_message_count, start_state_version, start_state_base, turn_message_count, finish_reason, start_position, end_position, usage
FROM runs ORDER BY tenant, session_id, run_id;

DROP TABLE runs;
ALTER TABLE runs_rebuilt RENAME TO runs;

CREATE UNIQUE INDEX runs_turn ON runs (tenant, session_id, turn) WHERE turn > 0;
CREATE UNIQUE INDEX runs_request_key ON runs (tenant, session_id, request_key) WHERE request_key <> '';
CREATE UNIQUE INDEX runs_live ON runs (tenant, session_id) WHERE status IN ('queued', 'running');
CREATE UNIQUE INDEX runs_waiting ON runs (tenant, session_id, place) WHERE status = 'waiting';
CREATE INDEX runs_due ON runs (agent_type, due_at, created_at, tenant, session_id) WHERE status = 'queued';
CREATE INDEX runs_held ON runs (executor_id) WHERE executor_id <> '';
CREATE INDEX runs_stopped ON runs (executor_id) WHERE status = 'running' AND stop <> '';
CREATE INDEX runs_due_stopped ON runs (agent_type, created_at, tenant, session_id) WHERE status = 'queued' AND stop <> '';
CREATE INDEX runs_due_deadline ON runs (agent_type, deadline_at) WHERE status = 'queued' AND deadline_at > 0;
