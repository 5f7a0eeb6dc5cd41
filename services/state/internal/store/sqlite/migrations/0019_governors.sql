-- Governors of model calls. The state is JSON: the last minute and the queue.

CREATE TABLE governors (
    name  TEXT NOT NULL PRIMARY KEY CHECK (name <> ''),
    state TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Calls in progress. They are rows of their own, so that a call rewrites no others.
CREATE TABLE governor_leases (
    governor    TEXT    NOT NULL,
    lease_id    TEXT    NOT NULL CHECK (lease_id <> ''),
    executor_id TEXT    NOT NULL,
    slot        INTEGER NOT NULL,
    tokens      INTEGER NOT NULL,
    expires_at  INTEGER NOT NULL,
    PRIMARY KEY (governor, lease_id)
) STRICT, WITHOUT ROWID;
