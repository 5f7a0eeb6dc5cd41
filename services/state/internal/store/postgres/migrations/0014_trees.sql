-- The sub-sessions that have not ended, by tree: their number is limited.

CREATE INDEX sessions_live_below ON sessions (tenant, root_id) WHERE parent_id <> '' AND status NOT IN ('completed', 'failed');
