package session

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
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

// maxWarnings is how many warnings of one merge are told one by one.
const maxWarnings = 50

// merge applies the ops to a JSON object in their order, and keeps the order
// and the text of the keys that they leave alone. Without ops the state comes
// back as it is, byte for byte. It takes time in proportion to the state and
// the ops together, since a store waits for it with the session locked.
//
// Append to a missing key makes the array; append to what is no array
// replaces it and warns, as does append to a key that an earlier op has
// replaced or deleted, since the writers did not know of each other. Behind
// mostWarnings warnings one more says how many there were besides.
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
	untold := 0
	rewritten := map[string]bool{}
	for _, op := range ops {
		warning, err := o.apply(op, rewritten[op.Key])
		if err != nil {
			return mergeResult{}, err
		}
		switch {
		case warning == "":
		case len(warnings) < maxWarnings:
			warnings = append(warnings, warning)
		default:
			untold++
		}
		rewritten[op.Key] = rewritten[op.Key] || op.Kind != Append
	}
	if untold > 0 {
		warnings = append(warnings, fmt.Sprintf("%d more warnings of this kind are left out", untold))
	}
	merged := o.text()
	if len(merged) > limit {
		return mergeResult{}, StateTooLarge(len(merged), limit, ops)
	}
	return mergeResult{merged, warnings}, nil
}

// What a fault names of the keys that were to be written: it travels in the
// head of an answer, which has little room.
const (
	maxNamedKeys  = 64
	maxNamedBytes = 4 << 10
)

// StateTooLarge is the fault for a custom state above the limit. Its metadata
// says which keys the ops wanted to write: mostKeysNamed of them and
// mostBytesNamed bytes at most, and "…" in the place of the others.
func StateTooLarge(size, limit int, ops []StateOp) error {
	return fault.New(fault.TooLarge, "STATE_SIZE_EXCEEDED",
		"the custom state would have %d bytes; the limit is %d: keep large artefacts elsewhere and refer to them", size, limit).
		With("changedKeys", changedKeys(ops)).
		With("limitBytes", strconv.Itoa(limit)).
		With("sizeBytes", strconv.Itoa(size))
}

func changedKeys(ops []StateOp) string {
	var keys []string
	size, named := 0, map[string]bool{}
	for _, op := range ops {
		if named[op.Key] {
			continue
		}
		size += len(op.Key) + len(",")
		if len(keys) == maxNamedKeys || size > maxNamedBytes {
			keys = append(keys, "…")
			break
		}
		named[op.Key] = true
		keys = append(keys, op.Key)
	}
	return strings.Join(keys, ",")
}

// object is a JSON object that keeps the order of its keys. An append splits an array into
// items once; text joins them again.
type object struct {
	fields []*field          // in order, with the removed fields, which are marked gone
	byKey  map[string]*field // the present fields by key
}

type field struct {
	key     string
	value   json.RawMessage   // while list is false
	items   []json.RawMessage // while list is true
	list    bool
	removed bool
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
	o := &object{byKey: map[string]*field{}}
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

// fieldOf returns the field of the key, which is put behind the others when it is
// new.
func (o *object) fieldOf(key string) *field {
	f, known := o.byKey[key]
	if !known {
		f = &field{key: key}
		o.fields = append(o.fields, f)
		o.byKey[key] = f
	}
	return f
}

func (o *object) set(key string, value json.RawMessage) {
	f := o.fieldOf(key)
	f.value, f.items, f.list = value, nil, false
}

func (o *object) remove(key string) {
	if f, known := o.byKey[key]; known {
		f.removed, f.value, f.items = true, nil, nil
		delete(o.byKey, key)
	}
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
		return o.appendItems(op, raced)
	default:
		return "", fmt.Errorf("state op on %q has the unknown kind %q", op.Key, op.Kind)
	}
}

func (o *object) appendItems(op StateOp, raced bool) (warning string, err error) {
	added, ok := items(json.RawMessage(op.Value))
	if !ok {
		return "", fmt.Errorf("append to %q: the value is not a JSON array", op.Key)
	}
	_, known := o.byKey[op.Key]
	f := o.fieldOf(op.Key)
	warning = raceWarning(op.Key, raced)
	if known && !f.list {
		if f.items, ok = items(f.value); !ok {
			f.items = nil
			warning = fmt.Sprintf("append to %q: its value was not an array and was replaced", op.Key)
		}
	}
	f.value, f.list = nil, true
	f.items = append(f.items, added...)
	return warning, nil
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

func (o *object) text() string {
	var b strings.Builder
	b.WriteByte('{')
	first := true
	for _, f := range o.fields {
		if f.removed {
			continue
		}
		if !first {
			b.WriteByte(',')
		}
		first = false
		b.WriteString(quote(f.key))
		b.WriteByte(':')
		f.write(&b)
	}
	b.WriteByte('}')
	return b.String()
}

func (f *field) write(b *strings.Builder) {
	if !f.list {
		b.Write(f.value)
		return
	}
	b.WriteByte('[')
	for i, item := range f.items {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(item)
	}
	b.WriteByte(']')
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
