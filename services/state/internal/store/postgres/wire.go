package postgres

import (
	"database/sql"
	"database/sql/driver"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// The values of this file are in PostgreSQL's binary format, which costs less to
// write and to read than texts do, and much less than a general library takes
// to find out what is to be written. Every integer travels as a bigint.
// https://www.postgresql.org/docs/current/protocol-overview.html#PROTOCOL-FORMAT-CODES

// text, number and truth are single parameters.
func text(s string) []byte { return []byte(s) }

func number[T ~int | ~int32 | ~int64](n T) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(n))
}

func truth(b bool) []byte {
	if b {
		return []byte{1}
	}
	return []byte{0}
}

// texts is an array of texts as a parameter.
func texts[T ~string](items []T) []byte {
	a := array{of: pgtype.TextOID}
	for _, item := range items {
		a.text(string(item))
	}
	return a.param()
}

// facets is an array of facets as a parameter. A facet is bytes: the value of
// a pair of metadata may have a zero character, which no text column takes.
func facets(items []session.Facet) []byte {
	a := array{of: pgtype.ByteaOID}
	for _, item := range items {
		a.bytes([]byte(item))
	}
	return a.param()
}

// array is a one-dimensional array.
type array struct {
	data []byte
	n    uint32
	of   uint32 // the type of the elements; needed only by an array without any
}

var blank [20]byte // dimensions, flags, type, length, lower bound

// element begins an element of so many bytes.
func (a *array) element(oid uint32, size int) {
	if a.n == 0 {
		a.data = append(a.data[:0], blank[:]...)
		binary.BigEndian.PutUint32(a.data, 1)
		binary.BigEndian.PutUint32(a.data[8:], oid)
		binary.BigEndian.PutUint32(a.data[16:], 1)
	}
	a.n++
	a.data = binary.BigEndian.AppendUint32(a.data, uint32(size))
}

func (a *array) text(s string) {
	a.element(pgtype.TextOID, len(s))
	a.data = append(a.data, s...)
}

func (a *array) bytes(b []byte) {
	a.element(pgtype.ByteaOID, len(b))
	a.data = append(a.data, b...)
}

func (a *array) number(n int64) {
	a.element(pgtype.Int8OID, 8)
	a.data = binary.BigEndian.AppendUint64(a.data, uint64(n))
}

func (a *array) float(f float64) {
	a.element(pgtype.Float8OID, 8)
	a.data = binary.BigEndian.AppendUint64(a.data, math.Float64bits(f))
}

func (a *array) truth(b bool) {
	a.element(pgtype.BoolOID, 1)
	a.data = append(a.data, truth(b)...)
}

func (a *array) param() []byte {
	if a.n == 0 {
		return binary.BigEndian.AppendUint32(make([]byte, 8), a.of) // no dimensions
	}
	binary.BigEndian.PutUint32(a.data[12:], a.n)
	return a.data
}

// rows are rows on their way to a statement, which unnests them from one array
// for each column.
type rows struct {
	columns []array
	at      int // the column that the next value belongs to
	count   int
	err     error // the first value that could not be written
}

// next begins a row. Each row has a value for every column, in the order of the
// columns.
func (r *rows) next() *rows {
	r.at = 0
	r.count++
	return r
}

func (r *rows) column() *array {
	if r.at == len(r.columns) {
		r.columns = append(r.columns, array{})
	}
	r.at++
	return &r.columns[r.at-1]
}

func (r *rows) text(values ...string) *rows {
	for _, s := range values {
		r.column().text(s)
	}
	return r
}

func (r *rows) number(values ...int64) *rows {
	for _, n := range values {
		r.column().number(n)
	}
	return r
}

func (r *rows) bytes(b []byte) *rows {
	r.column().bytes(b)
	return r
}

func (r *rows) float(f float64) *rows {
	r.column().float(f)
	return r
}

func (r *rows) truth(b bool) *rows {
	r.column().truth(b)
	return r
}

// json adds what store.In gives.
func (r *rows) json(column driver.Valuer) *rows {
	value, err := column.Value()
	if err != nil && r.err == nil {
		r.err = err
	}
	s, _ := value.(string)
	return r.text(s)
}

// clear empties the rows but keeps their memory. It returns how much that is.
func (r *rows) clear() (bytes int) {
	for i := range r.columns {
		r.columns[i].n = 0
		bytes += cap(r.columns[i].data)
	}
	r.at, r.count, r.err = 0, 0, nil
	return bytes
}

func (r *rows) params() [][]byte {
	params := make([][]byte, len(r.columns))
	for i := range r.columns {
		params[i] = r.columns[i].param()
	}
	return params
}

// single gives the values of the only row there is.
func (r *rows) single() [][]byte {
	params := make([][]byte, len(r.columns))
	for i := range r.columns {
		params[i] = r.columns[i].data[len(blank)+4:] // behind the array's head and the length
	}
	return params
}

// row is a row from the server. Its values are read in the order of the
// columns, and are copies.
type row struct {
	values [][]byte
	at     int
	err    error // the first value that could not be read
}

func (r *row) value() []byte {
	if r.at == len(r.values) {
		r.fail(fmt.Errorf("a row has %d columns and is asked for more", len(r.values)))
		return nil
	}
	r.at++
	return r.values[r.at-1]
}

func (r *row) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *row) text() string { return string(r.value()) }

// bytes returns nil for a value without bytes.
func (r *row) bytes() []byte { return append([]byte(nil), r.value()...) }

func (r *row) number() int64 {
	switch v := r.value(); len(v) {
	case 8:
		return int64(binary.BigEndian.Uint64(v))
	case 4:
		return int64(int32(binary.BigEndian.Uint32(v)))
	default:
		r.fail(fmt.Errorf("column %d has an integer of %d bytes", r.at, len(v)))
		return 0
	}
}

func (r *row) small() int32 { return int32(r.number()) }

func (r *row) float() float64 {
	v := r.value()
	if len(v) != 8 {
		r.fail(fmt.Errorf("column %d has a float of %d bytes", r.at, len(v)))
		return 0
	}
	return math.Float64frombits(binary.BigEndian.Uint64(v))
}

func (r *row) truth() bool {
	v := r.value()
	return len(v) == 1 && v[0] == 1
}

// json reads into what store.In gives.
func (r *row) json(column sql.Scanner) {
	v := r.value()
	if len(v) == 0 {
		return // the zero value, which the field has
	}
	if err := column.Scan(v); err != nil {
		r.fail(err)
	}
}
