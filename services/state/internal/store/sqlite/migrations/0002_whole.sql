-- What a session can be beside running: created without a run, suspended on
-- calls and children, stopped, expired, rewound, listed and accounted for.

-- SQLite changes a CHECK only by another table. A session may now have no run
-- yet (turn 0).
CREATE TABLE sessions_rebuilt (
    tenant             TEXT    NOT NULL CHECK (tenant <> ''),
    session_id         TEXT    NOT NULL CHECK (session_id <> ''),
    agent_type         TEXT    NOT NULL CHECK (agent_type <> ''),
    parent_id          TEXT    NOT NULL,
    root_id            TEXT    NOT NULL CHECK (root_id <> ''),
    status             TEXT    NOT NULL CHECK (status IN ('active', 'completed', 'failed', 'interrupted', 'paused',
                           'suspended_client_tool', 'suspended_awaiting_children', 'suspended_step_partial')),
    version            INTEGER NOT NULL CHECK (version >= 1),
    epoch              INTEGER NOT NULL CHECK (epoch >= 0),
    turn               INTEGER NOT NULL CHECK (turn >= 0),
    step_count         INTEGER NOT NULL CHECK (step_count >= 0),
    resume_count       INTEGER NOT NULL DEFAULT 0 CHECK (resume_count >= 0),
    message_count      INTEGER NOT NULL CHECK (message_count >= 0),
    state_version      INTEGER NOT NULL CHECK (state_version BETWEEN 1 AND version),
    state_base         INTEGER NOT NULL CHECK (state_base BETWEEN 1 AND state_version),
    state_writes       INTEGER NOT NULL DEFAULT 0,
    state_bytes        INTEGER NOT NULL DEFAULT 0,
    output             TEXT    NOT NULL,
    failure            TEXT    NOT NULL,
    stream_sequence    INTEGER NOT NULL CHECK (stream_sequence >= 0),
    stream_step        INTEGER NOT NULL CHECK (stream_step BETWEEN 0 AND step_count),
    current_run_id     TEXT    NOT NULL,
    checkpoint_id      TEXT    NOT NULL DEFAULT '',
    suspension_context TEXT    NOT NULL DEFAULT '',
    interruption       TEXT    NOT NULL DEFAULT '',
    children           INTEGER NOT NULL DEFAULT 0 CHECK (children >= 0),
    usage_count        INTEGER NOT NULL DEFAULT 0 CHECK (usage_count >= 0),
    user_id            TEXT    NOT NULL,
    organization_id    TEXT    NOT NULL DEFAULT '',
    tags               TEXT    NOT NULL,
    metadata           TEXT    NOT NULL,
    created_at         INTEGER NOT NULL,
    updated_at         INTEGER NOT NULL,
    expires_at         INTEGER NOT NULL,
    PRIMARY KEY (tenant, session_id)
) STRICT;

INSERT INTO sessions_rebuilt (tenant, session_id, agent_type, parent_id, root_id, status, version, epoch, turn, step_count, message_count,
    state_version, state_base, output, failure, stream_sequence, stream_step, current_run_id, checkpoint_id, user_id, tags, metadata,
    created_at, updated_at, expires_at)
SELECT tenant, session_id, agent_type, parent_id, root_id, status, version, epoch, turn, step_count, message_count,
    state_version, state_version, output, failure, stream_sequence, stream_step, current_run_id,
    coalesce((SELECT k.checkpoint_id FROM checkpoints k WHERE k.tenant = s.tenant AND k.session_id = s.session_id ORDER BY k.step DESC LIMIT 1), ''),
    user_id, tags, metadata, created_at, updated_at, expires_at
FROM sessions s ORDER BY tenant, session_id;

DROP TABLE sessions;
ALTER TABLE sessions_rebuilt RENAME TO sessions;

CREATE INDEX sessions_expiring ON sessions (expires_at) WHERE expires_at > 0 AND status NOT IN ('completed', 'failed');

-- Where base_version is 0 or the version, state is the whole custom state; else
-- it is a write, and the whole one is made of the row of base_version and the
-- writes from there on.
ALTER TABLE states ADD COLUMN base_version INTEGER NOT NULL DEFAULT 0;

ALTER TABLE runs ADD COLUMN entry  TEXT    NOT NULL DEFAULT 'start';
ALTER TABLE runs ADD COLUMN stop   TEXT    NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN due_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN losses INTEGER NOT NULL DEFAULT 0;

-- Due work in the order of its search: the runs that wait for a time are not
-- met by who looks for those that wait for none.
DROP INDEX runs_due;
DROP INDEX runs_due_settling;
CREATE INDEX runs_due ON runs (agent_type, due_at, created_at, tenant, session_id) WHERE status = 'queued';
CREATE INDEX runs_due_settling ON runs (agent_type, created_at, tenant, session_id) WHERE NOT settled AND status NOT IN ('queued', 'running');

ALTER TABLE checkpoints ADD COLUMN state_base INTEGER NOT NULL DEFAULT 0;
UPDATE checkpoints SET state_base = state_version;
CREATE UNIQUE INDEX checkpoints_id ON checkpoints (tenant, session_id, checkpoint_id);

ALTER TABLE usage_entries ADD COLUMN kind   TEXT NOT NULL DEFAULT '';
ALTER TABLE usage_entries ADD COLUMN source TEXT NOT NULL DEFAULT '';
ALTER TABLE usage_entries ADD COLUMN type   TEXT NOT NULL DEFAULT '';
ALTER TABLE usage_entries ADD COLUMN name   TEXT NOT NULL DEFAULT '';
ALTER TABLE usage_entries ADD COLUMN value  REAL NOT NULL DEFAULT 0;
UPDATE usage_entries SET kind = iif(model <> '', 'tokens', 'tool'), source = iif(model <> '', 'agent', 'tool');
CREATE INDEX usage_entries_time ON usage_entries (tenant, recorded_at);

-- A call that somebody outside answers: pending, answered, and then its
-- tombstone. root_id makes its id unique in the family of sessions.
CREATE TABLE calls (
    tenant      TEXT    NOT NULL,
    root_id     TEXT    NOT NULL,
    call_id     TEXT    NOT NULL CHECK (call_id <> ''),
    session_id  TEXT    NOT NULL CHECK (session_id <> ''),
    run_id      TEXT    NOT NULL,
    step        INTEGER NOT NULL,
    step_id     TEXT    NOT NULL,
    tool_name   TEXT    NOT NULL,
    kind        TEXT    NOT NULL CHECK (kind IN ('client_tool', 'approval')),
    approval_id TEXT    NOT NULL,
    input       TEXT    NOT NULL,
    stash       BLOB    NOT NULL,
    created_at  INTEGER NOT NULL,
    deadline_at INTEGER NOT NULL,
    answer      TEXT    NOT NULL CHECK (answer IN ('', 'client', 'timeout', 'abandoned')),
    revision    INTEGER NOT NULL,
    response    BLOB    NOT NULL,
    answered_at INTEGER NOT NULL,
    consumed_at INTEGER NOT NULL,
    late        BLOB    NOT NULL,
    late_at     INTEGER NOT NULL,
    told        INTEGER NOT NULL CHECK (told IN (0, 1)),
    PRIMARY KEY (tenant, root_id, call_id)
) STRICT;

CREATE INDEX calls_session ON calls (tenant, session_id);
CREATE INDEX calls_waiting ON calls (tenant, session_id) WHERE consumed_at = 0 OR (late_at > 0 AND NOT told);
CREATE INDEX calls_pending ON calls (tenant, root_id) WHERE consumed_at = 0;
CREATE INDEX calls_overdue ON calls (deadline_at) WHERE answer = '' AND deadline_at > 0;

CREATE TABLE sub_sessions (
    tenant       TEXT    NOT NULL,
    session_id   TEXT    NOT NULL,
    child_id     TEXT    NOT NULL CHECK (child_id <> ''),
    agent_type   TEXT    NOT NULL,
    call_id      TEXT    NOT NULL,
    status       TEXT    NOT NULL,
    mode         TEXT    NOT NULL CHECK (mode IN ('ephemeral', 'persistent')),
    name         TEXT    NOT NULL,
    location     TEXT    NOT NULL CHECK (location IN ('local', 'remote')),
    remote       TEXT    NOT NULL,
    started_at   INTEGER NOT NULL,
    completed_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, session_id, child_id)
) STRICT;

-- The properties by which sessions are listed, each in the order of the lists.
-- The code that runs this file fills it for the sessions that there are.
CREATE TABLE session_facets (
    tenant     TEXT    NOT NULL,
    facet      TEXT    NOT NULL CHECK (facet <> ''),
    created_at INTEGER NOT NULL,
    session_id TEXT    NOT NULL,
    PRIMARY KEY (tenant, facet, created_at, session_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE memories (
    tenant     TEXT    NOT NULL CHECK (tenant <> ''),
    memory_id  TEXT    NOT NULL CHECK (memory_id <> ''),
    entity_id  TEXT    NOT NULL,
    source     TEXT    NOT NULL,
    text       TEXT    NOT NULL,
    metadata   TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, memory_id)
) STRICT;

CREATE INDEX memories_entity ON memories (tenant, entity_id, source);
CREATE INDEX memories_newest ON memories (tenant, updated_at DESC, memory_id);

CREATE TABLE memory_words (
    tenant    TEXT NOT NULL,
    word      TEXT NOT NULL CHECK (word <> ''),
    memory_id TEXT NOT NULL,
    PRIMARY KEY (tenant, word, memory_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX memory_words_memory ON memory_words (tenant, memory_id);
