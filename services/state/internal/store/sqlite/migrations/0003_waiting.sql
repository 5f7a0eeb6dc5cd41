-- Runs that wait for the live one, deadlines of runs, and where a run began, so
-- that what it does can be taken back.

-- SQLite changes a CHECK only by another table. A run that waits has no turn.
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
    start_sequence      INTEGER NOT NULL,
    step_count          INTEGER NOT NULL CHECK (step_count >= 0),
    output              TEXT    NOT NULL,
    failure             TEXT    NOT NULL,
    completion_reason   TEXT    NOT NULL,
    settled             INTEGER NOT NULL CHECK (settled IN (0, 1)),
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
    PRIMARY KEY (tenant, session_id, run_id),
    CHECK (status <> 'queued' OR executor_id = ''),
    CHECK (status <> 'running' OR executor_id <> ''),
    CHECK (NOT settled OR (status NOT IN ('queued', 'running') AND executor_id = '')),
    CHECK (status <> 'waiting' OR (settled AND turn = 0 AND place >= 1)),
    CHECK (turn >= 1 OR settled)
) STRICT;

INSERT INTO runs_rebuilt (tenant, session_id, run_id, agent_type, turn, status, request_key, request_hash, message_id, start_sequence,
    step_count, output, failure, completion_reason, settled, attempt, epoch, executor_id, claimed_at, finish_step, finish_version,
    traceparent, tracestate, created_at, started_at, completed_at, entry, stop, due_at, losses)
SELECT tenant, session_id, run_id, agent_type, turn, status, request_key, request_hash, message_id, start_sequence,
    step_count, output, failure, completion_reason, settled, attempt, epoch, executor_id, claimed_at, finish_step, finish_version,
    traceparent, tracestate, created_at, started_at, completed_at, entry, stop, due_at, losses
FROM runs ORDER BY tenant, session_id, run_id;

DROP TABLE runs;
ALTER TABLE runs_rebuilt RENAME TO runs;

CREATE UNIQUE INDEX runs_turn ON runs (tenant, session_id, turn) WHERE turn > 0;
CREATE UNIQUE INDEX runs_request_key ON runs (tenant, session_id, request_key) WHERE request_key <> '';
CREATE UNIQUE INDEX runs_live ON runs (tenant, session_id) WHERE status IN ('queued', 'running');
CREATE UNIQUE INDEX runs_unsettled ON runs (tenant, session_id) WHERE NOT settled AND status NOT IN ('queued', 'running');
CREATE UNIQUE INDEX runs_waiting ON runs (tenant, session_id, place) WHERE status = 'waiting';
CREATE INDEX runs_due ON runs (agent_type, due_at, created_at, tenant, session_id) WHERE status = 'queued';
CREATE INDEX runs_due_settling ON runs (agent_type, created_at, tenant, session_id) WHERE NOT settled AND status NOT IN ('queued', 'running');
CREATE INDEX runs_held ON runs (executor_id) WHERE executor_id <> '';
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
) STRICT;

ALTER TABLE sessions ADD COLUMN waiting INTEGER NOT NULL DEFAULT 0 CHECK (waiting >= 0);
ALTER TABLE agents ADD COLUMN on_busy TEXT NOT NULL DEFAULT '' CHECK (on_busy IN ('', 'reject', 'enqueue', 'interrupt', 'rollback'));
ALTER TABLE calls ADD COLUMN consumed_step INTEGER NOT NULL DEFAULT 0;
ALTER TABLE calls ADD COLUMN told_step INTEGER NOT NULL DEFAULT 0;
CREATE INDEX calls_consumed ON calls (tenant, session_id, consumed_step) WHERE consumed_at > 0;
CREATE INDEX calls_told ON calls (tenant, session_id, told_step) WHERE told_step > 0;
