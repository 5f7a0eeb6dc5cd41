package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// ReadSchema reads which migrations the file has, and changes nothing. A missing file has none. Unavailable
// (STORE_UNAVAILABLE).
func ReadSchema(ctx context.Context, path string) (store.Schema, error) {
	var schema store.Schema
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return schema.WithMissing(migrations)
	}
	full, err := filepath.Abs(path)
	if err != nil {
		return store.Schema{}, err
	}
	q := url.Values{"mode": {"ro"}, "_pragma": {fmt.Sprintf("busy_timeout(%d)", busyTimeout)}}
	source := url.URL{Scheme: "file", Path: filepath.ToSlash(full), RawQuery: q.Encode()}
	reader, err := openPool(ctx, source.String(), 1)
	if err != nil {
		return store.Schema{}, fmt.Errorf("open %s: %w", path, asFault(ctx, err))
	}
	err = reader.withConn(ctx, func(c *connection) error {
		var tables int
		if _, err := c.queryRow(ctx, `SELECT sqlite_version(), count(*) FROM sqlite_schema WHERE name = 'holdfast_state_migrations'`, nil,
			&schema.Server, &tables); err != nil || tables == 0 {
			return err
		}
		_, err := c.queryRow(ctx, `SELECT coalesce(max(version), 0) FROM holdfast_state_migrations`, nil, &schema.Applied)
		return err
	})
	if err = errors.Join(asFault(ctx, err), reader.close()); err != nil {
		return store.Schema{}, fmt.Errorf("read the migrations of %s: %w", path, err)
	}
	schema.Server = "SQLite " + schema.Server
	return schema.WithMissing(migrations)
}
