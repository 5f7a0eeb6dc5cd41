-- What agents permit to those who send them messages, as JSON; empty for nothing.

ALTER TABLE agents ADD COLUMN rules TEXT NOT NULL DEFAULT '';
ALTER TABLE stored_agents ADD COLUMN rules TEXT NOT NULL DEFAULT '';
