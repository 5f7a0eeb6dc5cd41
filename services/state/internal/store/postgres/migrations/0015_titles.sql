-- A title of sessions, and the calls that wait for a client, oldest first.

ALTER TABLE sessions ADD COLUMN title TEXT NOT NULL DEFAULT '';

CREATE INDEX calls_open ON calls (tenant, created_at, root_id COLLATE "C", call_id) WHERE answer = '' AND consumed_at = 0 AND run_id <> '' AND kind <> 'sub_agent';
