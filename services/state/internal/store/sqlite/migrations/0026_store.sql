-- The private stores of sessions. A key is compared by its bytes.

CREATE TABLE store_entries (
    tenant     TEXT NOT NULL,
    session_id TEXT NOT NULL,
    key        TEXT NOT NULL CHECK (key <> ''),
    value      TEXT NOT NULL,
    PRIMARY KEY (tenant, session_id, key)
) STRICT;

ALTER TABLE sessions ADD COLUMN store_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE results ADD COLUMN stored TEXT NOT NULL DEFAULT '';
