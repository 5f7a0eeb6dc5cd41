-- What nothing reads any more: whether the end of a run stands in the stream. The indexes
-- and checks of the column go with it.

ALTER TABLE runs
    DROP COLUMN settled,
    DROP CONSTRAINT runs_check,
    DROP CONSTRAINT runs_check1,
    ADD CONSTRAINT runs_executor_check CHECK ((status = 'running') = (executor_id <> '')),
    ADD CONSTRAINT runs_waiting_check CHECK (status <> 'waiting' OR (turn = 0 AND place >= 1)),
    ADD CONSTRAINT runs_begun_check CHECK (turn >= 1 OR status NOT IN ('queued', 'running'));
