package sqlite

import (
	"slices"
	"testing"

	"github.com/holdfast-run/holdfast/services/state/internal/store/table"
)

func TestTheDescribedTablesAreThoseOfTheSchema(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	types := map[table.Kind]string{
		table.Text: "TEXT", table.Integer: "INTEGER", table.Float: "REAL", table.Boolean: "INTEGER", table.Bytes: "BLOB",
	}
	described := map[string]map[string]table.Kind{}
	for _, d := range table.Descriptions() {
		described[d.Name] = d.Columns
	}
	var others []string
	err := s.read(t.Context(), func(c *connection) error {
		return c.forEach(t.Context(), `SELECT m.name, p.name, p.type, NOT p."notnull" FROM sqlite_master m JOIN pragma_table_info(m.name) p
			WHERE m.type = 'table'`,
			nil, func(row scanner) error {
				var of, name, kind string
				var null bool
				if err := row.Scan(&of, &name, &kind, &null); err != nil {
					return err
				}
				if described[of] == nil {
					others = append(others, of)
				} else if is, known := described[of][name]; !known || types[is] != kind || null {
					t.Errorf("%s.%s is %s (NULL: %t), and is described as %q", of, name, kind, null, is)
				}
				delete(described[of], name)
				return nil
			})
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, missing := range described {
		if len(missing) > 0 {
			t.Errorf("%s has no columns %v", name, missing)
		}
	}
	slices.Sort(others)
	if want := []string{"agents", "blob_deletions", "definitions", "executors", "file_chunks", "file_links", "governor_leases", "governors",
		"holdfast_state_migrations", "memory_words", "session_facets"}; !slices.Equal(slices.Compact(others), want) {
		t.Errorf("%v are not described, want %v", slices.Compact(others), want)
	}
}
