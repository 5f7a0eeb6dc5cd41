-- The audit log, and the live logs of deleted sessions that a gateway has to remove.

CREATE TABLE audit (
    tenant      TEXT NOT NULL, -- empty for events of no tenant
    session_id  TEXT NOT NULL, -- empty for events outside of sessions
    event_id    TEXT NOT NULL CHECK (event_id <> ''),
    recorded_at INTEGER NOT NULL,
    actor       TEXT NOT NULL,
    action      TEXT NOT NULL CHECK (action <> ''),
    target_kind TEXT NOT NULL,
    target_id   TEXT NOT NULL,
    outcome     TEXT NOT NULL,
    detail      TEXT NOT NULL,
    PRIMARY KEY (tenant, session_id, event_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX audit_by_time ON audit (tenant, recorded_at, event_id);
CREATE INDEX audit_by_actor ON audit (tenant, actor, recorded_at, event_id);
CREATE INDEX audit_by_action ON audit (tenant, action, recorded_at, event_id);
CREATE INDEX audit_expiry ON audit (recorded_at);

CREATE TABLE log_erasures (
    tenant     TEXT NOT NULL CHECK (tenant <> ''),
    root_id    TEXT NOT NULL, -- empty for the whole tenant
    session_id TEXT NOT NULL, -- empty for the whole family
    due_at     INTEGER NOT NULL,
    PRIMARY KEY (tenant, root_id, session_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX log_erasures_due ON log_erasures (due_at);
