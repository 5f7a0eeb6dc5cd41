package agents

import (
	"bytes"
	"encoding/json"
	"math/big"
	"slices"
)

// decode decodes JSON with numbers as json.Number, as in agent.State.
func decode(text json.RawMessage) (v any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	err = decoder.Decode(&v)
	return v, err
}

// isEqual compares JSON values. Numbers are equal by value: 1 equals 1.0.
func isEqual(a, b any) bool {
	x, isNumber := number(a)
	if y, ok := number(b); isNumber || ok {
		return isNumber && ok && x.Cmp(y) == 0
	}
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for key, v := range a {
			if w, ok := b[key]; !ok || !isEqual(v, w) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, isEqual)
	}
	return a == b
}

// maxDigits bounds the length of a number. A longer one is not compared as a number.
const maxDigits = 400

// number parses a json.Number with 256 bits of precision.
func number(v any) (*big.Float, bool) {
	n, ok := v.(json.Number)
	if !ok || len(n) > maxDigits {
		return nil, false
	}
	f, _, err := big.ParseFloat(n.String(), 10, 256, big.ToNearestEven)
	return f, err == nil
}
