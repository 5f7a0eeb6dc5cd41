-- A call of a sub-agent names the child that answers it, so that several calls can wait for one companion.

ALTER TABLE calls ADD COLUMN child_id text NOT NULL DEFAULT '';
