-- Runs and calls know who wrote the message of their turn, if somebody else started the run.

ALTER TABLE runs ADD COLUMN author text NOT NULL DEFAULT '';
ALTER TABLE calls ADD COLUMN author text NOT NULL DEFAULT '';
