package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// decode decodes one JSON value, with numbers as json.Number.
func decode(raw []byte) (any, error) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more text after the value")
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

// canonical returns the same text for values equal in JSON Schema (1 equals 1.0), and different
// texts for all others.
func canonical(value any) string {
	text, _ := canonicalWithin(value, math.MaxInt)
	return text
}

// canonicalWithin is canonical up to a length. A longer text is cut anywhere beyond it. work is how many
// bytes it has processed.
func canonicalWithin(value any, limit int) (text string, work int) {
	w := canonicalWriter{limit: limit}
	w.write(value)
	return w.String(), w.work
}

type canonicalWriter struct {
	strings.Builder
	limit, work int
}

func (w *canonicalWriter) isFull() bool { return w.Len() > w.limit }

func (w *canonicalWriter) write(value any) {
	switch v := value.(type) {
	case nil:
		w.WriteString("null")
	case bool:
		w.WriteString(strconv.FormatBool(v))
	case json.Number:
		w.work += len(v)
		w.WriteString(parseDecimal(v).key())
	case string:
		w.text(v)
	case []any:
		w.WriteByte('[')
		for _, item := range v {
			if w.isFull() {
				return
			}
			w.write(item)
			w.WriteByte(',')
		}
		w.WriteByte(']')
	case map[string]any:
		w.object(v)
	}
}

func (w *canonicalWriter) object(object map[string]any) {
	w.WriteByte('{')
	if len(object) > w.limit { // each member takes more than a byte
		w.WriteString(strings.Repeat(",", w.limit))
		return
	}
	w.work += len(object) * compareBytes // for sorting
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if w.isFull() {
			return
		}
		w.text(name)
		w.WriteByte(':')
		w.write(object[name])
		w.WriteByte(',')
	}
	w.WriteByte('}')
}

// text writes a string in quotes.
func (w *canonicalWriter) text(text string) {
	text = text[:min(len(text), w.limit)]
	w.work += len(text)
	w.WriteString(strconv.Quote(text))
}

// typeOf returns the JSON Schema type of a value: integer for 1 and 1.0.
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
		if !strings.ContainsAny(string(v), ".eE") || parseDecimal(v).isInteger() {
			return "integer"
		}
		return "number"
	}
	return "object"
}
