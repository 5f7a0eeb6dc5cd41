package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// decode reads one JSON value, with numbers as json.Number.
func decode(raw []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more behind the value")
	}
	return value, nil
}

// encode is the inverse of decode.
func encode(value any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), nil
}

// key is the same text for values that are equal to JSON Schema, and only for them.
func key(value any) string {
	var b strings.Builder
	writeKey(&b, value)
	return b.String()
}

func writeKey(b *strings.Builder, value any) {
	switch v := value.(type) {
	case nil:
		b.WriteString("null")
	case bool:
		b.WriteString(strconv.FormatBool(v))
	case json.Number:
		b.WriteString(parseDecimal(v).key())
	case string:
		b.WriteString(strconv.Quote(v))
	case []any:
		b.WriteByte('[')
		for _, item := range v {
			writeKey(b, item)
			b.WriteByte(',')
		}
		b.WriteByte(']')
	case map[string]any:
		b.WriteByte('{')
		for _, name := range slices.Sorted(maps.Keys(v)) {
			b.WriteString(strconv.Quote(name))
			b.WriteByte(':')
			writeKey(b, v[name])
			b.WriteByte(',')
		}
		b.WriteByte('}')
	}
}

// typeOf is the narrowest type that JSON Schema knows of the value.
func typeOf(value any) string {
	switch v := value.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case []any:
		return "array"
	case json.Number:
		if !strings.ContainsAny(string(v), ".eE") || parseDecimal(v).whole() {
			return "integer"
		}
		return "number"
	}
	return "object"
}
