-- Where a session and its runs stand (package position says how that is packed), and what
-- readers saw of a step beside its messages. Of what is there, a session stands at the
-- end of its newest step, and a run that ended with a step ended there.

ALTER TABLE sessions
    ADD COLUMN position BIGINT  NOT NULL DEFAULT 0 CHECK (position >= 0),
    ADD COLUMN claims   INTEGER NOT NULL DEFAULT 0 CHECK (claims >= 0);
UPDATE sessions s SET position = (c.step + 1)::BIGINT * 1073741824 - CASE WHEN s.status = 'active' AND c.status = 'active' THEN 3 ELSE 1 END
    FROM checkpoints c WHERE c.tenant = s.tenant AND c.session_id = s.session_id AND c.checkpoint_id = s.checkpoint_id;

ALTER TABLE runs
    ADD COLUMN start_position BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN end_position   BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN usage          TEXT   NOT NULL DEFAULT '';
UPDATE runs SET end_position = (finish_step + 1)::BIGINT * 1073741824 - 1 WHERE finish_step > 0;

ALTER TABLE checkpoints ADD COLUMN record BYTEA NOT NULL DEFAULT '';
