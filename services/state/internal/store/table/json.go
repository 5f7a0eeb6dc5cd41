package store

import (
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"reflect"
)

// Column keeps a value in a text column as JSON, for databases that have no
// better place for it: lists and small structs that nobody queries. An empty
// list, an empty map and a nil pointer are the empty text, and come back as
// nil; a pointer to an empty struct comes back as one.
//
// It works with database/sql and with pgx: as an argument, and as a pointer to
// scan into.
type Column[T any] struct{ Of *T }

// In returns a column for a value that stays where it is.
func In[T any](value *T) Column[T] { return Column[T]{value} }

// Value implements driver.Valuer.
func (c Column[T]) Value() (driver.Value, error) {
	text, err := json.Marshal(c.Of)
	if err != nil {
		return nil, fmt.Errorf("encode column: %w", err)
	}
	s := string(text)
	empty := s == "null" || s == "[]" || s == "{}"
	if empty && (reflect.TypeFor[T]().Kind() != reflect.Pointer || s == "null") {
		return "", nil
	}
	return s, nil
}

// Scan implements sql.Scanner.
func (c Column[T]) Scan(from any) error {
	var text []byte
	switch from := from.(type) {
	case string:
		text = []byte(from)
	case []byte:
		text = from
	default:
		return fmt.Errorf("decode column: %T is not a text", from)
	}
	*c.Of = *new(T)
	if len(text) == 0 {
		return nil
	}
	if err := json.Unmarshal(text, c.Of); err != nil {
		return fmt.Errorf("decode column: %w", err)
	}
	return nil
}
