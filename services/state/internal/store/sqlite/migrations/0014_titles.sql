-- A title for people.

ALTER TABLE sessions ADD COLUMN title TEXT NOT NULL DEFAULT '';
