-- Recorded results have the rows of context that their calls have added.

ALTER TABLE results ADD COLUMN context bytea NOT NULL DEFAULT '';
