-- What nothing reads any more: whether the end of a run stands in the stream, and sequences
-- of the stream. Positions have replaced them. Indexes and checks of a column go with it.

ALTER TABLE sessions
    DROP COLUMN stream_sequence,
    DROP COLUMN stream_step;

ALTER TABLE runs
    DROP COLUMN settled,
    DROP COLUMN start_sequence,
    DROP CONSTRAINT runs_check,
    DROP CONSTRAINT runs_check1,
    ADD CONSTRAINT runs_executor_check CHECK ((status = 'running') = (executor_id <> '')),
    ADD CONSTRAINT runs_waiting_check CHECK (status <> 'waiting' OR (turn = 0 AND place >= 1)),
    ADD CONSTRAINT runs_begun_check CHECK (turn >= 1 OR status NOT IN ('queued', 'running'));

ALTER TABLE checkpoints DROP COLUMN stream_sequence;
ALTER TABLE plans DROP COLUMN stream_sequence;
