package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/table"
)

var fileColumns = table.Files.All()

// linkedFile: the file has a live link. A deletion expires links by setting lapses_at to 1.
const linkedFile = `EXISTS (SELECT FROM file_links l WHERE l.tenant = f.tenant AND l.file_id = f.file_id AND l.lapses_at <> 1)`

const fileByContent = `f.tenant = $1::text AND f.digest = $2::bytea AND f.media_type = $3::text`

var (
	scheduleDeletion = prepared(`INSERT INTO blob_deletions (tenant, file_id, due_at) VALUES ($1::text, $2::text, $3::bigint)
		ON CONFLICT (tenant, file_id) DO UPDATE SET due_at = excluded.due_at`)
	// Without a pending deletion, the bytes of the file may be gone.
	insertFile = prepared(func() string {
		in := columnsOf(&table.Files, fileColumns)
		return fmt.Sprintf(`WITH stored AS (DELETE FROM blob_deletions WHERE tenant = $1::text AND file_id = $2::text AND NOT started RETURNING 1)
			INSERT INTO files (%s) SELECT %s FROM stored ON CONFLICT (tenant, digest, media_type) DO NOTHING`, in.names(), in.placeholders(1, ""))
	}())
	scheduleIfUnknown = prepared(`INSERT INTO blob_deletions (tenant, file_id, due_at)
		SELECT $1::text, $2::text, 0 WHERE NOT EXISTS (SELECT FROM files WHERE tenant = $1 AND file_id = $2) ON CONFLICT DO NOTHING`)
	holdFile = prepared(`INSERT INTO file_links (tenant, session_id, file_id, lapses_at)
		SELECT f.tenant, '', f.file_id, $4::bigint FROM files f WHERE ` + fileByContent + `
		ON CONFLICT (tenant, session_id, file_id) DO UPDATE SET lapses_at = greatest(file_links.lapses_at, excluded.lapses_at)`)
	readFileByContent = prepared(`SELECT ` + fileColumns.Select("f") + ` FROM files f WHERE ` + fileByContent)
	readFileByID      = prepared(`SELECT f.tenant, ` + fileColumns.Select("f") + ` FROM files f WHERE f.file_id = $1::text AND ` + linkedFile)
	readFiles         = prepared(`SELECT ` + fileColumns.Select("f") + ` FROM files f
		WHERE f.tenant = $1::text AND f.file_id = ANY ($2::text[]) AND ` + linkedFile)
)

var readFilesOf = prepared(`SELECT ` + fileColumns.Select("f") + ` FROM files f JOIN file_links l USING (tenant, file_id)
	WHERE l.tenant = $1::text AND l.session_id = $2::text AND l.file_id = ANY ($3::text[])`)

// isUnknownFile reports a link to a file that does not exist, or no longer.
func isUnknownFile(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == "23503" && e.ConstraintName == "file_links_file"
}

// ScheduleBlobDeletion implements store.Files.
func (s files) ScheduleBlobDeletion(ctx context.Context, key session.FileKey, at session.Millis) error {
	err := s.execute(ctx, func(p *pipeline) { p.exec(scheduleDeletion, key.Tenant, key.FileID, int64(at)) })
	return wrap(ctx, err, "schedule the deletion of file %q", key.FileID)
}

// AddFile implements store.Files.
func (s files) AddFile(ctx context.Context, tenant string, f session.File, hold session.Millis) (*session.File, error) {
	values := rows{values: fileColumns.Fields([]any{tenant}, &f), count: 1}
	args, err := values.appendArguments(nil, true)
	if err != nil {
		return nil, err
	}
	var found *session.File
	err = s.execute(ctx, func(p *pipeline) {
		found = nil
		p.exec(insertFile, args...)
		p.exec(scheduleIfUnknown, tenant, f.ID)
		p.exec(holdFile, tenant, f.Digest, f.MediaType, int64(hold))
		p.queue(readFileByContent, []any{tenant, f.Digest, f.MediaType}, scanEach(fileColumns.Destinations, func(f *session.File) { found = f }))
	})
	if isUnknownFile(err) || err == nil && found == nil { // deleted meanwhile
		err = store.UploadExpired()
	}
	return found, wrap(ctx, err, "add file %q", f.ID)
}

// FindFile implements store.Files.
func (s files) FindFile(ctx context.Context, tenant string, digest []byte, mediaType string, hold session.Millis) (*session.File, error) {
	var found *session.File
	err := s.execute(ctx, func(p *pipeline) {
		found = nil
		p.exec(holdFile, tenant, digest, mediaType, int64(hold))
		p.queue(readFileByContent, []any{tenant, digest, mediaType}, scanEach(fileColumns.Destinations, func(f *session.File) { found = f }))
	})
	if err == nil && found == nil {
		err = store.FileNotFound()
	}
	return found, wrap(ctx, err, "find a file")
}

// File implements store.Files.
func (s files) File(ctx context.Context, id string) (tenant string, found *session.File, err error) {
	err = s.query(ctx, readFileByID, scanEach(func(to []any, f *session.File) []any {
		found = f
		return fileColumns.Destinations(append(to, &tenant), f)
	}, func(*session.File) {}), id)
	if err == nil && found == nil {
		err = store.FileNotFound()
	}
	return tenant, found, wrap(ctx, err, "read file %q", id)
}

// FilesByID implements store.Files.
func (s files) FilesByID(ctx context.Context, tenant string, ids []string) (found []session.File, err error) {
	err = s.query(ctx, readFiles, scanEach(fileColumns.Destinations, func(f *session.File) { found = append(found, *f) }), tenant, notNil(ids))
	return found, wrap(ctx, err, "read %d files", len(ids))
}

// FilesOf implements store.Files.
func (s files) FilesOf(ctx context.Context, key session.Key, ids []string) (found []session.File, err error) {
	err = s.query(
		ctx,
		readFilesOf,
		scanEach(fileColumns.Destinations, func(f *session.File) { found = append(found, *f) }),
		key.Tenant,
		key.SessionID,
		notNil(ids),
	)
	return found, wrap(ctx, err, "read %d files of %q", len(ids), key.SessionID)
}

var (
	readExpiredLinks = prepared(`SELECT tenant, file_id FROM file_links
		WHERE lapses_at > 0 AND lapses_at <= $1::bigint AND ($3::text = '' OR tenant = $3) ORDER BY lapses_at LIMIT $2::bigint`)
	// The lock keeps other transactions from linking the file.
	lockFile           = prepared(`SELECT 1 FROM files WHERE tenant = $1::text AND file_id = $2::text FOR UPDATE`)
	deleteExpiredLinks = prepared(`DELETE FROM file_links WHERE tenant = $1::text AND file_id = $2::text AND lapses_at > 0
		AND lapses_at <= $3::bigint`)
	dropFile = prepared(`WITH unlinked AS (DELETE FROM files f WHERE f.tenant = $1::text AND f.file_id = $2::text
			AND NOT EXISTS (SELECT FROM file_links WHERE tenant = $1 AND file_id = $2) RETURNING f.tenant, f.file_id)
		INSERT INTO blob_deletions (tenant, file_id, due_at) SELECT tenant, file_id, $3::bigint FROM unlinked`)
	readDueDeletions = prepared(`SELECT tenant, file_id FROM blob_deletions WHERE due_at <= $1::bigint AND ($3::text = '' OR tenant = $3)
		ORDER BY due_at LIMIT $2::bigint`)
	startDeletion = prepared(`UPDATE blob_deletions SET started = TRUE, due_at = $4::bigint
		WHERE tenant = $1::text AND file_id = $2::text AND due_at <= $3::bigint`)
	deleteDeletion = prepared(`DELETE FROM blob_deletions WHERE tenant = $1::text AND file_id = $2::text`)
)

// FilesWithExpiredLinks implements store.Files.
func (s files) FilesWithExpiredLinks(ctx context.Context, tenant string, now session.Millis, limit int) ([]session.FileKey, error) {
	return s.fileKeys(ctx, readExpiredLinks, tenant, now, limit)
}

// DueBlobDeletions implements store.Files.
func (s files) DueBlobDeletions(ctx context.Context, tenant string, now session.Millis, limit int) ([]session.FileKey, error) {
	return s.fileKeys(ctx, readDueDeletions, tenant, now, limit)
}

func (s files) fileKeys(
	ctx context.Context,
	due *statement,
	tenant string,
	now session.Millis,
	limit int,
) (keys []session.FileKey, err error) {
	err = s.query(ctx, due, scanEach(func(to []any, k *session.FileKey) []any { return append(to, &k.Tenant, &k.FileID) },
		func(k *session.FileKey) { keys = append(keys, *k) }), int64(now), limit, tenant)
	return keys, wrap(ctx, err, "find due files")
}

// DeleteExpiredLinks implements store.Files.
func (s files) DeleteExpiredLinks(ctx context.Context, key session.FileKey, now session.Millis) (bool, error) {
	var gone int64
	err := s.execute(ctx, func(p *pipeline) {
		p.exec(lockFile, key.Tenant, key.FileID)
		p.exec(deleteExpiredLinks, key.Tenant, key.FileID, int64(now))
		p.count(dropFile, &gone, key.Tenant, key.FileID, int64(now))
	})
	return gone > 0, wrap(ctx, err, "drop the expired links of file %q", key.FileID)
}

// StartBlobDeletion implements store.Files.
func (s files) StartBlobDeletion(ctx context.Context, key session.FileKey, now, retry session.Millis) (bool, error) {
	var started int64
	err := s.execute(ctx, func(p *pipeline) { p.count(startDeletion, &started, key.Tenant, key.FileID, int64(now), int64(retry)) })
	return started > 0, wrap(ctx, err, "start the deletion of file %q", key.FileID)
}

// BlobDeleted implements store.Files.
func (s files) BlobDeleted(ctx context.Context, key session.FileKey) error {
	err := s.execute(ctx, func(p *pipeline) { p.exec(deleteDeletion, key.Tenant, key.FileID) })
	return wrap(ctx, err, "forget the deletion of file %q", key.FileID)
}

var (
	insertChunk = prepared(`INSERT INTO file_chunks (tenant, file_id, start, data) VALUES ($1::text, $2::text, $3::bigint, $4::bytea)`)
	readChunk   = prepared(`SELECT start, data FROM file_chunks WHERE tenant = $1::text AND file_id = $2::text AND start <= $3::bigint
		ORDER BY start DESC LIMIT 1`)
	deleteChunks = prepared(`DELETE FROM file_chunks WHERE tenant = $1::text AND file_id = $2::text`)
)

// PutBlob implements store.Blobs, with a transaction for each chunk.
func (s files) PutBlob(ctx context.Context, key session.FileKey, from io.Reader) error {
	err := store.EachPiece(from, func(start int64, piece []byte) error {
		return s.execute(ctx, func(p *pipeline) { p.exec(insertChunk, key.Tenant, key.FileID, start, piece) })
	})
	return wrap(ctx, err, "store the bytes of file %q", key.FileID)
}

// ReadBlob implements store.Blobs, with a query for each chunk.
func (s files) ReadBlob(ctx context.Context, key session.FileKey, offset, length int64, each func([]byte) error) error {
	return store.EachChunk(offset, length, func(at int64) (start int64, data []byte, err error) {
		err = s.query(ctx, readChunk, scanInto(&start, &data), key.Tenant, key.FileID, at)
		return start, data, wrap(ctx, err, "read the bytes of file %q", key.FileID)
	}, each)
}

// DeleteBlob implements store.Blobs.
func (s files) DeleteBlob(ctx context.Context, key session.FileKey) error {
	err := s.execute(ctx, func(p *pipeline) { p.exec(deleteChunks, key.Tenant, key.FileID) })
	return wrap(ctx, err, "delete the bytes of file %q", key.FileID)
}
