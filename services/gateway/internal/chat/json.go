package chat

import (
	"bytes"
	"encoding/json"
)

// These functions walk JSON text after its validation by encoding/json, as UnmarshalJSON receives
// it. Clients send the whole conversation with every message; a walk reads each byte once, whatever
// the nesting.

// walkObject calls f with each key of a valid JSON object, its value, and the offset of the value.
// null has no keys.
func walkObject(text []byte, f func(name string, value []byte, at int64) error) error {
	if text[0] != '{' {
		return json.Unmarshal(text, &struct{}{}) // returns the type error
	}
	for at := skipSpace(text, 1); text[at] != '}'; {
		end := stringEnd(text, at)
		name, err := nameOf(text[at:end])
		if err != nil {
			return err
		}
		begin := skipSpace(text, skipSpace(text, end)+len(":"))
		end = valueEnd(text, begin)
		if err := f(name, text[begin:end], int64(begin)); err != nil {
			return err
		}
		at = nextEntry(text, end)
	}
	return nil
}

// walkArray calls f with each entry of a valid JSON array and its offset. null has no entries.
func walkArray(text []byte, f func(value []byte, at int64) error) error {
	if text[0] != '[' {
		return json.Unmarshal(text, &[]struct{}{})
	}
	for at := skipSpace(text, 1); text[at] != ']'; {
		end := valueEnd(text, at)
		if err := f(text[at:end], int64(at)); err != nil {
			return err
		}
		at = nextEntry(text, end)
	}
	return nil
}

// nameOf decodes a key.
func nameOf(quoted []byte) (name string, err error) {
	for _, c := range quoted {
		if c == '\\' || c >= 0x80 {
			err = json.Unmarshal(quoted, &name)
			return name, err
		}
	}
	return string(quoted[1 : len(quoted)-1]), nil
}

// skipSpace returns the offset of the first byte from at on, without white space.
func skipSpace(text []byte, at int) int {
	for text[at] == ' ' || text[at] == '\n' || text[at] == '\t' || text[at] == '\r' {
		at++
	}
	return at
}

// nextEntry returns the offset of the next entry, or of the closing bracket.
func nextEntry(text []byte, end int) int {
	at := skipSpace(text, end)
	if text[at] == ',' {
		at = skipSpace(text, at+1)
	}
	return at
}

// valueEnd returns the offset after the value at the offset.
func valueEnd(text []byte, at int) int {
	switch text[at] {
	case '"':
		return stringEnd(text, at)
	case '{', '[':
		return bracketEnd(text, at)
	}
	for at < len(text) && bytes.IndexByte([]byte(",]} \n\t\r"), text[at]) < 0 {
		at++
	}
	return at
}

func bracketEnd(text []byte, at int) int {
	for open := 0; ; at++ {
		switch text[at] {
		case '"':
			at = stringEnd(text, at) - 1
		case '{', '[':
			open++
		case '}', ']':
			if open--; open == 0 {
				return at + 1
			}
		}
	}
}

func stringEnd(text []byte, at int) int {
	for at++; ; at++ {
		at += bytes.IndexByte(text[at:], '"')
		escapes := at
		for text[escapes-1] == '\\' {
			escapes--
		}
		if (at-escapes)%2 == 0 {
			return at + 1
		}
	}
}
