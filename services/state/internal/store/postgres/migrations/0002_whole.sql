-- Sessions that suspend, branch, rewind, expire and have sub-sessions; lists of
-- them; usage of every kind; memories. New columns have the value that holds for
-- the rows that are there, or get it here.
--
-- Texts by which pages are ordered compare by their bytes, as everywhere else in
-- the product, whatever the collation of the database.

ALTER TABLE sessions
    ADD COLUMN resume_count       INTEGER NOT NULL DEFAULT 0,
    ADD COLUMN state_base         BIGINT  NOT NULL DEFAULT 1 CHECK (state_base BETWEEN 1 AND state_version),
    ADD COLUMN state_writes       INTEGER NOT NULL DEFAULT 0,
    ADD COLUMN state_bytes        BIGINT  NOT NULL DEFAULT 0,
    ADD COLUMN checkpoint_id      TEXT    NOT NULL DEFAULT '',
    ADD COLUMN suspension_context TEXT    NOT NULL DEFAULT '',
    ADD COLUMN interruption       TEXT    NOT NULL DEFAULT '',
    ADD COLUMN children           INTEGER NOT NULL DEFAULT 0,
    ADD COLUMN usage_count        INTEGER NOT NULL DEFAULT 0,
    ADD COLUMN organization_id    TEXT    NOT NULL DEFAULT '',
    DROP CONSTRAINT sessions_turn_check,
    ADD CONSTRAINT sessions_turn_check CHECK (turn >= 0);

UPDATE sessions s SET
    state_base = s.state_version,
    checkpoint_id = COALESCE((SELECT c.checkpoint_id FROM checkpoints c
        WHERE c.tenant = s.tenant AND c.session_id = s.session_id ORDER BY c.step DESC LIMIT 1), '');

CREATE INDEX sessions_expiry ON sessions (expires_at) WHERE expires_at > 0 AND status NOT IN ('completed', 'failed');

-- A row whose base_version is its version is the whole text of the custom state.
-- In any other, state is a list of writes, to be folded onto the row of
-- base_version after those between. 0 is for the rows that were there before: they
-- are whole.
ALTER TABLE states ADD COLUMN base_version BIGINT NOT NULL DEFAULT 0;

ALTER TABLE runs
    ADD COLUMN entry  TEXT    NOT NULL DEFAULT 'start',
    ADD COLUMN stop   TEXT    NOT NULL DEFAULT '',
    ADD COLUMN due_at BIGINT  NOT NULL DEFAULT 0,
    ADD COLUMN losses INTEGER NOT NULL DEFAULT 0;

-- Queued runs, those that wait for a time behind those that do not.
DROP INDEX runs_due;
CREATE INDEX runs_due ON runs (agent_type, due_at, created_at) WHERE status = 'queued';

ALTER TABLE checkpoints ADD COLUMN state_base BIGINT NOT NULL DEFAULT 0;
UPDATE checkpoints SET state_base = state_version;
CREATE UNIQUE INDEX checkpoints_id ON checkpoints (tenant, session_id, checkpoint_id);

ALTER TABLE usage_entries
    ADD COLUMN kind   TEXT NOT NULL DEFAULT '',
    ADD COLUMN source TEXT NOT NULL DEFAULT '',
    ADD COLUMN type   TEXT NOT NULL DEFAULT '',
    ADD COLUMN name   TEXT NOT NULL DEFAULT '',
    ADD COLUMN value  DOUBLE PRECISION NOT NULL DEFAULT 0;
UPDATE usage_entries SET
    kind = CASE WHEN model <> '' THEN 'tokens' ELSE 'tool' END,
    source = CASE WHEN model <> '' THEN 'agent' ELSE 'tool' END;
CREATE INDEX usage_entries_recorded ON usage_entries (tenant, recorded_at);

-- A call that somebody outside answers, from its beginning to its tombstone.
CREATE TABLE calls (
    tenant      TEXT    NOT NULL,
    root_id     TEXT    NOT NULL,
    call_id     TEXT    COLLATE "C" NOT NULL CHECK (call_id <> ''),
    session_id  TEXT    NOT NULL CHECK (session_id <> ''),
    run_id      TEXT    NOT NULL,
    step        INTEGER NOT NULL,
    step_id     TEXT    NOT NULL,
    tool_name   TEXT    NOT NULL,
    kind        TEXT    NOT NULL CHECK (kind IN ('client_tool', 'approval')),
    approval_id TEXT    NOT NULL,
    input       TEXT    NOT NULL,
    stash       BYTEA   NOT NULL,
    created_at  BIGINT  NOT NULL,
    deadline_at BIGINT  NOT NULL,
    answer      TEXT    NOT NULL CHECK (answer IN ('', 'client', 'timeout', 'abandoned')),
    revision    INTEGER NOT NULL,
    response    BYTEA   NOT NULL,
    answered_at BIGINT  NOT NULL,
    consumed_at BIGINT  NOT NULL,
    late        BYTEA   NOT NULL,
    late_at     BIGINT  NOT NULL,
    told        BOOLEAN NOT NULL,
    PRIMARY KEY (tenant, root_id, call_id)
);

CREATE INDEX calls_session ON calls (tenant, session_id);
CREATE INDEX calls_due ON calls (tenant, session_id) WHERE consumed_at = 0 OR (late_at > 0 AND NOT told);
CREATE INDEX calls_family ON calls (tenant, root_id) WHERE consumed_at = 0;
CREATE INDEX calls_deadline ON calls (deadline_at) WHERE answer = '' AND deadline_at > 0;

-- What a session knows of its sub-sessions.
CREATE TABLE sub_sessions (
    tenant       TEXT   NOT NULL,
    session_id   TEXT   NOT NULL,
    child_id     TEXT   COLLATE "C" NOT NULL CHECK (child_id <> ''),
    agent_type   TEXT   NOT NULL,
    call_id      TEXT   NOT NULL,
    status       TEXT   NOT NULL,
    mode         TEXT   NOT NULL CHECK (mode IN ('ephemeral', 'persistent')),
    name         TEXT   NOT NULL,
    location     TEXT   NOT NULL CHECK (location IN ('local', 'remote')),
    remote       TEXT   NOT NULL,
    started_at   BIGINT NOT NULL,
    completed_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, session_id, child_id)
);

-- The properties of each session beside the time of its creation. Lists are
-- walked backwards here, so that a session's own row is in no index that a step
-- would have to keep. A facet is bytes because it may have a zero character.
CREATE TABLE session_facets (
    tenant     TEXT   NOT NULL,
    facet      BYTEA  NOT NULL,
    created_at BIGINT NOT NULL,
    session_id TEXT   COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, facet, created_at, session_id)
);

CREATE TABLE memories (
    tenant     TEXT   NOT NULL CHECK (tenant <> ''),
    memory_id  TEXT   COLLATE "C" NOT NULL CHECK (memory_id <> ''),
    entity_id  TEXT   COLLATE "C" NOT NULL,
    source     TEXT   COLLATE "C" NOT NULL,
    text       TEXT   NOT NULL,
    metadata   TEXT   NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, memory_id)
);

CREATE INDEX memories_entity ON memories (tenant, entity_id, source);
CREATE INDEX memories_updated ON memories (tenant, updated_at);

CREATE TABLE memory_words (
    tenant    TEXT NOT NULL,
    word      TEXT NOT NULL,
    memory_id TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, word, memory_id)
);

CREATE INDEX memory_words_memory ON memory_words (tenant, memory_id);
