-- Tenants store agents. A name points to a definition, which is stored by its hash. Older code writes nothing and finds nothing.

CREATE TABLE stored_agents (
    tenant       TEXT    NOT NULL,
    agent_type   TEXT    NOT NULL,
    definition   TEXT    NOT NULL,
    description  TEXT    NOT NULL,
    on_busy      TEXT    NOT NULL,
    state_schema TEXT    NOT NULL,
    remote       BOOLEAN NOT NULL,
    stored_by    TEXT    NOT NULL,
    stored_at    BIGINT  NOT NULL,
    PRIMARY KEY (tenant, agent_type)
);

CREATE TABLE definitions (
    tenant     TEXT   NOT NULL,
    hash       TEXT   NOT NULL,
    definition TEXT   NOT NULL,
    stored_at  BIGINT NOT NULL,
    PRIMARY KEY (tenant, hash)
);

-- A run of a stored agent has the agent type of all of them, its own in stored_agent, and the hash that its newest claim runs.
ALTER TABLE runs ADD COLUMN stored_agent TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN definition TEXT NOT NULL DEFAULT '';
