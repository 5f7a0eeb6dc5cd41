-- The truth about sessions. Every table of a session is keyed by tenant first.
-- Rows that only ever grow (messages, states, checkpoints, usage) are never
-- rewritten, so a step costs the same however long the session is. They name
-- their session without a FOREIGN KEY: one transaction writes them together
-- with the session's row. The rows that a step does rewrite, one of sessions and
-- one of runs, have room to stay in their page, and no index over what changes.

CREATE TABLE sessions (
    tenant          TEXT    NOT NULL CHECK (tenant <> ''),
    session_id      TEXT    NOT NULL CHECK (session_id <> ''),
    agent_type      TEXT    NOT NULL CHECK (agent_type <> ''),
    parent_id       TEXT    NOT NULL,
    root_id         TEXT    NOT NULL CHECK (root_id <> ''),
    status          TEXT    NOT NULL CHECK (status IN ('active', 'completed', 'failed', 'interrupted', 'paused',
                        'suspended_client_tool', 'suspended_awaiting_children', 'suspended_step_partial')),
    version         BIGINT  NOT NULL CHECK (version >= 1),
    epoch           BIGINT  NOT NULL CHECK (epoch >= 0),
    turn            INTEGER NOT NULL CHECK (turn >= 1),
    step_count      INTEGER NOT NULL CHECK (step_count >= 0),
    message_count   BIGINT  NOT NULL CHECK (message_count >= 0),
    state_version   BIGINT  NOT NULL CHECK (state_version BETWEEN 1 AND version),
    output          TEXT    NOT NULL,
    failure         TEXT    NOT NULL,
    stream_sequence BIGINT  NOT NULL CHECK (stream_sequence >= 0),
    stream_step     INTEGER NOT NULL CHECK (stream_step BETWEEN 0 AND step_count),
    current_run_id  TEXT    NOT NULL,
    user_id         TEXT    NOT NULL,
    tags            TEXT    NOT NULL,
    metadata        TEXT    NOT NULL,
    created_at      BIGINT  NOT NULL,
    updated_at      BIGINT  NOT NULL,
    expires_at      BIGINT  NOT NULL,
    PRIMARY KEY (tenant, session_id)
) WITH (fillfactor = 80);

-- The custom state as of a version of its session; a version that left it alone
-- has no row.
CREATE TABLE states (
    tenant     TEXT    NOT NULL,
    session_id TEXT    NOT NULL,
    version    BIGINT  NOT NULL,
    state      TEXT    NOT NULL CHECK (state <> ''),
    PRIMARY KEY (tenant, session_id, version)
);

CREATE TABLE runs (
    tenant            TEXT    NOT NULL,
    session_id        TEXT    NOT NULL,
    run_id            TEXT    NOT NULL CHECK (run_id <> ''),
    agent_type        TEXT    NOT NULL,
    turn              INTEGER NOT NULL CHECK (turn >= 1),
    status            TEXT    NOT NULL CHECK (status IN ('queued', 'running', 'completed', 'failed', 'interrupted',
                          'suspended_client_tool', 'suspended_awaiting_children', 'suspended_step_partial')),
    request_key       TEXT    NOT NULL,
    request_hash      BYTEA   NOT NULL,
    message_id        TEXT    NOT NULL,
    start_sequence    BIGINT  NOT NULL,
    step_count        INTEGER NOT NULL CHECK (step_count >= 0),
    output            TEXT    NOT NULL,
    failure           TEXT    NOT NULL,
    completion_reason TEXT    NOT NULL,
    settled           BOOLEAN NOT NULL,
    attempt           INTEGER NOT NULL,
    epoch             BIGINT  NOT NULL,
    executor_id       TEXT    NOT NULL,
    claimed_at        BIGINT  NOT NULL,
    finish_step       INTEGER NOT NULL,
    finish_version    BIGINT  NOT NULL,
    traceparent       TEXT    NOT NULL,
    tracestate        TEXT    NOT NULL,
    created_at        BIGINT  NOT NULL,
    started_at        BIGINT  NOT NULL,
    completed_at      BIGINT  NOT NULL,
    PRIMARY KEY (tenant, session_id, run_id),
    UNIQUE (tenant, session_id, turn),
    CHECK (status <> 'queued' OR executor_id = ''),
    CHECK (status <> 'running' OR executor_id <> ''),
    CHECK (NOT settled OR (status NOT IN ('queued', 'running') AND executor_id = ''))
) WITH (fillfactor = 80);

CREATE UNIQUE INDEX runs_request_key ON runs (tenant, session_id, request_key) WHERE request_key <> '';
CREATE UNIQUE INDEX runs_live ON runs (tenant, session_id) WHERE status IN ('queued', 'running');
CREATE UNIQUE INDEX runs_unsettled ON runs (tenant, session_id) WHERE NOT settled AND status NOT IN ('queued', 'running');

-- Due work.
CREATE INDEX runs_due ON runs (agent_type, created_at) WHERE status = 'queued';
CREATE INDEX runs_due_settling ON runs (agent_type, created_at) WHERE NOT settled AND status NOT IN ('queued', 'running');
CREATE INDEX runs_held ON runs (executor_id) WHERE executor_id <> '';

CREATE TABLE messages (
    tenant     TEXT    NOT NULL,
    session_id TEXT    NOT NULL,
    ordinal    BIGINT  NOT NULL CHECK (ordinal >= 0),
    message_id TEXT    NOT NULL CHECK (message_id <> ''),
    role       TEXT    NOT NULL,
    run_id     TEXT    NOT NULL,
    step       INTEGER NOT NULL,
    created_at BIGINT  NOT NULL,
    size       BIGINT  NOT NULL,
    body       BYTEA   NOT NULL,
    PRIMARY KEY (tenant, session_id, ordinal),
    UNIQUE (tenant, session_id, message_id)
);

-- The step in flight of a session: at most one plan, and results of its calls.
CREATE TABLE plans (
    tenant          TEXT    NOT NULL,
    session_id      TEXT    NOT NULL,
    step            INTEGER NOT NULL,
    body            BYTEA   NOT NULL,
    call_ids        TEXT    NOT NULL,
    stream_sequence BIGINT  NOT NULL,
    usage           TEXT    NOT NULL,
    PRIMARY KEY (tenant, session_id)
);

CREATE TABLE results (
    tenant     TEXT    NOT NULL,
    session_id TEXT    NOT NULL,
    position   INTEGER NOT NULL CHECK (position >= 0),
    call_id    TEXT    NOT NULL CHECK (call_id <> ''),
    body       BYTEA   NOT NULL,
    ops        TEXT    NOT NULL,
    usage      TEXT    NOT NULL,
    PRIMARY KEY (tenant, session_id, position),
    UNIQUE (tenant, session_id, call_id)
);

-- One row a committed step. state_version names the row of states that held
-- after it.
CREATE TABLE checkpoints (
    tenant          TEXT    NOT NULL,
    session_id      TEXT    NOT NULL,
    step            INTEGER NOT NULL CHECK (step >= 1),
    checkpoint_id   TEXT    NOT NULL CHECK (checkpoint_id <> ''),
    run_id          TEXT    NOT NULL,
    epoch           BIGINT  NOT NULL,
    version         BIGINT  NOT NULL,
    message_count   BIGINT  NOT NULL,
    stream_sequence BIGINT  NOT NULL,
    status          TEXT    NOT NULL,
    state_version   BIGINT  NOT NULL,
    warnings        TEXT    NOT NULL,
    created_at      BIGINT  NOT NULL,
    PRIMARY KEY (tenant, session_id, step)
);

CREATE TABLE usage_entries (
    tenant            TEXT    NOT NULL,
    session_id        TEXT    NOT NULL,
    run_id            TEXT    NOT NULL,
    step              INTEGER NOT NULL,
    position          INTEGER NOT NULL,
    recorded_at       BIGINT  NOT NULL,
    model             TEXT    NOT NULL,
    prompt_tokens     BIGINT  NOT NULL,
    completion_tokens BIGINT  NOT NULL,
    reasoning_tokens  BIGINT  NOT NULL,
    cached_tokens     BIGINT  NOT NULL,
    total_tokens      BIGINT  NOT NULL,
    tool              TEXT    NOT NULL,
    success           BOOLEAN NOT NULL,
    duration_ms       BIGINT  NOT NULL,
    PRIMARY KEY (tenant, session_id, run_id, step, position)
);

-- Executors serve all tenants.
CREATE TABLE executors (
    executor_id TEXT    NOT NULL PRIMARY KEY CHECK (executor_id <> ''),
    heard_at    BIGINT  NOT NULL
);

CREATE TABLE agents (
    agent_type   TEXT    NOT NULL PRIMARY KEY CHECK (agent_type <> ''),
    description  TEXT    NOT NULL,
    announced_at BIGINT  NOT NULL
);
