-- The truth about sessions. Every table of a session is keyed by tenant first.
-- Rows that only ever grow (messages, states, checkpoints, usage) are never
-- rewritten, so a step costs the same however long the session is. They name
-- their session without a FOREIGN KEY: one transaction writes them together
-- with the session's row.

CREATE TABLE sessions (
    tenant          TEXT    NOT NULL CHECK (tenant <> ''),
    session_id      TEXT    NOT NULL CHECK (session_id <> ''),
    agent_type      TEXT    NOT NULL CHECK (agent_type <> ''),
    parent_id       TEXT    NOT NULL,
    root_id         TEXT    NOT NULL CHECK (root_id <> ''),
    status          TEXT    NOT NULL CHECK (status IN ('active', 'completed', 'failed', 'interrupted', 'paused',
                        'suspended_client_tool', 'suspended_awaiting_children', 'suspended_step_partial')),
    version         INTEGER NOT NULL CHECK (version >= 1),
    epoch           INTEGER NOT NULL CHECK (epoch >= 0),
    turn            INTEGER NOT NULL CHECK (turn >= 1),
    step_count      INTEGER NOT NULL CHECK (step_count >= 0),
    message_count   INTEGER NOT NULL CHECK (message_count >= 0),
    state_version   INTEGER NOT NULL CHECK (state_version BETWEEN 1 AND version),
    output          TEXT    NOT NULL,
    failure         TEXT    NOT NULL,
    stream_sequence INTEGER NOT NULL CHECK (stream_sequence >= 0),
    stream_step     INTEGER NOT NULL CHECK (stream_step BETWEEN 0 AND step_count),
    current_run_id  TEXT    NOT NULL,
    user_id         TEXT    NOT NULL,
    tags            TEXT    NOT NULL,
    metadata        TEXT    NOT NULL,
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL,
    expires_at      INTEGER NOT NULL,
    PRIMARY KEY (tenant, session_id)
) STRICT;

-- The custom state as of a version of its session; a version that left it alone
-- has no row.
CREATE TABLE states (
    tenant     TEXT    NOT NULL,
    session_id TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    state      TEXT    NOT NULL CHECK (state <> ''),
    PRIMARY KEY (tenant, session_id, version)
) STRICT;

CREATE TABLE runs (
    tenant            TEXT    NOT NULL,
    session_id        TEXT    NOT NULL,
    run_id            TEXT    NOT NULL CHECK (run_id <> ''),
    agent_type        TEXT    NOT NULL,
    turn              INTEGER NOT NULL CHECK (turn >= 1),
    status            TEXT    NOT NULL CHECK (status IN ('queued', 'running', 'completed', 'failed', 'interrupted',
                          'suspended_client_tool', 'suspended_awaiting_children', 'suspended_step_partial')),
    request_key       TEXT    NOT NULL,
    request_hash      BLOB    NOT NULL,
    message_id        TEXT    NOT NULL,
    start_sequence    INTEGER NOT NULL,
    step_count        INTEGER NOT NULL CHECK (step_count >= 0),
    output            TEXT    NOT NULL,
    failure           TEXT    NOT NULL,
    completion_reason TEXT    NOT NULL,
    settled           INTEGER NOT NULL CHECK (settled IN (0, 1)),
    attempt           INTEGER NOT NULL,
    epoch             INTEGER NOT NULL,
    executor_id       TEXT    NOT NULL,
    claimed_at        INTEGER NOT NULL,
    finish_step       INTEGER NOT NULL,
    finish_version    INTEGER NOT NULL,
    traceparent       TEXT    NOT NULL,
    tracestate        TEXT    NOT NULL,
    created_at        INTEGER NOT NULL,
    started_at        INTEGER NOT NULL,
    completed_at      INTEGER NOT NULL,
    PRIMARY KEY (tenant, session_id, run_id),
    UNIQUE (tenant, session_id, turn),
    CHECK (status <> 'queued' OR executor_id = ''),
    CHECK (status <> 'running' OR executor_id <> ''),
    CHECK (NOT settled OR (status NOT IN ('queued', 'running') AND executor_id = ''))
) STRICT;

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
    ordinal    INTEGER NOT NULL CHECK (ordinal >= 0),
    message_id TEXT    NOT NULL CHECK (message_id <> ''),
    role       TEXT    NOT NULL,
    run_id     TEXT    NOT NULL,
    step       INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    size       INTEGER NOT NULL,
    body       BLOB    NOT NULL,
    PRIMARY KEY (tenant, session_id, ordinal),
    UNIQUE (tenant, session_id, message_id)
) STRICT;

-- The step in flight of a session: at most one plan, and results of its calls.
CREATE TABLE plans (
    tenant          TEXT    NOT NULL,
    session_id      TEXT    NOT NULL,
    step            INTEGER NOT NULL,
    body            BLOB    NOT NULL,
    call_ids        TEXT    NOT NULL,
    stream_sequence INTEGER NOT NULL,
    usage           TEXT    NOT NULL,
    PRIMARY KEY (tenant, session_id)
) STRICT;

CREATE TABLE results (
    tenant     TEXT    NOT NULL,
    session_id TEXT    NOT NULL,
    position   INTEGER NOT NULL CHECK (position >= 0),
    call_id    TEXT    NOT NULL CHECK (call_id <> ''),
    body       BLOB    NOT NULL,
    ops        TEXT    NOT NULL,
    usage      TEXT    NOT NULL,
    PRIMARY KEY (tenant, session_id, position),
    UNIQUE (tenant, session_id, call_id)
) STRICT;

-- One row a committed step. state_version names the row of states that held
-- after it.
CREATE TABLE checkpoints (
    tenant          TEXT    NOT NULL,
    session_id      TEXT    NOT NULL,
    step            INTEGER NOT NULL CHECK (step >= 1),
    checkpoint_id   TEXT    NOT NULL CHECK (checkpoint_id <> ''),
    run_id          TEXT    NOT NULL,
    epoch           INTEGER NOT NULL,
    version         INTEGER NOT NULL,
    message_count   INTEGER NOT NULL,
    stream_sequence INTEGER NOT NULL,
    status          TEXT    NOT NULL,
    state_version   INTEGER NOT NULL,
    warnings        TEXT    NOT NULL,
    created_at      INTEGER NOT NULL,
    PRIMARY KEY (tenant, session_id, step)
) STRICT;

CREATE TABLE usage_entries (
    tenant            TEXT    NOT NULL,
    session_id        TEXT    NOT NULL,
    run_id            TEXT    NOT NULL,
    step              INTEGER NOT NULL,
    position          INTEGER NOT NULL,
    recorded_at       INTEGER NOT NULL,
    model             TEXT    NOT NULL,
    prompt_tokens     INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    reasoning_tokens  INTEGER NOT NULL,
    cached_tokens     INTEGER NOT NULL,
    total_tokens      INTEGER NOT NULL,
    tool              TEXT    NOT NULL,
    success           INTEGER NOT NULL CHECK (success IN (0, 1)),
    duration_ms       INTEGER NOT NULL,
    PRIMARY KEY (tenant, session_id, run_id, step, position)
) STRICT;

-- Executors serve all tenants.
CREATE TABLE executors (
    executor_id TEXT    NOT NULL PRIMARY KEY CHECK (executor_id <> ''),
    heard_at    INTEGER NOT NULL
) STRICT;

CREATE TABLE agents (
    agent_type   TEXT    NOT NULL PRIMARY KEY CHECK (agent_type <> ''),
    description  TEXT    NOT NULL,
    announced_at INTEGER NOT NULL
) STRICT;
