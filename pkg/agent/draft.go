package agent

import (
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Limits of the changes of one caller, as in the state service.
const (
	// DefaultStateBytes bounds the keys and values of the changes together.
	DefaultStateBytes = 1887436
	maxStateKeys      = 1000
	maxStateKey       = 256 // bytes
	maxKeysNamed      = 64
)

// Draft is a custom state with the changes of one tool call or hook. Safe for concurrent use.
type Draft struct {
	maxBytes int
	schema   *Schema       // nil if anything fits
	updating chan struct{} // contains a token during an update
	ended    chan struct{}

	mu      sync.Mutex
	before  State // read only
	after   State // replaced, never modified
	ops     []Op
	isEnded bool
}

// NewDraft returns a draft of a state from ParseState or Clone. The state must not be modified
// afterwards. maxBytes bounds the changed keys and their JSON together; 0 means DefaultStateBytes.
// schema may be nil.
func NewDraft(state State, schema *Schema, maxBytes int) *Draft {
	if maxBytes <= 0 {
		maxBytes = DefaultStateBytes
	}
	return &Draft{
		maxBytes: maxBytes, schema: schema, updating: make(chan struct{}, 1), ended: make(chan struct{}),
		before: state, after: state,
	}
}

// State returns a copy of the state with the changes.
func (d *Draft) State() State {
	d.mu.Lock()
	current := d.after
	d.mu.Unlock()
	copied, err := current.Clone()
	if err != nil { // impossible: the state came from JSON
		return State{}
	}
	return copied
}

// Update changes the state: see Host.Update. Concurrent updates run one after another. A panic of change
// drops the change.
//
// Faults: Invalid (STATE_INVALID) for values without JSON, for keys other than 1 to 256 bytes of
// UTF-8 without control characters, for more than 1000 changed keys, and for changes that break the
// schema; TooLarge
// (STATE_SIZE_EXCEEDED, with metadata changedKeys, limitBytes, sizeBytes); Conflict (CALL_ENDED)
// after End.
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
	if err := d.checkSchema(after, ops); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isEnded {
		return errEnded()
	}
	d.after, d.ops = after, ops
	return nil
}

func (d *Draft) checkSchema(after State, ops []Op) error {
	if d.schema == nil || len(ops) == 0 {
		return nil
	}
	if err := d.schema.CheckChange(marshal(d.before), marshal(after)); err != nil {
		return fault.New(fault.Invalid, "STATE_INVALID", "the custom state does not fit the schema of the agent: %v", err)
	}
	return nil
}

// End returns the writes of all changes. Updates still running by then fail with CALL_ENDED;
// End does not wait for them.
func (d *Draft) End() []Op {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.isEnded {
		d.isEnded = true
		close(d.ended)
	}
	return d.ops
}

func errEnded() error {
	return fault.New(fault.Conflict, "CALL_ENDED", "the call has ended; its changes can no longer be written")
}

func checkOps(ops []Op, maxBytes int) error {
	size := 0
	for _, op := range ops {
		if !isValidKey(op.Key) {
			return fault.New(fault.Invalid, "STATE_INVALID", "the key %.80q must have 1 to %d bytes without control characters", op.Key, maxStateKey)
		}
		size += len(op.Key) + len(op.Value)
	}
	if len(ops) > maxStateKeys {
		return fault.New(fault.Invalid, "STATE_INVALID",
			"%d keys were changed; at most %d are allowed; group values under one key", len(ops), maxStateKeys)
	}
	if size > maxBytes {
		return fault.New(
			fault.TooLarge,
			"STATE_SIZE_EXCEEDED",
			"the changes of the custom state have %d bytes; at most %d are allowed; store large data elsewhere and keep a reference",
			size,
			maxBytes,
		).
			With("changedKeys", changedKeys(ops)).
			With("limitBytes", strconv.Itoa(maxBytes)).
			With("sizeBytes", strconv.Itoa(size))
	}
	return nil
}

// isValidKey reports whether a text can be a key of the custom state, or the id of an event.
func isValidKey(key string) bool {
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
