package postgres

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/e2e/pgtest"
	"github.com/holdfast-run/holdfast/services/state/internal/store/table"
)

func TestTheDescribedTablesAreThoseOfTheSchema(t *testing.T) {
	t.Parallel()
	s := open(t, pgtest.URL(t))
	kinds := map[string]table.Kind{
		"text": table.Text, "bigint": table.Integer, "integer": table.Integer, "double precision": table.Float, "boolean": table.Boolean, "bytea": table.Bytes,
	}
	rows, err := s.pool.Query(t.Context(), `SELECT table_name, column_name, data_type, is_nullable = 'YES' FROM information_schema.columns
		WHERE table_schema = current_schema()`)
	if err != nil {
		t.Fatal(err)
	}
	type column struct {
		Table, Name, Type string
		Null              bool
	}
	columns, err := pgx.CollectRows(rows, pgx.RowToStructByPos[column])
	if err != nil {
		t.Fatal(err)
	}
	described := map[string]map[string]table.Kind{}
	for _, d := range table.Descriptions() {
		described[d.Name] = d.Columns
	}
	var others []string
	for _, c := range columns {
		of := described[c.Table]
		if of == nil {
			others = append(others, c.Table)
			continue
		}
		if of[c.Name] != kinds[c.Type] || c.Null {
			t.Errorf("%s.%s is %s (NULL: %t), and is described as %q", c.Table, c.Name, c.Type, c.Null, of[c.Name])
		}
		delete(of, c.Name)
	}
	for name, missing := range described {
		if len(missing) > 0 {
			t.Errorf("%s has no columns %v", name, missing)
		}
	}
	slices.Sort(others)
	if want := []string{"agents", "blob_deletions", "definitions", "executors", "file_chunks", "file_links", "governor_leases", "governors", "holdfast_state_migrations", "memory_words", "session_facets"}; !slices.Equal(slices.Compact(others), want) {
		t.Errorf("%v are not described, want %v", slices.Compact(others), want)
	}
}

// A statement parses the CHECK constraints of each table that it writes, at an eighth of the cost of a step.
func TestTheTablesOfATurnHaveNoCheckConstraints(t *testing.T) {
	t.Parallel()
	s := open(t, pgtest.URL(t))
	rows, err := s.pool.Query(t.Context(), `SELECT conrelid::regclass || ': ' || conname FROM pg_constraint
		WHERE contype = 'c' AND conrelid = ANY ($1::text[]::regclass[]) ORDER BY 1`,
		[]string{"sessions", "states", "runs", "messages", "plans", "results", "checkpoints", "usage_entries", "calls", "session_facets", "audit"})
	if err != nil {
		t.Fatal(err)
	}
	checks, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(checks) > 0 {
		t.Errorf("got %v, %v; want no constraints", checks, err)
	}
}
