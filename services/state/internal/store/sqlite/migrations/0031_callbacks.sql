-- Calls whose results other systems post. SQLite changes a CHECK only by another table.

CREATE TABLE calls_rebuilt (
    tenant        TEXT    NOT NULL,
    root_id       TEXT    NOT NULL,
    call_id       TEXT    NOT NULL CHECK (call_id <> ''),
    session_id    TEXT    NOT NULL CHECK (session_id <> ''),
    run_id        TEXT    NOT NULL,
    step          INTEGER NOT NULL,
    step_id       TEXT    NOT NULL,
    tool_name     TEXT    NOT NULL,
    kind          TEXT    NOT NULL CHECK (kind IN ('client_tool', 'approval', 'sub_agent', 'callback')),
    approval_id   TEXT    NOT NULL,
    input         TEXT    NOT NULL,
    stash         BLOB    NOT NULL,
    created_at    INTEGER NOT NULL,
    deadline_at   INTEGER NOT NULL,
    answer        TEXT    NOT NULL CHECK (answer IN ('', 'client', 'timeout', 'abandoned', 'child')),
    revision      INTEGER NOT NULL,
    response      BLOB    NOT NULL,
    answered_at   INTEGER NOT NULL,
    consumed_at   INTEGER NOT NULL,
    late          BLOB    NOT NULL,
    late_at       INTEGER NOT NULL,
    told          INTEGER NOT NULL CHECK (told IN (0, 1)),
    consumed_step INTEGER NOT NULL DEFAULT 0,
    told_step     INTEGER NOT NULL DEFAULT 0,
    started_by    TEXT    NOT NULL DEFAULT '',
    answered_by   TEXT    NOT NULL DEFAULT '',
    approvers     TEXT    NOT NULL DEFAULT '' CHECK (approvers IN ('', 'others')),
    child_id      TEXT    NOT NULL DEFAULT '',
    author        TEXT    NOT NULL DEFAULT '',
    PRIMARY KEY (tenant, root_id, call_id)
) STRICT;

INSERT INTO calls_rebuilt (tenant, root_id, call_id, session_id, run_id, step, step_id, tool_name, kind, approval_id, input, stash, created_at, deadline_at,
    answer, revision, response, answered_at, consumed_at, late, late_at, told, consumed_step, told_step, started_by, answered_by, approvers,
    child_id, author)
SELECT tenant, root_id, call_id, session_id, run_id, step, step_id, tool_name, kind, approval_id, input, stash, created_at, deadline_at,
    answer, revision, response, answered_at, consumed_at, late, late_at, told, consumed_step, told_step, started_by, answered_by, approvers,
    child_id, author FROM calls;
DROP TABLE calls;
ALTER TABLE calls_rebuilt RENAME TO calls;

CREATE INDEX calls_session ON calls (tenant, session_id, step);
CREATE INDEX calls_waiting ON calls (tenant, session_id) WHERE consumed_at = 0 OR (late_at > 0 AND NOT told);
CREATE INDEX calls_pending ON calls (tenant, root_id) WHERE consumed_at = 0;
CREATE INDEX calls_overdue ON calls (deadline_at) WHERE answer = '' AND deadline_at > 0;
CREATE INDEX calls_consumed ON calls (tenant, session_id, consumed_step) WHERE consumed_at > 0;
CREATE INDEX calls_told ON calls (tenant, session_id, told_step) WHERE told_step > 0;
CREATE INDEX calls_open ON calls (tenant, created_at, root_id, call_id)
    WHERE answer = '' AND consumed_at = 0 AND run_id <> '' AND kind <> 'sub_agent';
CREATE INDEX calls_others ON calls (tenant, created_at, root_id, call_id)
    WHERE approvers = 'others' AND answer = '' AND consumed_at = 0 AND run_id <> '';
