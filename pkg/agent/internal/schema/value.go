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
	text, _ := keyWithin(value, math.MaxInt)
	return text
}

// keyWithin is key where that has at most some bytes, else a text that is longer than
// that. It gives the bytes of the value that it has looked at, too.
func keyWithin(value any, most int) (text string, work int) {
	w := keyWriter{most: most}
	w.write(value)
	return w.String(), w.work
}

type keyWriter struct {
	strings.Builder
	most, work int
}

func (w *keyWriter) full() bool { return w.Len() > w.most }

func (w *keyWriter) write(value any) {
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
			if w.full() {
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

func (w *keyWriter) object(object map[string]any) {
	w.WriteByte('{')
	if len(object) > w.most { // each member takes more than a byte
		w.WriteString(strings.Repeat(",", w.most))
		return
	}
	w.work += len(object) * keyBytes // they are sorted
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if w.full() {
			return
		}
		w.text(name)
		w.WriteByte(':')
		w.write(object[name])
		w.WriteByte(',')
	}
	w.WriteByte('}')
}

// text writes a quoted text, which is no shorter than the text.
func (w *keyWriter) text(text string) {
	text = text[:min(len(text), w.most)]
	w.work += len(text)
	w.WriteString(strconv.Quote(text))
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
