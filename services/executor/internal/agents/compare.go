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

// Numbers of up to maxDigits characters are compared exactly: a decimal digit takes 3.33 bits, so floats
// of this precision distinguish all of them.
const (
	maxDigits = 400
	precision = 1400
)

// number parses a json.Number. ok is false for any other value, and for a longer number.
func number(v any) (f *big.Float, ok bool) {
	n, ok := v.(json.Number)
	if !ok || isTooLong(n) {
		return nil, false
	}
	f, _, err := big.ParseFloat(n.String(), 10, precision, big.ToNearestEven)
	return f, err == nil
}

func isTooLong(v any) bool {
	n, ok := v.(json.Number)
	return ok && len(n) > maxDigits
}
