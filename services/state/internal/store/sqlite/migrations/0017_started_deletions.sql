-- A process has begun to delete the bytes, so the file can no longer be added.

ALTER TABLE blob_deletions ADD COLUMN started INTEGER NOT NULL DEFAULT 0;
