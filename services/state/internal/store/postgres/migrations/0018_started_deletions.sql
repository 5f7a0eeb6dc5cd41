-- A replica has begun to delete the bytes, so the file can no longer be added.

ALTER TABLE blob_deletions ADD COLUMN started BOOLEAN NOT NULL DEFAULT FALSE;
