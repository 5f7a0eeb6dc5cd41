package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// decodeInput decodes the input of a tool. The error is for the model.
func decodeInput[In any](raw json.RawMessage) (In, error) {
	var in In
	if err := checkCase(raw, reflect.TypeFor[In]()); err != nil {
		return in, fmt.Errorf("the arguments cannot be read: %w", err)
	}
	err := decodeInto(raw, &in)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && strings.HasPrefix(wrong.Value, "number") {
		// 3.0 and 3e2 are integers in JSON Schema, but not in encoding/json.
		if plain, changed := plainIntegers(raw); changed {
			in = *new(In)
			err = decodeInto(plain, &in)
		}
	}
	if err != nil {
		return in, fmt.Errorf("the arguments cannot be read: %w", err)
	}
	return in, nil
}

func decodeInto(raw json.RawMessage, target any) error {
	if len(raw) == 0 {
		raw = json.RawMessage("{}")
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	return decoder.Decode(target)
}

// maxPlainDigits bounds plain integers. No Go integer has more digits.
const maxPlainDigits = 20

// plainIntegers rewrites integers without a decimal point and exponent.
func plainIntegers(raw json.RawMessage) (json.RawMessage, bool) {
	value, err := decode(raw)
	if err != nil {
		return nil, false
	}
	changed := false
	text, err := json.Marshal(mapNumbers(value, func(n json.Number) json.Number {
		plain, ok := plainInteger(string(n))
		changed = changed || ok
		return json.Number(plain)
	}))
	return text, changed && err == nil
}

// plainInteger rewrites one integer. changed is false for a number that has neither a point nor an
// exponent, is not an integer, or is too long.
func plainInteger(text string) (plain string, changed bool) {
	if !strings.ContainsAny(text, ".eE") {
		return text, false
	}
	mantissa, exponent := text, 0
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		mantissa = text[:i]
		if _, err := fmt.Sscanf(text[i+1:], "%d", &exponent); err != nil || exponent > maxPlainDigits || exponent < -maxPlainDigits {
			return text, false
		}
	}
	mantissa, negative := strings.CutPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := whole + fraction
	point := len(whole) + exponent
	switch {
	case point >= len(digits):
		digits += strings.Repeat("0", point-len(digits))
	case strings.Trim(digits[max(point, 0):], "0") != "":
		return text, false
	default:
		digits = digits[:max(point, 0)]
	}
	digits = strings.TrimLeft(digits, "0")
	if digits == "" {
		return "0", true
	}
	if len(digits) > maxPlainDigits {
		return text, false
	}
	if negative {
		digits = "-" + digits
	}
	return digits, true
}

func mapNumbers(value any, change func(json.Number) json.Number) any {
	switch v := value.(type) {
	case json.Number:
		return change(v)
	case []any:
		for i, item := range v {
			v[i] = mapNumbers(item, change)
		}
	case map[string]any:
		for name, inner := range v {
			v[name] = mapNumbers(inner, change)
		}
	}
	return value
}
