-- Recorded results have the rows of context that their calls have added.

ALTER TABLE results ADD COLUMN context BLOB NOT NULL DEFAULT x'';
