-- Files of messages. A file exists as long as a link to it. A link without a session is a hold for a time.

CREATE TABLE files (
    tenant     TEXT   NOT NULL CHECK (tenant <> ''),
    file_id    TEXT   COLLATE "C" NOT NULL CHECK (file_id <> ''),
    media_type TEXT   COLLATE "C" NOT NULL CHECK (media_type <> ''),
    size       BIGINT NOT NULL CHECK (size > 0),
    digest     BYTEA  NOT NULL CHECK (octet_length(digest) = 32),
    created_at BIGINT NOT NULL,
    PRIMARY KEY (tenant, file_id)
);

CREATE UNIQUE INDEX files_content ON files (tenant, digest, media_type);
CREATE UNIQUE INDEX files_id ON files (file_id);

-- A foreign key, so that a command cannot link a file while another transaction deletes it.
CREATE TABLE file_links (
    tenant     TEXT   NOT NULL,
    session_id TEXT   NOT NULL,
    file_id    TEXT   COLLATE "C" NOT NULL,
    lapses_at  BIGINT NOT NULL, -- 0 for never
    PRIMARY KEY (tenant, session_id, file_id),
    CONSTRAINT file_links_file FOREIGN KEY (tenant, file_id) REFERENCES files (tenant, file_id)
);

CREATE INDEX file_links_of_file ON file_links (tenant, file_id);
CREATE INDEX file_links_lapsing ON file_links (lapses_at) WHERE lapses_at > 0;

-- The bytes of files, if the database holds them. A chunk begins at the byte start of its file.
CREATE TABLE file_chunks (
    tenant  TEXT   NOT NULL,
    file_id TEXT   COLLATE "C" NOT NULL,
    start   BIGINT NOT NULL,
    data    BYTEA  NOT NULL,
    PRIMARY KEY (tenant, file_id, start)
);

ALTER TABLE file_chunks ALTER COLUMN data SET STORAGE EXTERNAL; -- images are compressed already

-- Bytes to delete when due. A row is written before the bytes are stored, and removed with the row of their file.
CREATE TABLE blob_deletions (
    tenant  TEXT   NOT NULL,
    file_id TEXT   COLLATE "C" NOT NULL,
    due_at  BIGINT NOT NULL,
    PRIMARY KEY (tenant, file_id)
);

CREATE INDEX blob_deletions_due ON blob_deletions (due_at);
