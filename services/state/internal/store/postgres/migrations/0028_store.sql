-- The private stores of sessions. A key is compared by its bytes.

CREATE TABLE store_entries (
    tenant     TEXT NOT NULL,
    session_id TEXT NOT NULL,
    key        TEXT COLLATE "C" NOT NULL CHECK (key <> ''),
    value      TEXT NOT NULL,
    PRIMARY KEY (tenant, session_id, key)
);

ALTER TABLE sessions ADD COLUMN store_bytes bigint NOT NULL DEFAULT 0;
ALTER TABLE results ADD COLUMN stored text NOT NULL DEFAULT '';
