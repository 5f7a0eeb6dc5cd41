-- A database as the third migration has left it: a session that waits for an
-- approval.

BEGIN TRANSACTION;
CREATE TABLE agents (
    agent_type   TEXT    NOT NULL PRIMARY KEY CHECK (agent_type <> ''),
    description  TEXT    NOT NULL,
    announced_at INTEGER NOT NULL
, on_busy TEXT NOT NULL DEFAULT '' CHECK (on_busy IN ('', 'reject', 'enqueue', 'interrupt', 'rollback'))) STRICT;
INSERT INTO "agents" VALUES('support','',1795294804936,'');
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
    told        INTEGER NOT NULL CHECK (told IN (0, 1)), consumed_step INTEGER NOT NULL DEFAULT 0, told_step INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, root_id, call_id)
) STRICT;
INSERT INTO "calls" VALUES('acme','trip','call_1','trip','run_7sx7qsiti4ojt5rw7gmg7zdpuw',1,'step_1','book','approval','approval_1','{"hotel":"Roma"}',X'',1795294805083,0,'',0,X'',0,0,X'',0,0,0,0);
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
    created_at      INTEGER NOT NULL, state_base INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, session_id, step)
) STRICT;
INSERT INTO "checkpoints" VALUES('acme','trip',1,'cpv1-trip-s1-t1795294805083-47e786','run_7sx7qsiti4ojt5rw7gmg7zdpuw',1,2,2,9,'suspended_client_tool',2,'',1795294805083,2);
CREATE TABLE executors (
    executor_id TEXT    NOT NULL PRIMARY KEY CHECK (executor_id <> ''),
    heard_at    INTEGER NOT NULL
) STRICT;
INSERT INTO "executors" VALUES('e1',1795294805024);
CREATE TABLE held_runs (
    tenant      TEXT NOT NULL,
    session_id  TEXT NOT NULL,
    run_id      TEXT NOT NULL CHECK (run_id <> ''),
    message_ids TEXT NOT NULL,
    held        TEXT NOT NULL,
    PRIMARY KEY (tenant, session_id, run_id)
) STRICT;
CREATE TABLE holdfast_state_migrations (
			version INTEGER NOT NULL PRIMARY KEY CHECK (version >= 1)) STRICT;
INSERT INTO "holdfast_state_migrations" VALUES(1);
INSERT INTO "holdfast_state_migrations" VALUES(2);
INSERT INTO "holdfast_state_migrations" VALUES(3);
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
CREATE TABLE memory_words (
    tenant    TEXT NOT NULL,
    word      TEXT NOT NULL CHECK (word <> ''),
    memory_id TEXT NOT NULL,
    PRIMARY KEY (tenant, word, memory_id)
) STRICT, WITHOUT ROWID;
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
INSERT INTO "messages" VALUES('acme','trip',0,'m1','user','run_7sx7qsiti4ojt5rw7gmg7zdpuw',0,1795294805035,59,X'0A026D3110011A0C0A0A0A08426F6F6B2069742E221E72756E5F377378377173697469346F6A7435727737676D67377A6470757730ABF8A2FF9F34');
INSERT INTO "messages" VALUES('acme','trip',1,'a1','assistant','run_7sx7qsiti4ojt5rw7gmg7zdpuw',1,1795294805083,83,X'0A02613110021A221A200A0663616C6C5F311204626F6F6B1A107B22686F74656C223A22526F6D61227D221E72756E5F377378377173697469346F6A7435727737676D67377A64707577280130DBF8A2FF9F34');
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
CREATE TABLE "runs" (
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
INSERT INTO "runs" VALUES('acme','trip','run_7sx7qsiti4ojt5rw7gmg7zdpuw','support',1,'suspended_client_tool','first',X'41877E05BCAC935AB003D8DD0C963CFEEF2D5EA5B377173CEA94D38376CF316D','msg_f5ymajyleygvemkq67euo2p6zx',0,1,'','','',1,1,1,'',1795294805057,1,2,'00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01','vendor=1',1795294805035,1795294805057,1795294805083,'start','',0,0,0,'',0,0,1,1,0);
CREATE TABLE session_facets (
    tenant     TEXT    NOT NULL,
    facet      TEXT    NOT NULL CHECK (facet <> ''),
    created_at INTEGER NOT NULL,
    session_id TEXT    NOT NULL,
    PRIMARY KEY (tenant, facet, created_at, session_id)
) STRICT, WITHOUT ROWID;
INSERT INTO "session_facets" VALUES('acme','agent:support',1795294805035,'trip');
INSERT INTO "session_facets" VALUES('acme','all',1795294805035,'trip');
INSERT INTO "session_facets" VALUES('acme','parent:',1795294805035,'trip');
INSERT INTO "session_facets" VALUES('acme','status:suspended_client_tool',1795294805035,'trip');
INSERT INTO "session_facets" VALUES('acme','tag:travel',1795294805035,'trip');
INSERT INTO "session_facets" VALUES('acme','user:ann',1795294805035,'trip');
CREATE TABLE "sessions" (
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
    expires_at         INTEGER NOT NULL, waiting INTEGER NOT NULL DEFAULT 0 CHECK (waiting >= 0),
    PRIMARY KEY (tenant, session_id)
) STRICT;
INSERT INTO "sessions" VALUES('acme','trip','support','','trip','suspended_client_tool',2,1,1,1,0,2,2,2,0,0,'','',11,1,'run_7sx7qsiti4ojt5rw7gmg7zdpuw','cpv1-trip-s1-t1795294805083-47e786','{"stepId":"step_1","tracing":{"traceId":"0af7651916cd43dd8448eb211c80319c","rootSpanId":"b7ad6b7169203331"}}','',0,0,'ann','','["travel"]','',1795294805035,1795294805088,0,0);
CREATE TABLE states (
    tenant     TEXT    NOT NULL,
    session_id TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    state      TEXT    NOT NULL CHECK (state <> ''), base_version INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, session_id, version)
) STRICT;
INSERT INTO "states" VALUES('acme','trip',1,'{"city":"Rome"}',1);
INSERT INTO "states" VALUES('acme','trip',2,'{"city":"Rome","asked":true}',2);
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
    duration_ms       INTEGER NOT NULL, kind   TEXT NOT NULL DEFAULT '', source TEXT NOT NULL DEFAULT '', type   TEXT NOT NULL DEFAULT '', name   TEXT NOT NULL DEFAULT '', value  REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, session_id, run_id, step, position)
) STRICT;
INSERT INTO "usage_entries" VALUES('acme','trip','run_7sx7qsiti4ojt5rw7gmg7zdpuw',1,0,1795294805083,'m',0,0,0,0,12,'',0,0,'tokens','agent','','',0.0);
CREATE INDEX sessions_expiring ON sessions (expires_at) WHERE expires_at > 0 AND status NOT IN ('completed', 'failed');
CREATE UNIQUE INDEX checkpoints_id ON checkpoints (tenant, session_id, checkpoint_id);
CREATE INDEX usage_entries_time ON usage_entries (tenant, recorded_at);
CREATE INDEX calls_session ON calls (tenant, session_id);
CREATE INDEX calls_waiting ON calls (tenant, session_id) WHERE consumed_at = 0 OR (late_at > 0 AND NOT told);
CREATE INDEX calls_pending ON calls (tenant, root_id) WHERE consumed_at = 0;
CREATE INDEX calls_overdue ON calls (deadline_at) WHERE answer = '' AND deadline_at > 0;
CREATE INDEX memories_entity ON memories (tenant, entity_id, source);
CREATE INDEX memories_newest ON memories (tenant, updated_at DESC, memory_id);
CREATE INDEX memory_words_memory ON memory_words (tenant, memory_id);
CREATE UNIQUE INDEX runs_turn ON runs (tenant, session_id, turn) WHERE turn > 0;
CREATE UNIQUE INDEX runs_request_key ON runs (tenant, session_id, request_key) WHERE request_key <> '';
CREATE UNIQUE INDEX runs_live ON runs (tenant, session_id) WHERE status IN ('queued', 'running');
CREATE UNIQUE INDEX runs_unsettled ON runs (tenant, session_id) WHERE NOT settled AND status NOT IN ('queued', 'running');
CREATE UNIQUE INDEX runs_waiting ON runs (tenant, session_id, place) WHERE status = 'waiting';
CREATE INDEX runs_due ON runs (agent_type, due_at, created_at, tenant, session_id) WHERE status = 'queued';
CREATE INDEX runs_due_settling ON runs (agent_type, created_at, tenant, session_id) WHERE NOT settled AND status NOT IN ('queued', 'running');
CREATE INDEX runs_held ON runs (executor_id) WHERE executor_id <> '';
CREATE INDEX runs_stopped ON runs (executor_id) WHERE status = 'running' AND stop <> '';
CREATE INDEX calls_consumed ON calls (tenant, session_id, consumed_step) WHERE consumed_at > 0;
CREATE INDEX calls_told ON calls (tenant, session_id, told_step) WHERE told_step > 0;
COMMIT;
