// Package table describes the tables of both SQL dialects of the store: their columns,
// and the field of the domain struct in each column.
//
// Both dialects derive their column lists, arguments and scans from it. A new
// column is one line here and one migration in each dialect. A test in each
// dialect compares the descriptions with the migrated schema.
//
// Small tables are not described if their columns differ between the dialects or have no
// struct: executors, agents, memory_words, session_facets, file_links, file_chunks,
// blob_deletions.
package table

import (
	"bytes"
	"database/sql/driver"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Kind is the type of a column's values.
type Kind string

// The kinds. JSON is stored as text.
const (
	Text    Kind = "text"
	Integer Kind = "integer"
	Float   Kind = "float"
	Boolean Kind = "boolean"
	Bytes   Kind = "bytes"
)

// Column is a column of a table with rows in structs R.
type Column[R any] struct {
	Name string
	Kind Kind

	// Field returns a pointer to the field of the column: a *string, *int64,
	// *int32, *float64, *bool, *[]byte, or a JSON.
	Field func(*R) any
}

// Columns are columns in the order of writes and reads.
type Columns[R any] []Column[R]

// Table is a table and its columns. The primary key is Scope and Key.
type Table[R any] struct {
	Name  string
	Scope []string   // text columns outside of R: the tenant, and the session or its root
	Key   Columns[R] // identify a row within its scope
	Step  Columns[R] // change with every step; no index holds one of them
	Small Columns[R] // change with other commands
	Large Columns[R] // change rarely, and may be large
	Fixed Columns[R] // never change
}

// All returns the columns but those of the scope.
func (t *Table[R]) All() Columns[R] { return slices.Concat(t.Key, t.Changing(), t.Fixed) }

// Changing returns the columns of updates.
func (t *Table[R]) Changing() Columns[R] { return slices.Concat(t.Step, t.Small, t.Large) }

// Primary returns the names of the primary key's columns.
func (t *Table[R]) Primary() []string { return slices.Concat(t.Scope, t.Key.Names()) }

// Names returns the names of the columns.
func (c Columns[R]) Names() []string {
	names := make([]string, len(c))
	for i := range c {
		names[i] = c[i].Name
	}
	return names
}

// Select lists the columns for a SELECT, with the alias of the table.
func (c Columns[R]) Select(alias string) string {
	return alias + "." + strings.Join(c.Names(), ", "+alias+".")
}

// Without returns the columns but those of the names.
func (c Columns[R]) Without(names ...string) Columns[R] {
	return slices.DeleteFunc(slices.Clone(c), func(column Column[R]) bool { return slices.Contains(names, column.Name) })
}

// Fields appends pointers to the fields of the row, for Value.
func (c Columns[R]) Fields(to []any, row *R) []any {
	for i := range c {
		to = append(to, c[i].Field(row))
	}
	return to
}

// Destinations appends the arguments of a Scan into the row.
func (c Columns[R]) Destinations(to []any, row *R) []any {
	for i := range c {
		field := c[i].Field(row)
		if p, ok := field.(*[]byte); ok {
			field = blob{p}
		}
		to = append(to, field)
	}
	return to
}

// Values appends the values of the row as arguments of a statement.
func (c Columns[R]) Values(to []any, row *R) []any {
	for i := range c {
		to = append(to, Value(c[i].Field(row)))
	}
	return to
}

// Equal reports whether two rows hold the same values in the columns.
func (c Columns[R]) Equal(a, b *R) bool {
	for i := range c {
		if !equal(c[i].Field(a), c[i].Field(b)) {
			return false
		}
	}
	return true
}

func equal(a, b any) bool {
	switch a := a.(type) {
	case *string:
		return *a == *b.(*string)
	case *int64:
		return *a == *b.(*int64)
	case *int32:
		return *a == *b.(*int32)
	case *float64:
		return *a == *b.(*float64)
	case *bool:
		return *a == *b.(*bool)
	case *[]byte:
		return bytes.Equal(*a, *b.(*[]byte))
	default:
		return reflect.DeepEqual(a, b)
	}
}

// Value returns the value behind a pointer of Column.Field as an argument of a
// statement: a string, int64, float64, bool, non-nil []byte, or a
// driver.Valuer of a string. It returns any other value unchanged.
func Value(field any) any {
	switch p := field.(type) {
	case *string:
		return *p
	case *int64:
		return *p
	case *int32:
		return int64(*p)
	case *float64:
		return *p
	case *bool:
		return *p
	case *[]byte:
		if *p == nil {
			return []byte{} // nil would be NULL
		}
		return *p
	default:
		return field
	}
}

var _ driver.Valuer = JSON[string]{}

// blob reads bytes. A value without bytes becomes nil.
type blob struct{ of *[]byte }

// Scan implements sql.Scanner.
func (b blob) Scan(from any) error {
	value, ok := from.([]byte)
	if !ok {
		return fmt.Errorf("decode column: got %T, want bytes", from)
	}
	return b.ScanBytes(value)
}

// ScanBytes implements pgtype.BytesScanner.
func (b blob) ScanBytes(value []byte) error {
	*b.of = append([]byte(nil), value...)
	return nil
}
