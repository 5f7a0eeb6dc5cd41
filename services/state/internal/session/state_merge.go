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

// OpKind is the kind of a StateOp.
type OpKind string

// The kinds of StateOp.
const (
	OpReplace OpKind = "replace" // set the key to Value
	OpAppend  OpKind = "append"  // add the items of Value, an array, to the key's array
	OpDelete  OpKind = "delete"  // remove the key
)

// StateOp is one write to a top-level key of the custom state.
type StateOp struct {
	Key   string `json:"key"`
	Kind  OpKind `json:"kind"`
	Value string `json:"value,omitempty"` // one JSON text; empty for Delete
}

// FoldState applies stored writes to a whole custom state. Each write is a Change.StateWrite as
// JSON.
func FoldState(base string, writes []string) (string, error) {
	var ops []StateOp
	for _, text := range writes {
		var more []StateOp
		if err := json.Unmarshal([]byte(text), &more); err != nil {
			return "", fmt.Errorf("decode stored writes: %w", err)
		}
		ops = append(ops, more...)
	}
	merged, err := merge(base, ops, math.MaxInt)
	return merged.state, err
}

type mergeResult struct {
	state    string
	warnings []string
}

// maxWarnings is how many warnings of one merge are listed.
const maxWarnings = 50

// merge applies the ops to a JSON object in their order. It keeps the order of the keys and
// the text of the untouched ones; without ops the state comes back byte for byte. It takes
// linear time, since the store waits for it with the session locked.
//
// An append to a missing key creates the array. An append to another value replaces it, with
// a warning. An append after a replace or delete of the same key is applied with a warning,
// since the two writers did not know of each other. After maxWarnings warnings a last one
// gives the number of the others.
//
// TooLarge (STATE_SIZE_EXCEEDED) if the result has more than limit bytes.
func merge(state string, ops []StateOp, limit int) (mergeResult, error) {
	if len(ops) == 0 {
		return mergeResult{state: state}, nil
	}
	o, err := parseObject(state)
	if err != nil {
		return mergeResult{}, fmt.Errorf("parse stored state: %w", err)
	}
	var warnings []string
	omitted := 0
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
			omitted++
		}
		rewritten[op.Key] = rewritten[op.Key] || op.Kind != OpAppend
	}
	if omitted > 0 {
		warnings = append(warnings, fmt.Sprintf("%d more warnings are omitted", omitted))
	}
	merged := o.text()
	if len(merged) > limit {
		return mergeResult{}, StateTooLarge(len(merged), limit, ops)
	}
	return mergeResult{merged, warnings}, nil
}

// Bounds of the key list in a fault. Fault metadata travels in a response header, which is
// small.
const (
	maxNamedKeys  = 64
	maxNamedBytes = 4 << 10
)

// StateTooLarge is the fault for a custom state above the limit. Its metadata lists the keys
// of the ops: at most maxNamedKeys keys and maxNamedBytes bytes, then "…" for the rest.
func StateTooLarge(size, limit int, ops []StateOp) error {
	return &fault.Fault{
		Kind: fault.TooLarge, Reason: "STATE_SIZE_EXCEEDED",
		Detail: fmt.Sprintf(
			"the custom state would have %d bytes; the limit is %d: keep large artefacts elsewhere and refer to them", size, limit),
		Meta: map[string]string{
			"changedKeys": changedKeys(ops), fault.SizeBytes: strconv.Itoa(size), fault.LimitBytes: strconv.Itoa(limit),
		},
	}
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

// object is a JSON object with ordered keys. The first append to a key splits its array into
// items; text joins them.
type object struct {
	fields []*field          // in order, including removed ones
	byKey  map[string]*field // without removed fields
}

type field struct {
	key     string
	value   json.RawMessage   // if list is false
	items   []json.RawMessage // if list is true
	list    bool
	removed bool
}

// parseObject reads one JSON object. A repeated key keeps its first place and its last
// value.
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

// fieldOf returns the field of the key, and adds a new one at the end.
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

// apply applies one op. raced reports an earlier replace or delete of the key in the same
// merge.
func (o *object) apply(op StateOp, raced bool) (warning string, err error) {
	switch op.Kind {
	case OpDelete:
		o.remove(op.Key)
		return "", nil
	case OpReplace:
		// Trim as the decoder does, so that FoldState gives the same text as merge.
		o.set(op.Key, json.RawMessage(strings.Trim(op.Value, " \t\r\n")))
		return "", nil
	case OpAppend:
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
	if raced {
		warning = fmt.Sprintf("append to %q: the same step replaced or deleted it before; the writes were applied in their order", op.Key)
	}
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

// items splits a JSON array. ok is false for any other value, including null.
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

// quote encodes a key as JSON without HTML escapes.
func quote(key string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(key); err != nil {
		return strconv.Quote(key) // not reached: a string always encodes
	}
	return strings.TrimSuffix(b.String(), "\n")
}
