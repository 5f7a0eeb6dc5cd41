package sqlite

import (
	"context"
	"io"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/table"
)

var (
	fileColumns = table.Files.All()
	fileFields  = fileColumns.Select("f")
	insertFile  = insert(&table.Files)
)

// linkedFile: the file has a live link. A deletion expires links by setting lapses_at to 1.
const linkedFile = `EXISTS (SELECT 1 FROM file_links l WHERE l.tenant = f.tenant AND l.file_id = f.file_id AND l.lapses_at <> 1)`

// fileWrite runs f with the batches of commands.
func (s files) fileWrite(ctx context.Context, what string, f func(context.Context, *connection) (refused, err error)) error {
	err := s.committer.Do(ctx, nil, 0, f)
	return wrap(ctx, err, "%s", what)
}

// fileExec is fileWrite for one statement.
func (s files) fileExec(ctx context.Context, what, query string, args ...any) error {
	return s.fileWrite(ctx, what, func(ctx context.Context, c *connection) (refused, err error) {
		_, err = c.exec(ctx, query, args...)
		return nil, err
	})
}

// ScheduleBlobDeletion implements store.Files.
func (s files) ScheduleBlobDeletion(ctx context.Context, key session.FileKey, at session.Millis) error {
	return s.fileExec(ctx, "schedule the deletion of a file", `INSERT INTO blob_deletions (tenant, file_id, due_at) VALUES (?, ?, ?)
		ON CONFLICT (tenant, file_id) DO UPDATE SET due_at = excluded.due_at`, key.Tenant, key.FileID, int64(at))
}

// AddFile implements store.Files.
func (s files) AddFile(ctx context.Context, tenant string, f session.File, hold session.Millis) (found *session.File, err error) {
	err = s.fileWrite(ctx, "add a file", func(ctx context.Context, c *connection) (refused, err error) {
		found, err = fileByContent(ctx, c, tenant, f.Digest, f.MediaType)
		switch {
		case err != nil:
			return nil, err
		case found != nil:
			_, err = c.exec(ctx, `UPDATE blob_deletions SET due_at = 0 WHERE tenant = ? AND file_id = ?`, tenant, f.ID)
		default:
			// Without a pending deletion, the bytes of the file may be gone.
			stored, err := c.exec(ctx, `DELETE FROM blob_deletions WHERE tenant = ? AND file_id = ? AND NOT started`, tenant, f.ID)
			if err != nil || stored == 0 {
				return store.UploadExpired(), err
			}
			if _, err := c.exec(ctx, insertFile.text, fileColumns.Values([]any{tenant}, &f)...); err != nil {
				return nil, err
			}
			found = &f
		}
		if err != nil {
			return nil, err
		}
		return nil, linkFile(ctx, c, session.Key{Tenant: tenant}, found.ID, hold)
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// fileByContent returns nil for no such file.
func fileByContent(ctx context.Context, c *connection, tenant string, digest []byte, mediaType string) (*session.File, error) {
	var f session.File
	found, err := c.queryRow(ctx, `SELECT `+fileFields+` FROM files f WHERE f.tenant = ? AND f.digest = ? AND f.media_type = ?`,
		arguments(tenant, digest, mediaType), fileColumns.Destinations(nil, &f)...)
	if !found {
		return nil, err
	}
	return &f, nil
}

// linkFile links a session to a file until expires; 0 is for ever. A link without a session holds the file. NotFound
// (FILE_NOT_FOUND).
func linkFile(ctx context.Context, c *connection, key session.Key, id string, expires session.Millis) error {
	linked, err := c.exec(ctx, `INSERT INTO file_links (tenant, session_id, file_id, lapses_at)
		SELECT tenant, ?2, file_id, ?4 FROM files WHERE tenant = ?1 AND file_id = ?3
		ON CONFLICT (tenant, session_id, file_id) DO UPDATE SET lapses_at = CASE excluded.lapses_at WHEN 0 THEN 0
		ELSE max(lapses_at, excluded.lapses_at) END`,
		key.Tenant, key.SessionID, id, int64(expires))
	if err == nil && linked == 0 {
		err = store.FileNotFound()
	}
	return err
}

// FindFile implements store.Files.
func (s files) FindFile(
	ctx context.Context, tenant string, digest []byte, mediaType string, hold session.Millis,
) (found *session.File, err error) {
	err = s.fileWrite(ctx, "find a file", func(ctx context.Context, c *connection) (refused, err error) {
		found, err = fileByContent(ctx, c, tenant, digest, mediaType)
		if err != nil || found == nil {
			return store.FileNotFound(), err
		}
		return nil, linkFile(ctx, c, session.Key{Tenant: tenant}, found.ID, hold)
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// File implements store.Files.
func (s files) File(ctx context.Context, id string) (tenant string, _ *session.File, err error) {
	var f session.File
	err = s.read(ctx, func(c *connection) error {
		found, err := c.queryRow(ctx, `SELECT f.tenant, `+fileFields+` FROM files f WHERE f.file_id = ? AND `+linkedFile, arguments(id),
			fileColumns.Destinations([]any{&tenant}, &f)...)
		if err == nil && !found {
			return store.FileNotFound()
		}
		return err
	})
	return tenant, &f, wrap(ctx, err, "read file %q", id)
}

// FilesByID implements store.Files.
func (s files) FilesByID(ctx context.Context, tenant string, ids []string) (files []session.File, err error) {
	err = s.read(ctx, func(c *connection) error {
		return c.forEach(ctx, `SELECT `+fileFields+` FROM files f
			WHERE f.tenant = ? AND f.file_id IN (SELECT value FROM json_each(?)) AND `+linkedFile,
			arguments(tenant, jsonList(ids)), func(row scanner) error {
				var f session.File
				err := row.Scan(fileColumns.Destinations(nil, &f)...)
				files = append(files, f)
				return err
			})
	})
	return files, wrap(ctx, err, "read %d files", len(ids))
}

// FilesOf implements store.Files.
func (s files) FilesOf(ctx context.Context, key session.Key, ids []string) (files []session.File, err error) {
	err = s.read(ctx, func(c *connection) error {
		return c.forEach(ctx, `SELECT `+fileFields+` FROM files f JOIN file_links l USING (tenant, file_id)
			WHERE l.tenant = ? AND l.session_id = ? AND l.file_id IN (SELECT value FROM json_each(?))`,
			arguments(key.Tenant, key.SessionID, jsonList(ids)), func(row scanner) error {
				var f session.File
				err := row.Scan(fileColumns.Destinations(nil, &f)...)
				files = append(files, f)
				return err
			})
	})
	return files, wrap(ctx, err, "read %d files of %q", len(ids), key.SessionID)
}

// FilesWithExpiredLinks implements store.Files.
func (s files) FilesWithExpiredLinks(ctx context.Context, tenant string, now session.Millis, limit int) ([]session.FileKey, error) {
	return s.fileKeys(ctx, `SELECT tenant, file_id FROM file_links
		WHERE lapses_at > 0 AND lapses_at <= ?1 AND (?3 = '' OR tenant = ?3) ORDER BY lapses_at LIMIT 0 + ?2`, tenant, now, limit)
}

// DueBlobDeletions implements store.Files.
func (s files) DueBlobDeletions(ctx context.Context, tenant string, now session.Millis, limit int) ([]session.FileKey, error) {
	return s.fileKeys(ctx, `SELECT tenant, file_id FROM blob_deletions
		WHERE due_at <= ?1 AND (?3 = '' OR tenant = ?3) ORDER BY due_at LIMIT 0 + ?2`, tenant, now, limit)
}

func (s files) fileKeys(ctx context.Context, query, tenant string, now session.Millis, limit int) (keys []session.FileKey, err error) {
	err = s.read(ctx, func(c *connection) error {
		return c.forEach(ctx, query, arguments(int64(now), limit, tenant), func(row scanner) error {
			var k session.FileKey
			err := row.Scan(&k.Tenant, &k.FileID)
			keys = append(keys, k)
			return err
		})
	})
	return keys, wrap(ctx, err, "find due files")
}

// DeleteExpiredLinks implements store.Files.
func (s files) DeleteExpiredLinks(ctx context.Context, key session.FileKey, now session.Millis) (deleted bool, err error) {
	err = s.fileWrite(ctx, "drop the expired links of a file", func(ctx context.Context, c *connection) (refused, err error) {
		deleted = false
		if _, err := c.exec(ctx, `DELETE FROM file_links WHERE tenant = ? AND file_id = ? AND lapses_at > 0 AND lapses_at <= ?`,
			key.Tenant, key.FileID, int64(now)); err != nil {
			return nil, err
		}
		gone, err := c.exec(ctx, `DELETE FROM files WHERE tenant = ?1 AND file_id = ?2
			AND NOT EXISTS (SELECT 1 FROM file_links WHERE tenant = ?1 AND file_id = ?2)`, key.Tenant, key.FileID)
		if err != nil || gone == 0 {
			return nil, err
		}
		deleted = true
		_, err = c.exec(ctx, `INSERT INTO blob_deletions (tenant, file_id, due_at) VALUES (?, ?, ?)`, key.Tenant, key.FileID, int64(now))
		return nil, err
	})
	return deleted && err == nil, err
}

// StartBlobDeletion implements store.Files.
func (s files) StartBlobDeletion(ctx context.Context, key session.FileKey, now, retry session.Millis) (started bool, err error) {
	err = s.fileWrite(ctx, "start the deletion of a file", func(ctx context.Context, c *connection) (refused, err error) {
		updated, err := c.exec(ctx, `UPDATE blob_deletions SET started = TRUE, due_at = ? WHERE tenant = ? AND file_id = ? AND due_at <= ?`,
			int64(retry), key.Tenant, key.FileID, int64(now))
		started = updated > 0
		return nil, err
	})
	return started && err == nil, err
}

// BlobDeleted implements store.Files.
func (s files) BlobDeleted(ctx context.Context, key session.FileKey) error {
	return s.fileExec(ctx, "forget the deletion of a file", `DELETE FROM blob_deletions WHERE tenant = ? AND file_id = ?`, key.Tenant,
		key.FileID)
}

// PutBlob implements store.Blobs, with a transaction for each chunk.
func (s files) PutBlob(ctx context.Context, key session.FileKey, from io.Reader) error {
	return store.EachPiece(from, func(start int64, piece []byte) error {
		return s.fileExec(ctx, "store the bytes of a file", `INSERT INTO file_chunks (tenant, file_id, start, data) VALUES (?, ?, ?, ?)`,
			key.Tenant, key.FileID, start, piece)
	})
}

// ReadBlob implements store.Blobs, with a query for each chunk.
func (s files) ReadBlob(ctx context.Context, key session.FileKey, offset, length int64, each func([]byte) error) error {
	return store.EachChunk(offset, length, func(at int64) (start int64, data []byte, err error) {
		err = s.read(ctx, func(c *connection) error {
			_, err := c.queryRow(ctx, `SELECT start, data FROM file_chunks
				WHERE tenant = ? AND file_id = ? AND start <= ? ORDER BY start DESC LIMIT 1`,
				arguments(key.Tenant, key.FileID, at), &start, &data)
			return err
		})
		return start, data, wrap(ctx, err, "read the bytes of file %q", key.FileID)
	}, each)
}

// DeleteBlob implements store.Blobs.
func (s files) DeleteBlob(ctx context.Context, key session.FileKey) error {
	return s.fileWrite(ctx, "delete the bytes of a file", func(ctx context.Context, c *connection) (refused, err error) {
		s.erased.Store(true)
		_, err = c.exec(ctx, `DELETE FROM file_chunks WHERE tenant = ? AND file_id = ?`, key.Tenant, key.FileID)
		return nil, err
	})
}
