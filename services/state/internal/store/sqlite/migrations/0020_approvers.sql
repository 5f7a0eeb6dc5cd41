-- Runs and calls know who started, may approve and answered them.

ALTER TABLE runs ADD COLUMN started_by text NOT NULL DEFAULT '';
ALTER TABLE calls ADD COLUMN started_by text NOT NULL DEFAULT '';
ALTER TABLE calls ADD COLUMN answered_by text NOT NULL DEFAULT '';
ALTER TABLE calls ADD COLUMN approvers text NOT NULL DEFAULT '' CHECK (approvers IN ('', 'others'));

CREATE INDEX calls_others ON calls (tenant, created_at, root_id, call_id)
	WHERE approvers = 'others' AND answer = '' AND consumed_at = 0 AND run_id <> '';
