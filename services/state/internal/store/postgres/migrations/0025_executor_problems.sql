-- What is out of service at an executor, as JSON; empty for nothing. Older code writes nothing.

ALTER TABLE executors ADD COLUMN problems TEXT NOT NULL DEFAULT '';
