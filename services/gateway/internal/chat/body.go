package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// maxParts bounds the parts of one message: a part of a few bytes costs a hundred
// in memory.
const maxParts = 1000

// UnmarshalJSON takes the keys that request names. A client sends the whole
// conversation; of messages only the last entry is decoded, and the others are
// passed over without being kept. Invalid (MESSAGE_INVALID): a message has more
// than maxParts parts.
func (r *request) UnmarshalJSON(text []byte) error {
	texts := map[string]*string{"id": &r.ID, "trigger": &r.Trigger, "agenttype": &r.AgentType, "onbusy": &r.OnBusy}
	return object(text, func(name string, value []byte, at int64) error {
		switch key := strings.ToLower(name); key {
		case "messages":
			return r.takeLast(value, at)
		case "message":
			r.Message = bytes.Clone(value)
			return bounded(value)
		default:
			if target := texts[key]; target != nil {
				return located(json.Unmarshal(value, target), name, at)
			}
			return nil
		}
	})
}

// takeLast decodes the last entry of the list.
func (r *request) takeLast(list []byte, at int64) error {
	r.Last = nil
	var last []byte
	var lastAt int64
	err := array(list, func(value []byte, offset int64) error {
		last, lastAt = value, at+offset
		return nil
	})
	if err != nil || last == nil {
		return located(err, "messages", at)
	}
	if err := bounded(last); err != nil {
		return err
	}
	r.Last = &message{}
	return located(json.Unmarshal(last, r.Last), "messages", lastAt)
}

// bounded refuses a message with too many parts before they are decoded.
func bounded(message []byte) error {
	if message[0] != '{' {
		return nil
	}
	return object(message, func(name string, value []byte, _ int64) error {
		if !strings.EqualFold(name, "parts") || value[0] != '[' {
			return nil
		}
		count := 0
		return array(value, func([]byte, int64) error {
			if count++; count > maxParts {
				return fault.New(fault.Invalid, "MESSAGE_INVALID", "the message has more than %d parts; send fewer and longer ones", maxParts)
			}
			return nil
		})
	})
}

// object calls f with each key of a valid JSON object, its value, and where in
// the text the value begins. null has no keys.
func object(text []byte, f func(name string, value []byte, at int64) error) error {
	if text[0] != '{' {
		return json.Unmarshal(text, &struct{}{}) // says what it is
	}
	d, err := within(text)
	for err == nil && d.More() {
		var key json.Token
		if key, err = d.Token(); err != nil {
			break
		}
		var value []byte
		var at int64
		if value, at, err = next(d, text); err == nil {
			name, _ := key.(string)
			err = f(name, value, at)
		}
	}
	return err
}

// array calls f with each entry of a valid JSON array, and where in the text it
// begins. null has no entries.
func array(text []byte, f func(value []byte, at int64) error) error {
	if text[0] != '[' {
		return json.Unmarshal(text, &[]struct{}{})
	}
	d, err := within(text)
	for err == nil && d.More() {
		var value []byte
		var at int64
		if value, at, err = next(d, text); err == nil {
			err = f(value, at)
		}
	}
	return err
}

// within gives a decoder that stands behind the text's opening bracket.
func within(text []byte) (*json.Decoder, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	_, err := d.Token()
	return d, err
}

// next gives the next value that d reads from the text, as a part of the text,
// and where it begins.
func next(d *json.Decoder, text []byte) (value []byte, at int64, err error) {
	var n length
	if err := d.Decode(&n); err != nil {
		return nil, 0, err
	}
	end := d.InputOffset()
	return text[end-int64(n) : end], end - int64(n), nil
}

// length is how many bytes a JSON value has; it keeps nothing of the value.
type length int

func (l *length) UnmarshalJSON(text []byte) error {
	*l = length(len(text))
	return nil
}

// located makes the place of a type error that of the whole body.
func located(err error, field string, at int64) error {
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		wrong.Offset += at
		wrong.Field = strings.TrimSuffix(field+"."+wrong.Field, ".")
	}
	return err
}
