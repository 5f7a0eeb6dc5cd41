package model

import (
	"bytes"
	"strconv"
)

// LooseText is a text in an event of a provider. Some servers send another value in its place: a scalar or an object counts
// as its JSON text, and null as "".
type LooseText string

// UnmarshalJSON implements json.Unmarshaler. It never fails.
func (t *LooseText) UnmarshalJSON(value []byte) error {
	*t = ""
	if !bytes.Equal(value, []byte("null")) {
		*t = LooseText(PlainText(value))
	}
	return nil
}

// LooseInt is an integer in an event of a provider. Some servers send a text or a fraction in its place; anything else counts
// as 0.
type LooseInt int64

// UnmarshalJSON implements json.Unmarshaler. It never fails.
func (n *LooseInt) UnmarshalJSON(value []byte) error {
	number, err := strconv.ParseFloat(PlainText(value), 64)
	exact, notInteger := strconv.ParseInt(PlainText(value), 10, 64)
	switch {
	case notInteger == nil:
		*n = LooseInt(exact)
	case err == nil && number > -maxLooseInt && number < maxLooseInt:
		*n = LooseInt(number)
	default:
		*n = 0
	}
	return nil
}

// maxLooseInt bounds the fractions of LooseInt. Up to there each float64 has its own integer.
const maxLooseInt = 1 << 53
