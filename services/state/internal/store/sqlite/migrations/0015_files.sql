-- Files of messages. A file exists as long as a link to it. A link without a session is a hold for a time.

CREATE TABLE files (
    tenant     TEXT    NOT NULL CHECK (tenant <> ''),
    file_id    TEXT    NOT NULL CHECK (file_id <> ''),
    media_type TEXT    NOT NULL CHECK (media_type <> ''),
    size       INTEGER NOT NULL CHECK (size > 0),
    digest     BLOB    NOT NULL CHECK (length(digest) = 32),
    created_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, file_id)
) STRICT;

CREATE UNIQUE INDEX files_content ON files (tenant, digest, media_type);
CREATE UNIQUE INDEX files_id ON files (file_id);

CREATE TABLE file_links (
    tenant     TEXT    NOT NULL,
    session_id TEXT    NOT NULL,
    file_id    TEXT    NOT NULL,
    lapses_at  INTEGER NOT NULL, -- 0 for never
    PRIMARY KEY (tenant, session_id, file_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX file_links_of_file ON file_links (tenant, file_id);
CREATE INDEX file_links_lapsing ON file_links (lapses_at) WHERE lapses_at > 0;

-- The bytes of files, if the database holds them. A chunk begins at the byte start of its file.
CREATE TABLE file_chunks (
    tenant  TEXT    NOT NULL,
    file_id TEXT    NOT NULL,
    start   INTEGER NOT NULL,
    data    BLOB    NOT NULL,
    PRIMARY KEY (tenant, file_id, start)
) STRICT;

-- Bytes to delete when due. A row is written before the bytes are stored, and removed with the row of their file.
CREATE TABLE blob_deletions (
    tenant  TEXT    NOT NULL,
    file_id TEXT    NOT NULL,
    due_at  INTEGER NOT NULL,
    PRIMARY KEY (tenant, file_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX blob_deletions_due ON blob_deletions (due_at);
