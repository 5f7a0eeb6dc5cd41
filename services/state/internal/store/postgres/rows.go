package postgres

import (
	"database/sql/driver"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store/table"
)

// rows are the rows of a statement's input. A value is an argument, or a pointer
// as Column.Field returns it, to a variable that does not change until the statement is
// sent.
type rows struct {
	values []any // row by row
	count  int
}

// add adds a row. more can continue it.
func (r *rows) add(values ...any) *rows {
	r.count++
	return r.more(values...)
}

// more continues the row.
func (r *rows) more(values ...any) *rows {
	r.values = append(r.values, values...)
	return r
}

// addKey begins a row with the key of a session.
func (r *rows) addKey(k *session.Key) *rows { return r.add(&k.Tenant, &k.SessionID) }

// addRow adds a row of columnsOf with the key of a session as its scope.
func addRow[R any](r *rows, k *session.Key, columns table.Columns[R], row *R) *rows {
	r.addKey(k)
	r.values = columns.Fields(r.values, row)
	return r
}

// clear empties the rows but keeps their memory.
func (r *rows) clear() {
	clear(r.values)
	r.values, r.count = r.values[:0], 0
}

// appendArguments appends the parameters: the values of one row if single, else an array for each column.
func (r *rows) appendArguments(args []any, single bool) ([]any, error) {
	for i, value := range r.values {
		var err error
		if r.values[i], err = argument(value); err != nil {
			return nil, err
		}
	}
	if single {
		return append(args, r.values...), nil
	}
	width := len(r.values) / max(r.count, 1)
	for c := range width {
		args = append(args, array{r.values[c:], width})
	}
	return args, nil
}

// array is a column of rows: every width-th of the values.
type array struct {
	values []any
	width  int
}

var _ pgtype.ArrayGetter = array{}

func (a array) Index(i int) any { return a.values[i*a.width] }
func (a array) IndexType() any  { return a.values[0] }
func (a array) Dimensions() []pgtype.ArrayDimension {
	return []pgtype.ArrayDimension{{Length: int32((len(a.values) + a.width - 1) / a.width), LowerBound: 1}}
}

// argument returns a value that pgx encodes without a copy or reflection.
func argument(value any) (any, error) {
	switch p := value.(type) {
	case *string:
		return (*text)(p), nil
	case *int64:
		return (*bigint)(p), nil
	case *int32:
		return (*integer)(p), nil
	case *[]byte:
		return (*bytea)(p), nil
	case *bool, *float64:
		return table.Value(p), nil
	case driver.Valuer:
		return p.Value()
	}
	return value, nil
}

// These are the fields of rows as pgx encodes them.
type (
	text    string
	bigint  int64
	integer int32
	bytea   []byte
)

func (t *text) TextValue() (pgtype.Text, error) {
	return pgtype.Text{String: string(*t), Valid: true}, nil
}

func (n *bigint) Int64Value() (pgtype.Int8, error) {
	return pgtype.Int8{Int64: int64(*n), Valid: true}, nil
}

func (n *integer) Int64Value() (pgtype.Int8, error) {
	return pgtype.Int8{Int64: int64(*n), Valid: true}, nil
}

// BytesValue returns no NULL for nil, since no column takes one.
func (b *bytea) BytesValue() ([]byte, error) {
	if *b == nil {
		return []byte{}, nil
	}
	return *b, nil
}
