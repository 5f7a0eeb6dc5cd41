-- Calls of sub-agents, which the end of a child answers, and the depth of a session in its family.

ALTER TABLE calls DROP CONSTRAINT calls_kind_check;
ALTER TABLE calls ADD CONSTRAINT calls_kind_check CHECK (kind IN ('client_tool', 'approval', 'sub_agent'));
ALTER TABLE calls DROP CONSTRAINT calls_answer_check;
ALTER TABLE calls ADD CONSTRAINT calls_answer_check CHECK (answer IN ('', 'client', 'timeout', 'abandoned', 'child'));

ALTER TABLE sessions ADD COLUMN depth INTEGER NOT NULL DEFAULT 0;
