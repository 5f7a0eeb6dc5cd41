-- Why the model stopped last, for whoever tells of the end of a run.

ALTER TABLE runs ADD COLUMN finish_reason TEXT NOT NULL DEFAULT '';
