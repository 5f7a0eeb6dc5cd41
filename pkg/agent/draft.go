package agent

import (
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Limits of the changes of one caller. They are those of the state service.
const (
	// DefaultStateBytes bounds the changes, keys and values together.
	DefaultStateBytes = 1887436
	maxStateKeys      = 1000
	maxStateKey       = 256 // bytes
	maxKeysNamed      = 64
)

// Draft is a custom state with the changes of one caller, who is alone with it. Safe
// for concurrent use.
type Draft struct {
	maxBytes int
	updating chan struct{} // holds a token while a change is made
	ended    chan struct{}

	mu     sync.Mutex
	before State // not ours to change
	after  State // never changed in place
	ops    []Op
	over   bool
}

// NewDraft begins a draft of a state as ParseState or Clone make it, which nobody may
// change from now on. maxBytes bounds what is changed, as JSON with the keys; 0
// means DefaultStateBytes.
func NewDraft(state State, maxBytes int) *Draft {
	if maxBytes <= 0 {
		maxBytes = DefaultStateBytes
	}
	return &Draft{
		maxBytes: maxBytes, updating: make(chan struct{}, 1), ended: make(chan struct{}),
		before: state, after: state,
	}
}

// State gives a copy of the state with the changes.
func (d *Draft) State() State {
	copied, err := d.current().Clone()
	if err != nil { // what is there came from JSON
		return State{}
	}
	return copied
}

func (d *Draft) current() State {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.after
}

// Update changes the state: change may do with its draft what it likes, but not call
// Update. Changes are made one after another. What change returns as an error, or its
// panic, undoes it. Invalid (STATE_INVALID) for what JSON cannot express, for keys that
// are not 1 to 256 bytes without control characters, and for more than 1000 changed
// keys; TooLarge (STATE_SIZE_EXCEEDED; metadata changedKeys, limitBytes, sizeBytes);
// Conflict (CALL_ENDED) behind End.
func (d *Draft) Update(change func(draft State) error) error {
	select {
	case <-d.ended:
		return errEnded()
	default:
	}
	select {
	case d.updating <- struct{}{}:
	case <-d.ended:
		return errEnded()
	}
	defer func() { <-d.updating }()
	draft := d.State()
	if err := change(draft); err != nil {
		return err
	}
	after, err := draft.Clone()
	if err != nil {
		return err
	}
	ops := Diff(d.before, after)
	if err := checkOps(ops, d.maxBytes); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over {
		return errEnded()
	}
	d.after, d.ops = after, ops
	return nil
}

// End gives the writes that make the changes, and refuses changes from now on. It
// does not wait for one that is being made: that one comes too late.
func (d *Draft) End() []Op {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.over {
		d.over = true
		close(d.ended)
	}
	return d.ops
}

func errEnded() error {
	return fault.New(fault.Conflict, "CALL_ENDED", "the call has ended: what it changes now would reach nobody")
}

func checkOps(ops []Op, maxBytes int) error {
	size := 0
	for _, op := range ops {
		if !goodKey(op.Key) {
			return fault.New(fault.Invalid, "STATE_INVALID", "the key %.80q must have 1 to %d bytes without control characters", op.Key, maxStateKey)
		}
		size += len(op.Key) + len(op.Value)
	}
	if len(ops) > maxStateKeys {
		return fault.New(fault.Invalid, "STATE_INVALID", "%d keys were changed, and %d may be: put what belongs together under one key", len(ops), maxStateKeys)
	}
	if size > maxBytes {
		return fault.New(fault.TooLarge, "STATE_SIZE_EXCEEDED",
			"the changes of the custom state have %d bytes; the limit is %d: keep large artefacts elsewhere and refer to them", size, maxBytes).
			With("changedKeys", changedKeys(ops)).
			With("limitBytes", strconv.Itoa(maxBytes)).
			With("sizeBytes", strconv.Itoa(size))
	}
	return nil
}

// goodKey reports whether a text can be a key of the custom state, or the id of an event.
func goodKey(key string) bool {
	return key != "" && len(key) <= maxStateKey && utf8.ValidString(key) && !strings.ContainsFunc(key, unicode.IsControl)
}

func changedKeys(ops []Op) string {
	var keys []string
	for _, op := range ops[:min(len(ops), maxKeysNamed)] {
		keys = append(keys, op.Key)
	}
	if len(ops) > maxKeysNamed {
		keys = append(keys, "…")
	}
	return strings.Join(keys, ",")
}
