-- What executors announce of their agents: the schema of the custom state, and
-- whether another Holdfast runs the agent.

ALTER TABLE agents ADD COLUMN state_schema TEXT NOT NULL DEFAULT '';
ALTER TABLE agents ADD COLUMN remote BOOLEAN NOT NULL DEFAULT FALSE;
