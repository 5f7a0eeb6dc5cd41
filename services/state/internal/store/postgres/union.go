package postgres

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Several queries are one statement when a row is the number of its query and a record of its columns. The server then
// binds, starts and answers once, and all queries have one snapshot without a transaction around them.

// query is a SELECT of columns FROM the rest.
type query struct{ columns, from string }

// union prepares a statement that runs the queries with the same parameters. before is the text before them.
func union(before string, queries ...query) *statement {
	parts := make([]string, len(queries))
	for i, q := range queries {
		parts[i] = q.part(i)
	}
	return prepared(before + strings.Join(parts, "\n\tUNION ALL "))
}

// part is the query as the part of a union with the number n. The rows of a part keep their order.
func (q query) part(n int) string {
	return fmt.Sprintf("(SELECT %d::bigint, ROW(%s) FROM %s)", n, q.columns, q.from)
}

// scanParts returns a scan that passes each row of a union to the scan of its query.
func scanParts(scans ...func(pgx.CollectableRow) error) func(pgx.CollectableRow) error {
	return func(row pgx.CollectableRow) error {
		var part int64
		if err := row.Scan(&part, nil); err != nil {
			return err
		}
		return scans[part](recordRow{row})
	}
}

// recordRow is the record in a row of a union, as a row of its query.
type recordRow struct{ pgx.CollectableRow }

// Scan implements pgx.CollectableRow.
func (r recordRow) Scan(to ...any) error { return r.CollectableRow.Scan(nil, record(to)) }

// record holds the destinations of a record's columns; nil skips one.
type record []any

// ScanNull implements pgtype.CompositeIndexScanner.
func (record) ScanNull() error { return fmt.Errorf("decode a row: got NULL, want a record") }

// ScanIndex implements pgtype.CompositeIndexScanner.
func (r record) ScanIndex(i int) any {
	if i >= len(r) {
		return nil
	}
	return r[i]
}
