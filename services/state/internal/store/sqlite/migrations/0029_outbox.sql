-- The outbox: who is told what, and the deliveries of it.

CREATE TABLE subscriptions (
    tenant          TEXT    NOT NULL,
    subscription_id TEXT    NOT NULL,
    url             TEXT    NOT NULL,
    kinds           TEXT    NOT NULL, -- a JSON array; empty for all
    agents          TEXT    NOT NULL, -- a JSON array; empty for all
    secrets         TEXT    NOT NULL, -- a JSON array, the newest first
    paused          INTEGER NOT NULL,
    created_by      TEXT    NOT NULL,
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL,
    PRIMARY KEY (tenant, subscription_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE deliveries (
    number          INTEGER NOT NULL PRIMARY KEY,
    tenant          TEXT    NOT NULL,
    subscription_id TEXT    NOT NULL,
    session_id      TEXT    NOT NULL, -- empty for a test
    event_id        TEXT    NOT NULL,
    kind            TEXT    NOT NULL,
    root_id         TEXT    NOT NULL,
    run_id          TEXT    NOT NULL,
    call_id         TEXT    NOT NULL,
    agent_type      TEXT    NOT NULL,
    happened_at     INTEGER NOT NULL,
    facts           TEXT    NOT NULL,
    status          TEXT    NOT NULL, -- pending, delivered or dead
    due_at          INTEGER NOT NULL,
    first_at        INTEGER NOT NULL DEFAULT 0,
    attempts        INTEGER NOT NULL DEFAULT 0,
    error           TEXT    NOT NULL DEFAULT '',
    executor_id     TEXT    NOT NULL DEFAULT '',
    claim_id        TEXT    NOT NULL DEFAULT '',
    ended_at        INTEGER NOT NULL DEFAULT 0,
    expires_at      INTEGER NOT NULL
) STRICT;

CREATE INDEX deliveries_due ON deliveries (tenant, subscription_id, due_at, number) WHERE status = 'pending';
CREATE INDEX deliveries_order ON deliveries (tenant, subscription_id, session_id, number) WHERE status = 'pending';
CREATE INDEX deliveries_claimed ON deliveries (tenant, subscription_id, claim_id) WHERE executor_id <> '';
CREATE INDEX deliveries_dead ON deliveries (tenant, subscription_id, number) WHERE status = 'dead';
CREATE INDEX deliveries_listed ON deliveries (tenant, subscription_id, number);
CREATE INDEX deliveries_expiry ON deliveries (expires_at);
