-- Calls are found by their step: those of the last steps go when a session is taken
-- back.

DROP INDEX calls_session;
CREATE INDEX calls_session ON calls (tenant, session_id, step);
