package session

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// OpKind is what a StateOp does.
type OpKind string

// The kinds of state writes.
const (
	Replace OpKind = "replace" // Value takes the place of the key's value
	Append  OpKind = "append"  // the items of Value, an array, go behind those of the key's array
	Delete  OpKind = "delete"  // the key goes away
)

// StateOp is one write to a top-level key of the custom state.
type StateOp struct {
	Key   string `json:"key"`
	Kind  OpKind `json:"kind"`
	Value string `json:"value,omitempty"` // one JSON text; empty for Delete
}

// Fold gives the custom state that the writes make of a whole one. Each text
// of writes is what a Change.StateWrite was, as JSON.
func Fold(whole string, writes []string) (string, error) {
	var ops []StateOp
	for _, text := range writes {
		var more []StateOp
		if err := json.Unmarshal([]byte(text), &more); err != nil {
			return "", fmt.Errorf("decode stored writes: %w", err)
		}
		ops = append(ops, more...)
	}
	merged, err := merge(whole, ops, math.MaxInt)
	return merged.state, err
}

type mergeResult struct {
	state    string
	warnings []string
}

// merge applies the ops to a JSON object in their order, and keeps the order
// and the text of the keys that they leave alone. Without ops the state comes
// back as it is, byte for byte.
//
// Append to a missing key makes the array; append to what is no array
// replaces it and warns, as does append to a key that an earlier op has
// replaced or deleted, since the writers did not know of each other.
//
// TooLarge (STATE_SIZE_EXCEEDED) when the state would have more than limit
// bytes.
func merge(state string, ops []StateOp, limit int) (mergeResult, error) {
	if len(ops) == 0 {
		return mergeResult{state: state}, nil
	}
	o, err := parseObject(state)
	if err != nil {
		return mergeResult{}, fmt.Errorf("parse stored state: %w", err)
	}
	var warnings []string
	rewritten := map[string]bool{}
	for _, op := range ops {
		warning, err := o.apply(op, rewritten[op.Key])
		if err != nil {
			return mergeResult{}, err
		}
		if warning != "" {
			warnings = append(warnings, warning)
		}
		rewritten[op.Key] = rewritten[op.Key] || op.Kind != Append
	}
	merged := o.text()
	if len(merged) > limit {
		return mergeResult{}, StateTooLarge(len(merged), limit, ops)
	}
	return mergeResult{merged, warnings}, nil
}

// StateTooLarge is the fault for a custom state above the limit. Its metadata
// says which keys the ops wanted to write.
func StateTooLarge(size, limit int, ops []StateOp) error {
	var keys []string
	for _, op := range ops {
		if !slices.Contains(keys, op.Key) {
			keys = append(keys, op.Key)
		}
	}
	return fault.New(fault.TooLarge, "STATE_SIZE_EXCEEDED",
		"the custom state would have %d bytes; the limit is %d: keep large artefacts elsewhere and refer to them", size, limit).
		With("changedKeys", strings.Join(keys, ",")).
		With("limitBytes", strconv.Itoa(limit)).
		With("sizeBytes", strconv.Itoa(size))
}

// object is a JSON object with the order of its keys.
type object struct {
	keys   []string
	values map[string]json.RawMessage
}

// parseObject reads one JSON object. Of a key that stands twice the last value
// counts, at the place of the first.
func parseObject(text string) (*object, error) {
	d := json.NewDecoder(strings.NewReader(text))
	if t, err := d.Token(); err != nil {
		return nil, err
	} else if t != json.Delim('{') {
		return nil, fmt.Errorf("not a JSON object: begins with %v", t)
	}
	o := &object{values: map[string]json.RawMessage{}}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		o.set(key.(string), value)
	}
	return o, nil
}

func (o *object) set(key string, value json.RawMessage) {
	if _, known := o.values[key]; !known {
		o.keys = append(o.keys, key)
	}
	o.values[key] = value
}

func (o *object) remove(key string) {
	delete(o.values, key)
	o.keys = slices.DeleteFunc(o.keys, func(k string) bool { return k == key })
}

// apply writes one op. raced says that an earlier op of the same merge has
// replaced or deleted the key.
func (o *object) apply(op StateOp, raced bool) (warning string, err error) {
	switch op.Kind {
	case Delete:
		o.remove(op.Key)
		return "", nil
	case Replace:
		// Trimmed as reading it again would: Fold gives the text that merge gave.
		o.set(op.Key, json.RawMessage(strings.Trim(op.Value, " \t\r\n")))
		return "", nil
	case Append:
		return o.extend(op, raced)
	default:
		return "", fmt.Errorf("state op on %q has the unknown kind %q", op.Key, op.Kind)
	}
}

func (o *object) extend(op StateOp, raced bool) (string, error) {
	added, ok := items(json.RawMessage(op.Value))
	if !ok {
		return "", fmt.Errorf("append to %q: the value is not a JSON array", op.Key)
	}
	old, known := o.values[op.Key]
	if !known {
		o.set(op.Key, array(added))
		return raceWarning(op.Key, raced), nil
	}
	present, ok := items(old)
	if !ok {
		o.set(op.Key, array(added))
		return fmt.Sprintf("append to %q: its value was not an array and was replaced", op.Key), nil
	}
	o.set(op.Key, array(slices.Concat(present, added)))
	return raceWarning(op.Key, raced), nil
}

func raceWarning(key string, raced bool) string {
	if !raced {
		return ""
	}
	return fmt.Sprintf("append to %q: the same step replaced or deleted it before; the writes were applied in their order", key)
}

// items takes a JSON array apart; ok is false for everything else, null too.
func items(text json.RawMessage) (list []json.RawMessage, ok bool) {
	if trimmed := bytes.TrimLeft(text, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '[' {
		return nil, false
	}
	err := json.Unmarshal(text, &list)
	return list, err == nil
}

func array(list []json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('[')
	for i, item := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(item)
	}
	b.WriteByte(']')
	return b.Bytes()
}

func (o *object) text() string {
	var b strings.Builder
	b.WriteByte('{')
	for i, key := range o.keys {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(quote(key))
		b.WriteByte(':')
		b.Write(o.values[key])
	}
	b.WriteByte('}')
	return b.String()
}

// quote writes a key as JSON without the escapes that HTML would need.
func quote(key string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(key); err != nil {
		return strconv.Quote(key) // a string always encodes
	}
	return strings.TrimSuffix(b.String(), "\n")
}
