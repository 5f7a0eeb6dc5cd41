package table

import (
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"reflect"
)

// JSON stores a value in a text column as JSON: a list or a small struct, opaque to
// queries. An empty list, an empty map and a nil pointer are stored as
// the empty text and read as nil. A pointer to an empty struct is stored as "{}".
//
// It works with database/sql and with pgx, as an argument and as a destination
// of Scan.
type JSON[T any] struct{ Of *T }

// AsJSON returns the column of the value.
func AsJSON[T any](value *T) JSON[T] { return JSON[T]{value} }

// Value implements driver.Valuer.
func (j JSON[T]) Value() (driver.Value, error) {
	if reflect.ValueOf(j.Of).Elem().IsZero() {
		return "", nil
	}
	text, err := json.Marshal(j.Of)
	if err != nil {
		return nil, fmt.Errorf("encode column: %w", err)
	}
	s := string(text)
	if s == "[]" || s == "{}" && reflect.TypeFor[T]().Kind() != reflect.Pointer {
		return "", nil
	}
	return s, nil
}

// Scan implements sql.Scanner.
func (j JSON[T]) Scan(from any) error {
	var text []byte
	switch from := from.(type) {
	case string:
		text = []byte(from)
	case []byte:
		text = from
	default:
		return fmt.Errorf("decode column: got %T, want a text", from)
	}
	*j.Of = *new(T)
	if len(text) == 0 {
		return nil
	}
	if err := json.Unmarshal(text, j.Of); err != nil {
		return fmt.Errorf("decode column: %w", err)
	}
	return nil
}
