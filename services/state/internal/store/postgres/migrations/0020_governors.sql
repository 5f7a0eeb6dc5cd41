-- Governors of model calls. The state is JSON: the last minute and the queue. A row locks the leases of its governor.

CREATE TABLE governors (
    name  TEXT COLLATE "C" PRIMARY KEY CHECK (name <> ''),
    state TEXT NOT NULL
);

-- Calls in progress. They are rows of their own, so that a call rewrites no others.
CREATE TABLE governor_leases (
    governor    TEXT   COLLATE "C" NOT NULL,
    lease_id    TEXT   COLLATE "C" NOT NULL CHECK (lease_id <> ''),
    executor_id TEXT   NOT NULL,
    slot        BIGINT NOT NULL,
    tokens      BIGINT NOT NULL,
    expires_at  BIGINT NOT NULL,
    PRIMARY KEY (governor, lease_id)
);
