-- A database as the third migration has left it: a session that waits for an
-- approval.

CREATE TABLE agents (
    agent_type text NOT NULL,
    description text NOT NULL,
    announced_at bigint NOT NULL,
    on_busy text DEFAULT ''::text NOT NULL,
    CONSTRAINT agents_agent_type_check CHECK ((agent_type <> ''::text)),
    CONSTRAINT agents_on_busy_check CHECK ((on_busy = ANY (ARRAY[''::text, 'reject'::text, 'enqueue'::text, 'interrupt'::text, 'rollback'::text])))
);

CREATE TABLE calls (
    tenant text NOT NULL,
    root_id text NOT NULL,
    call_id text NOT NULL COLLATE pg_catalog."C",
    session_id text NOT NULL,
    run_id text NOT NULL,
    step integer NOT NULL,
    step_id text NOT NULL,
    tool_name text NOT NULL,
    kind text NOT NULL,
    approval_id text NOT NULL,
    input text NOT NULL,
    stash bytea NOT NULL,
    created_at bigint NOT NULL,
    deadline_at bigint NOT NULL,
    answer text NOT NULL,
    revision integer NOT NULL,
    response bytea NOT NULL,
    answered_at bigint NOT NULL,
    consumed_at bigint NOT NULL,
    late bytea NOT NULL,
    late_at bigint NOT NULL,
    told boolean NOT NULL,
    consumed_step integer DEFAULT 0 NOT NULL,
    told_step integer DEFAULT 0 NOT NULL,
    CONSTRAINT calls_answer_check CHECK ((answer = ANY (ARRAY[''::text, 'client'::text, 'timeout'::text, 'abandoned'::text]))),
    CONSTRAINT calls_call_id_check CHECK ((call_id <> ''::text)),
    CONSTRAINT calls_kind_check CHECK ((kind = ANY (ARRAY['client_tool'::text, 'approval'::text]))),
    CONSTRAINT calls_session_id_check CHECK ((session_id <> ''::text))
);

CREATE TABLE checkpoints (
    tenant text NOT NULL,
    session_id text NOT NULL,
    step integer NOT NULL,
    checkpoint_id text NOT NULL,
    run_id text NOT NULL,
    epoch bigint NOT NULL,
    version bigint NOT NULL,
    message_count bigint NOT NULL,
    stream_sequence bigint NOT NULL,
    status text NOT NULL,
    state_version bigint NOT NULL,
    warnings text NOT NULL,
    created_at bigint NOT NULL,
    state_base bigint DEFAULT 0 NOT NULL,
    CONSTRAINT checkpoints_checkpoint_id_check CHECK ((checkpoint_id <> ''::text)),
    CONSTRAINT checkpoints_step_check CHECK ((step >= 1))
);

CREATE TABLE executors (
    executor_id text NOT NULL,
    heard_at bigint NOT NULL,
    CONSTRAINT executors_executor_id_check CHECK ((executor_id <> ''::text))
);

CREATE TABLE held_runs (
    tenant text NOT NULL,
    session_id text NOT NULL,
    run_id text NOT NULL,
    message_ids text NOT NULL,
    held text NOT NULL,
    CONSTRAINT held_runs_run_id_check CHECK ((run_id <> ''::text))
);

CREATE TABLE holdfast_state_migrations (
    version integer NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT holdfast_state_migrations_version_check CHECK ((version >= 1))
);

CREATE TABLE memories (
    tenant text NOT NULL,
    memory_id text NOT NULL COLLATE pg_catalog."C",
    entity_id text NOT NULL COLLATE pg_catalog."C",
    source text NOT NULL COLLATE pg_catalog."C",
    text text NOT NULL,
    metadata text NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    CONSTRAINT memories_memory_id_check CHECK ((memory_id <> ''::text)),
    CONSTRAINT memories_tenant_check CHECK ((tenant <> ''::text))
);

CREATE TABLE memory_words (
    tenant text NOT NULL,
    word text NOT NULL,
    memory_id text NOT NULL COLLATE pg_catalog."C"
);

CREATE TABLE messages (
    tenant text NOT NULL,
    session_id text NOT NULL,
    ordinal bigint NOT NULL,
    message_id text NOT NULL,
    role text NOT NULL,
    run_id text NOT NULL,
    step integer NOT NULL,
    created_at bigint NOT NULL,
    size bigint NOT NULL,
    body bytea NOT NULL,
    CONSTRAINT messages_message_id_check CHECK ((message_id <> ''::text)),
    CONSTRAINT messages_ordinal_check CHECK ((ordinal >= 0))
);

CREATE TABLE plans (
    tenant text NOT NULL,
    session_id text NOT NULL,
    step integer NOT NULL,
    body bytea NOT NULL,
    call_ids text NOT NULL,
    stream_sequence bigint NOT NULL,
    usage text NOT NULL
);

CREATE TABLE results (
    tenant text NOT NULL,
    session_id text NOT NULL,
    "position" integer NOT NULL,
    call_id text NOT NULL,
    body bytea NOT NULL,
    ops text NOT NULL,
    usage text NOT NULL,
    CONSTRAINT results_call_id_check CHECK ((call_id <> ''::text)),
    CONSTRAINT results_position_check CHECK (("position" >= 0))
);

CREATE TABLE runs (
    tenant text NOT NULL,
    session_id text NOT NULL,
    run_id text NOT NULL,
    agent_type text NOT NULL,
    turn integer NOT NULL,
    status text NOT NULL,
    request_key text NOT NULL,
    request_hash bytea NOT NULL,
    message_id text NOT NULL,
    start_sequence bigint NOT NULL,
    step_count integer NOT NULL,
    output text NOT NULL,
    failure text NOT NULL,
    completion_reason text NOT NULL,
    settled boolean NOT NULL,
    attempt integer NOT NULL,
    epoch bigint NOT NULL,
    executor_id text NOT NULL,
    claimed_at bigint NOT NULL,
    finish_step integer NOT NULL,
    finish_version bigint NOT NULL,
    traceparent text NOT NULL,
    tracestate text NOT NULL,
    created_at bigint NOT NULL,
    started_at bigint NOT NULL,
    completed_at bigint NOT NULL,
    entry text DEFAULT 'start'::text NOT NULL,
    stop text DEFAULT ''::text NOT NULL,
    due_at bigint DEFAULT 0 NOT NULL,
    losses integer DEFAULT 0 NOT NULL,
    deadline_at bigint DEFAULT 0 NOT NULL,
    on_busy text DEFAULT ''::text NOT NULL,
    place bigint DEFAULT 0 NOT NULL,
    start_message_count bigint DEFAULT 0 NOT NULL,
    start_state_version bigint DEFAULT 0 NOT NULL,
    start_state_base bigint DEFAULT 0 NOT NULL,
    turn_message_count bigint DEFAULT 0 NOT NULL,
    CONSTRAINT runs_begun_check CHECK (((turn >= 1) OR settled)),
    CONSTRAINT runs_check CHECK (((status <> 'queued'::text) OR (executor_id = ''::text))),
    CONSTRAINT runs_check1 CHECK (((status <> 'running'::text) OR (executor_id <> ''::text))),
    CONSTRAINT runs_check2 CHECK (((NOT settled) OR ((status <> ALL (ARRAY['queued'::text, 'running'::text])) AND (executor_id = ''::text)))),
    CONSTRAINT runs_on_busy_check CHECK ((on_busy = ANY (ARRAY[''::text, 'reject'::text, 'enqueue'::text, 'interrupt'::text, 'rollback'::text]))),
    CONSTRAINT runs_run_id_check CHECK ((run_id <> ''::text)),
    CONSTRAINT runs_status_check CHECK ((status = ANY (ARRAY['waiting'::text, 'queued'::text, 'running'::text, 'completed'::text, 'failed'::text, 'interrupted'::text, 'suspended_client_tool'::text, 'suspended_awaiting_children'::text, 'suspended_step_partial'::text]))),
    CONSTRAINT runs_step_count_check CHECK ((step_count >= 0)),
    CONSTRAINT runs_turn_check CHECK ((turn >= 0)),
    CONSTRAINT runs_waiting_check CHECK (((status <> 'waiting'::text) OR (settled AND (turn = 0) AND (place >= 1))))
)
WITH (fillfactor='80');

CREATE TABLE session_facets (
    tenant text NOT NULL,
    facet bytea NOT NULL,
    created_at bigint NOT NULL,
    session_id text NOT NULL COLLATE pg_catalog."C"
);

CREATE TABLE sessions (
    tenant text NOT NULL,
    session_id text NOT NULL,
    agent_type text NOT NULL,
    parent_id text NOT NULL,
    root_id text NOT NULL,
    status text NOT NULL,
    version bigint NOT NULL,
    epoch bigint NOT NULL,
    turn integer NOT NULL,
    step_count integer NOT NULL,
    message_count bigint NOT NULL,
    state_version bigint NOT NULL,
    output text NOT NULL,
    failure text NOT NULL,
    stream_sequence bigint NOT NULL,
    stream_step integer NOT NULL,
    current_run_id text NOT NULL,
    user_id text NOT NULL,
    tags text NOT NULL,
    metadata text NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    expires_at bigint NOT NULL,
    resume_count integer DEFAULT 0 NOT NULL,
    state_base bigint DEFAULT 1 NOT NULL,
    state_writes integer DEFAULT 0 NOT NULL,
    state_bytes bigint DEFAULT 0 NOT NULL,
    checkpoint_id text DEFAULT ''::text NOT NULL,
    suspension_context text DEFAULT ''::text NOT NULL,
    interruption text DEFAULT ''::text NOT NULL,
    children integer DEFAULT 0 NOT NULL,
    usage_count integer DEFAULT 0 NOT NULL,
    organization_id text DEFAULT ''::text NOT NULL,
    waiting integer DEFAULT 0 NOT NULL,
    CONSTRAINT sessions_agent_type_check CHECK ((agent_type <> ''::text)),
    CONSTRAINT sessions_check CHECK (((state_version >= 1) AND (state_version <= version))),
    CONSTRAINT sessions_check1 CHECK (((stream_step >= 0) AND (stream_step <= step_count))),
    CONSTRAINT sessions_check2 CHECK (((state_base >= 1) AND (state_base <= state_version))),
    CONSTRAINT sessions_epoch_check CHECK ((epoch >= 0)),
    CONSTRAINT sessions_message_count_check CHECK ((message_count >= 0)),
    CONSTRAINT sessions_root_id_check CHECK ((root_id <> ''::text)),
    CONSTRAINT sessions_session_id_check CHECK ((session_id <> ''::text)),
    CONSTRAINT sessions_status_check CHECK ((status = ANY (ARRAY['active'::text, 'completed'::text, 'failed'::text, 'interrupted'::text, 'paused'::text, 'suspended_client_tool'::text, 'suspended_awaiting_children'::text, 'suspended_step_partial'::text]))),
    CONSTRAINT sessions_step_count_check CHECK ((step_count >= 0)),
    CONSTRAINT sessions_stream_sequence_check CHECK ((stream_sequence >= 0)),
    CONSTRAINT sessions_tenant_check CHECK ((tenant <> ''::text)),
    CONSTRAINT sessions_turn_check CHECK ((turn >= 0)),
    CONSTRAINT sessions_version_check CHECK ((version >= 1)),
    CONSTRAINT sessions_waiting_check CHECK ((waiting >= 0))
)
WITH (fillfactor='80');

CREATE TABLE states (
    tenant text NOT NULL,
    session_id text NOT NULL,
    version bigint NOT NULL,
    state text NOT NULL,
    base_version bigint DEFAULT 0 NOT NULL,
    CONSTRAINT states_state_check CHECK ((state <> ''::text))
);

CREATE TABLE sub_sessions (
    tenant text NOT NULL,
    session_id text NOT NULL,
    child_id text NOT NULL COLLATE pg_catalog."C",
    agent_type text NOT NULL,
    call_id text NOT NULL,
    status text NOT NULL,
    mode text NOT NULL,
    name text NOT NULL,
    location text NOT NULL,
    remote text NOT NULL,
    started_at bigint NOT NULL,
    completed_at bigint NOT NULL,
    CONSTRAINT sub_sessions_child_id_check CHECK ((child_id <> ''::text)),
    CONSTRAINT sub_sessions_location_check CHECK ((location = ANY (ARRAY['local'::text, 'remote'::text]))),
    CONSTRAINT sub_sessions_mode_check CHECK ((mode = ANY (ARRAY['ephemeral'::text, 'persistent'::text])))
);

CREATE TABLE usage_entries (
    tenant text NOT NULL,
    session_id text NOT NULL,
    run_id text NOT NULL,
    step integer NOT NULL,
    "position" integer NOT NULL,
    recorded_at bigint NOT NULL,
    model text NOT NULL,
    prompt_tokens bigint NOT NULL,
    completion_tokens bigint NOT NULL,
    reasoning_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL,
    total_tokens bigint NOT NULL,
    tool text NOT NULL,
    success boolean NOT NULL,
    duration_ms bigint NOT NULL,
    kind text DEFAULT ''::text NOT NULL,
    source text DEFAULT ''::text NOT NULL,
    type text DEFAULT ''::text NOT NULL,
    name text DEFAULT ''::text NOT NULL,
    value double precision DEFAULT 0 NOT NULL
);

INSERT INTO agents (agent_type, description, announced_at, on_busy) VALUES ('support', '', 1795294805692, '');

INSERT INTO calls (tenant, root_id, call_id, session_id, run_id, step, step_id, tool_name, kind, approval_id, input, stash, created_at, deadline_at, answer, revision, response, answered_at, consumed_at, late, late_at, told, consumed_step, told_step) VALUES ('acme', 'trip', 'call_1', 'trip', 'run_ov4gpshfk3nwqnvmame36dpbpi', 1, 'step_1', 'book', 'approval', 'approval_1', '{"hotel":"Roma"}', '\x', 1795294805798, 0, '', 0, '\x', 0, 0, '\x', 0, false, 0, 0);

INSERT INTO checkpoints (tenant, session_id, step, checkpoint_id, run_id, epoch, version, message_count, stream_sequence, status, state_version, warnings, created_at, state_base) VALUES ('acme', 'trip', 1, 'cpv1-trip-s1-t1795294805798-ec06a8', 'run_ov4gpshfk3nwqnvmame36dpbpi', 1, 2, 2, 9, 'suspended_client_tool', 2, '', 1795294805798, 2);

INSERT INTO executors (executor_id, heard_at) VALUES ('e1', 1795294805692);

INSERT INTO holdfast_state_migrations (version, applied_at) VALUES (1, '2026-11-21 21:00:05.17303+00');
INSERT INTO holdfast_state_migrations (version, applied_at) VALUES (2, '2026-11-21 21:00:05.17303+00');
INSERT INTO holdfast_state_migrations (version, applied_at) VALUES (3, '2026-11-21 21:00:05.17303+00');

INSERT INTO messages (tenant, session_id, ordinal, message_id, role, run_id, step, created_at, size, body) VALUES ('acme', 'trip', 0, 'm1', 'user', 'run_ov4gpshfk3nwqnvmame36dpbpi', 0, 1795294805738, 59, '\x0a026d3110011a0c0a0a0a08426f6f6b2069742e221e72756e5f6f763467707368666b336e77716e766d616d653336647062706930eafda2ff9f34');
INSERT INTO messages (tenant, session_id, ordinal, message_id, role, run_id, step, created_at, size, body) VALUES ('acme', 'trip', 1, 'a1', 'assistant', 'run_ov4gpshfk3nwqnvmame36dpbpi', 1, 1795294805798, 83, '\x0a02613110021a221a200a0663616c6c5f311204626f6f6b1a107b22686f74656c223a22526f6d61227d221e72756e5f6f763467707368666b336e77716e766d616d6533366470627069280130a6fea2ff9f34');

INSERT INTO runs (tenant, session_id, run_id, agent_type, turn, status, request_key, request_hash, message_id, start_sequence, step_count, output, failure, completion_reason, settled, attempt, epoch, executor_id, claimed_at, finish_step, finish_version, traceparent, tracestate, created_at, started_at, completed_at, entry, stop, due_at, losses, deadline_at, on_busy, place, start_message_count, start_state_version, start_state_base, turn_message_count) VALUES ('acme', 'trip', 'run_ov4gpshfk3nwqnvmame36dpbpi', 'support', 1, 'suspended_client_tool', 'first', '\x41877e05bcac935ab003d8dd0c963cfeef2d5ea5b377173cea94d38376cf316d', 'msg_k2anc36byievxtr3odrdh6rxqp', 0, 1, '', '', '', true, 1, 1, '', 1795294805772, 1, 2, '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01', 'vendor=1', 1795294805738, 1795294805772, 1795294805798, 'start', '', 0, 0, 0, '', 0, 0, 1, 1, 0);

INSERT INTO session_facets (tenant, facet, created_at, session_id) VALUES ('acme', '\x6167656e743a737570706f7274', 1795294805738, 'trip');
INSERT INTO session_facets (tenant, facet, created_at, session_id) VALUES ('acme', '\x616c6c', 1795294805738, 'trip');
INSERT INTO session_facets (tenant, facet, created_at, session_id) VALUES ('acme', '\x706172656e743a', 1795294805738, 'trip');
INSERT INTO session_facets (tenant, facet, created_at, session_id) VALUES ('acme', '\x7461673a74726176656c', 1795294805738, 'trip');
INSERT INTO session_facets (tenant, facet, created_at, session_id) VALUES ('acme', '\x757365723a616e6e', 1795294805738, 'trip');
INSERT INTO session_facets (tenant, facet, created_at, session_id) VALUES ('acme', '\x7374617475733a73757370656e6465645f636c69656e745f746f6f6c', 1795294805738, 'trip');

INSERT INTO sessions (tenant, session_id, agent_type, parent_id, root_id, status, version, epoch, turn, step_count, message_count, state_version, output, failure, stream_sequence, stream_step, current_run_id, user_id, tags, metadata, created_at, updated_at, expires_at, resume_count, state_base, state_writes, state_bytes, checkpoint_id, suspension_context, interruption, children, usage_count, organization_id, waiting) VALUES ('acme', 'trip', 'support', '', 'trip', 'suspended_client_tool', 2, 1, 1, 1, 2, 2, '', '', 11, 1, 'run_ov4gpshfk3nwqnvmame36dpbpi', 'ann', '["travel"]', '', 1795294805738, 1795294805815, 0, 0, 2, 0, 0, 'cpv1-trip-s1-t1795294805798-ec06a8', '{"stepId":"step_1","tracing":{"traceId":"0af7651916cd43dd8448eb211c80319c","rootSpanId":"b7ad6b7169203331"}}', '', 0, 0, '', 0);

INSERT INTO states (tenant, session_id, version, state, base_version) VALUES ('acme', 'trip', 1, '{"city":"Rome"}', 1);
INSERT INTO states (tenant, session_id, version, state, base_version) VALUES ('acme', 'trip', 2, '{"city":"Rome","asked":true}', 2);

INSERT INTO usage_entries (tenant, session_id, run_id, step, "position", recorded_at, model, prompt_tokens, completion_tokens, reasoning_tokens, cached_tokens, total_tokens, tool, success, duration_ms, kind, source, type, name, value) VALUES ('acme', 'trip', 'run_ov4gpshfk3nwqnvmame36dpbpi', 1, 0, 1795294805798, 'm', 0, 0, 0, 0, 12, '', false, 0, 'tokens', 'agent', '', '', 0);

ALTER TABLE ONLY agents
    ADD CONSTRAINT agents_pkey PRIMARY KEY (agent_type);

ALTER TABLE ONLY calls
    ADD CONSTRAINT calls_pkey PRIMARY KEY (tenant, root_id, call_id);

ALTER TABLE ONLY checkpoints
    ADD CONSTRAINT checkpoints_pkey PRIMARY KEY (tenant, session_id, step);

ALTER TABLE ONLY executors
    ADD CONSTRAINT executors_pkey PRIMARY KEY (executor_id);

ALTER TABLE ONLY held_runs
    ADD CONSTRAINT held_runs_pkey PRIMARY KEY (tenant, session_id, run_id);

ALTER TABLE ONLY holdfast_state_migrations
    ADD CONSTRAINT holdfast_state_migrations_pkey PRIMARY KEY (version);

ALTER TABLE ONLY memories
    ADD CONSTRAINT memories_pkey PRIMARY KEY (tenant, memory_id);

ALTER TABLE ONLY memory_words
    ADD CONSTRAINT memory_words_pkey PRIMARY KEY (tenant, word, memory_id);

ALTER TABLE ONLY messages
    ADD CONSTRAINT messages_pkey PRIMARY KEY (tenant, session_id, ordinal);

ALTER TABLE ONLY messages
    ADD CONSTRAINT messages_tenant_session_id_message_id_key UNIQUE (tenant, session_id, message_id);

ALTER TABLE ONLY plans
    ADD CONSTRAINT plans_pkey PRIMARY KEY (tenant, session_id);

ALTER TABLE ONLY results
    ADD CONSTRAINT results_pkey PRIMARY KEY (tenant, session_id, "position");

ALTER TABLE ONLY results
    ADD CONSTRAINT results_tenant_session_id_call_id_key UNIQUE (tenant, session_id, call_id);

ALTER TABLE ONLY runs
    ADD CONSTRAINT runs_pkey PRIMARY KEY (tenant, session_id, run_id);

ALTER TABLE ONLY session_facets
    ADD CONSTRAINT session_facets_pkey PRIMARY KEY (tenant, facet, created_at, session_id);

ALTER TABLE ONLY sessions
    ADD CONSTRAINT sessions_pkey PRIMARY KEY (tenant, session_id);

ALTER TABLE ONLY states
    ADD CONSTRAINT states_pkey PRIMARY KEY (tenant, session_id, version);

ALTER TABLE ONLY sub_sessions
    ADD CONSTRAINT sub_sessions_pkey PRIMARY KEY (tenant, session_id, child_id);

ALTER TABLE ONLY usage_entries
    ADD CONSTRAINT usage_entries_pkey PRIMARY KEY (tenant, session_id, run_id, step, "position");

CREATE INDEX calls_consumed ON calls USING btree (tenant, session_id, consumed_step) WHERE (consumed_at > 0);

CREATE INDEX calls_deadline ON calls USING btree (deadline_at) WHERE ((answer = ''::text) AND (deadline_at > 0));

CREATE INDEX calls_due ON calls USING btree (tenant, session_id) WHERE ((consumed_at = 0) OR ((late_at > 0) AND (NOT told)));

CREATE INDEX calls_family ON calls USING btree (tenant, root_id) WHERE (consumed_at = 0);

CREATE INDEX calls_session ON calls USING btree (tenant, session_id);

CREATE INDEX calls_told ON calls USING btree (tenant, session_id, told_step) WHERE (told_step > 0);

CREATE UNIQUE INDEX checkpoints_id ON checkpoints USING btree (tenant, session_id, checkpoint_id);

CREATE INDEX memories_entity ON memories USING btree (tenant, entity_id, source);

CREATE INDEX memories_updated ON memories USING btree (tenant, updated_at);

CREATE INDEX memory_words_memory ON memory_words USING btree (tenant, memory_id);

CREATE INDEX runs_due ON runs USING btree (agent_type, due_at, created_at) WHERE (status = 'queued'::text);

CREATE INDEX runs_due_settling ON runs USING btree (agent_type, created_at) WHERE ((NOT settled) AND (status <> ALL (ARRAY['queued'::text, 'running'::text])));

CREATE INDEX runs_held ON runs USING btree (executor_id) WHERE (executor_id <> ''::text);

CREATE UNIQUE INDEX runs_live ON runs USING btree (tenant, session_id) WHERE (status = ANY (ARRAY['queued'::text, 'running'::text]));

CREATE UNIQUE INDEX runs_request_key ON runs USING btree (tenant, session_id, request_key) WHERE (request_key <> ''::text);

CREATE INDEX runs_stopped ON runs USING btree (executor_id) WHERE ((status = 'running'::text) AND (stop <> ''::text));

CREATE UNIQUE INDEX runs_turn ON runs USING btree (tenant, session_id, turn) WHERE (turn > 0);

CREATE UNIQUE INDEX runs_unsettled ON runs USING btree (tenant, session_id) WHERE ((NOT settled) AND (status <> ALL (ARRAY['queued'::text, 'running'::text])));

CREATE UNIQUE INDEX runs_waiting ON runs USING btree (tenant, session_id, place) WHERE (status = 'waiting'::text);

CREATE INDEX sessions_expiry ON sessions USING btree (expires_at) WHERE ((expires_at > 0) AND (status <> ALL (ARRAY['completed'::text, 'failed'::text])));

CREATE INDEX usage_entries_recorded ON usage_entries USING btree (tenant, recorded_at);
