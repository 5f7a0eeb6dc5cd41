package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Limits of a private store, as in the state service.
const (
	MaxStoreKey    = 512     // bytes of a key
	MaxStoreValue  = 1 << 20 // bytes of a value as JSON
	MaxStoreWrites = 1000    // keys that one call may write
	MaxStoreBytes  = 8 << 20 // of the keys and values of one call's writes
)

// StoreEntry is a key of a private store with its value, a JSON text.
type StoreEntry struct {
	Key   string
	Value json.RawMessage
}

// StoreRange selects keys of a private store. The zero value selects all.
type StoreRange struct {
	Prefix string
	After  string // the range begins after this key
	Limit  int    // of entries; 0 means no limit
}

// StoreOp is the kind of a StoreWrite.
type StoreOp string

// The kinds of StoreWrite.
const (
	StorePut    StoreOp = "put"
	StoreDelete StoreOp = "delete"
	StoreAdd    StoreOp = "add"
)

// StoreWrite is a write to one key of a private store.
type StoreWrite struct {
	Key   string
	Op    StoreOp
	Value json.RawMessage // of StorePut
	Delta int64           // of StoreAdd
}

// StoreReader reads a stored private store, without the writes of a call.
type StoreReader interface {
	// StoreEntries returns the entries of the keys in any order, without the missing ones.
	StoreEntries(ctx context.Context, keys []string) ([]StoreEntry, error)
	// StoreRange returns a page of a range, in the order of the keys' bytes, and whether more entries follow.
	StoreRange(ctx context.Context, r StoreRange) (page []StoreEntry, more bool, err error)
}

// Store is the private storage of a session, for one call of a tool or a method: values by key, which neither clients
// nor the model see. It is for what does not fit into the custom state, such as an archive, an index or counters.
//
// Reads see what is stored, with the writes of this call. The writes are stored together with the result of the call,
// once, or dropped if the call fails. If several calls of a step write a key, the last of them in the order of
// the model's reply wins, whichever ends last. What is stored stays, also if the conversation is rewound behind the call. A
// branch of a session begins with an empty store. The store is deleted with the session.
//
// Keys have 1 to 512 bytes of UTF-8 without control characters, and are ordered by their bytes. Values are JSON of at most 1
// MiB. One call writes at most 1,000 keys with 8 MiB. A step writes at most 16 MiB, and the store of a session
// has at most 256 MiB, unless the operator has chosen other limits: a call beyond them fails when it ends.
//
// Safe for concurrent use.
type Store struct {
	reader StoreReader

	mu     sync.Mutex
	writes map[string]StoreWrite
	bytes  int
	ended  bool
}

// storeHost is a Host or a MethodHost with a private store.
type storeHost interface{ Store() *Store }

// Store returns the private storage of the session. Outside of a run, as in a test without a host, it is empty and keeps
// nothing.
func (c *Call) Store() *Store { return storeOf(c.Host) }

// Store returns the private storage of the session. What a method has written is stored when the method returns without an
// error, before the client gets the result. A session that does not exist yet is then created. Of a method
// that may not write, it refuses the end of the call: Denied (CONNECTION_READONLY).
func (c *MethodCall) Store() *Store { return storeOf(c.Host) }

func storeOf(host any) *Store {
	if h, ok := host.(storeHost); ok {
		return h.Store()
	}
	return NewStore(nil)
}

// NewStore returns a store for one call. A nil reader has no entries.
func NewStore(reader StoreReader) *Store {
	return &Store{reader: reader, writes: map[string]StoreWrite{}}
}

// Get reads the value of a key into target, as json.Unmarshal does. It reports false, and leaves target as it is, if the
// store has no such key. A read takes a round trip: GetAll and List read many keys in one.
//
// Faults: Invalid (STORE_KEY_INVALID), Invalid (STORE_VALUE_INVALID) for a value of another type, Stale if the run belongs to
// another executor, Unavailable.
func (s *Store) Get(ctx context.Context, key string, target any) (found bool, err error) {
	values, err := s.GetAll(ctx, key)
	value, found := values[key]
	if err != nil || !found {
		return false, err
	}
	if err := json.Unmarshal(value, target); err != nil {
		return true, fault.New(fault.Invalid, "STORE_VALUE_INVALID", "the value of the key %.80q in the store has another type: %v", key, err)
	}
	return true, nil
}

// GetAll reads the values of many keys, at most 1,000. The result has no missing keys. Faults as of Get.
func (s *Store) GetAll(ctx context.Context, keys ...string) (map[string]json.RawMessage, error) {
	var stored []string
	for _, key := range keys {
		if err := checkStoreKey(key); err != nil {
			return nil, err
		}
		if s.needsStored(key) {
			stored = append(stored, key)
		}
	}
	if len(keys) > MaxStoreWrites {
		return nil, fault.New(fault.Invalid, "STORE_KEY_INVALID", "%d keys are read at once; the limit is %d", len(keys), MaxStoreWrites)
	}
	values := map[string]json.RawMessage{}
	if s.reader != nil && len(stored) > 0 {
		entries, err := s.reader.StoreEntries(ctx, stored)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			values[e.Key] = e.Value
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		w, ok := s.writes[key]
		if !ok {
			continue
		}
		if value, err := w.apply(values[key]); err != nil {
			return nil, err
		} else if value == nil {
			delete(values, key)
		} else {
			values[key] = value
		}
	}
	return values, nil
}

// needsStored reports whether the value of the key depends on the stored one.
func (s *Store) needsStored(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, ok := s.writes[key]
	return !ok || w.Op == StoreAdd
}

// List returns the entries of a range in the order of the keys' bytes. It reads them by pages, as far as the loop
// goes. After an error it ends. The writes of this call count as they were when List began. Faults as of Get.
func (s *Store) List(ctx context.Context, r StoreRange) iter.Seq2[StoreEntry, error] {
	return func(yield func(StoreEntry, error) bool) {
		for _, bound := range []string{r.Prefix, r.After} {
			if err := checkStoreKey(bound); bound != "" && err != nil {
				yield(StoreEntry{}, err)
				return
			}
		}
		left := r.Limit
		each := func(e StoreEntry, err error) (ok bool) {
			left--
			return yield(e, err) && err == nil && left != 0
		}
		own := s.written(r)
		for more := s.reader != nil; more; {
			var page []StoreEntry
			var err error
			if page, more, err = s.reader.StoreRange(ctx, StoreRange{Prefix: r.Prefix, After: r.After, Limit: r.Limit}); err != nil {
				yield(StoreEntry{}, err)
				return
			}
			for _, e := range page {
				for len(own) > 0 && own[0].Key <= e.Key {
					w := own[0]
					own = own[1:]
					var before json.RawMessage
					if w.Key == e.Key {
						before, e.Value = e.Value, nil
					}
					value, err := w.apply(before)
					if (value != nil || err != nil) && !each(StoreEntry{w.Key, value}, err) {
						return
					}
				}
				if e.Value != nil && !each(e, nil) {
					return
				}
				r.After = e.Key
			}
			more = more && len(page) > 0
		}
		for _, w := range own {
			value, err := w.apply(nil)
			if (value != nil || err != nil) && !each(StoreEntry{w.Key, value}, err) {
				return
			}
		}
	}
}

// written returns the writes of this call in the range, in order.
func (s *Store) written(r StoreRange) []StoreWrite {
	s.mu.Lock()
	defer s.mu.Unlock()
	var own []StoreWrite
	for key, w := range s.writes {
		if strings.HasPrefix(key, r.Prefix) && key > r.After {
			own = append(own, w)
		}
	}
	slices.SortFunc(own, func(a, b StoreWrite) int { return cmp.Compare(a.Key, b.Key) })
	return own
}

// Put writes the value of a key: JSON of any form.
//
// Faults: Invalid (STORE_KEY_INVALID, STORE_VALUE_INVALID, STORE_WRITES_INVALID for more than 1,000 keys), TooLarge
// (STORE_VALUE_TOO_LARGE, STORE_WRITES_TOO_LARGE), Conflict (CALL_ENDED).
func (s *Store) Put(key string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return fault.New(fault.Invalid, "STORE_VALUE_INVALID", "the value of the key %.80q cannot be written as JSON: %v", key, err)
	}
	return s.write(StoreWrite{Key: key, Op: StorePut, Value: text})
}

// Delete deletes a key, if there is one. Faults as of Put.
func (s *Store) Delete(key string) error { return s.write(StoreWrite{Key: key, Op: StoreDelete}) }

// Add adds to the value of a key, an integer of 64 bits. A missing key counts as 0. Additions of different calls add up. An
// addition to another value fails the call: Invalid (STORE_NUMBER_INVALID), here or when it ends. Faults as of Put.
func (s *Store) Add(key string, delta int64) error {
	return s.write(StoreWrite{Key: key, Op: StoreAdd, Delta: delta})
}

func (s *Store) write(w StoreWrite) error {
	if err := checkStoreKey(w.Key); err != nil {
		return err
	}
	if len(w.Value) > MaxStoreValue {
		return fault.New(fault.TooLarge, "STORE_VALUE_TOO_LARGE",
			"the value of the key %.80q has %d bytes; the limit is %d: split it over several keys", w.Key, len(w.Value), MaxStoreValue)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return errEnded()
	}
	before, written := s.writes[w.Key]
	switch {
	case w.Op == StoreAdd && before.Op == StoreAdd:
		sum, err := sumOf(w.Key, before.Delta, w.Delta)
		if err != nil {
			return err
		}
		w.Delta = sum
	case w.Op == StoreAdd && written:
		var stored json.RawMessage // none after a delete
		if before.Op == StorePut {
			stored = before.Value
		}
		value, err := w.apply(stored)
		if err != nil {
			return err
		}
		w = StoreWrite{Key: w.Key, Op: StorePut, Value: value}
	}
	size := s.bytes + len(w.Value) - len(before.Value)
	if !written {
		size += len(w.Key)
	}
	switch {
	case !written && len(s.writes) == MaxStoreWrites:
		return fault.New(fault.Invalid, "STORE_WRITES_INVALID", "the call writes more than %d keys of the store", MaxStoreWrites)
	case size > MaxStoreBytes:
		return fault.New(fault.TooLarge, "STORE_WRITES_TOO_LARGE",
			"the call writes %d bytes to the store; the limit is %d: write the rest in another call", size, MaxStoreBytes)
	}
	s.writes[w.Key], s.bytes = w, size
	return nil
}

// apply returns the value after the write; nil for none.
func (w StoreWrite) apply(before json.RawMessage) (json.RawMessage, error) {
	switch w.Op {
	case StorePut:
		return w.Value, nil
	case StoreDelete:
		return nil, nil
	}
	n := int64(0)
	if before != nil {
		var err error
		if n, err = strconv.ParseInt(string(before), 10, 64); err != nil {
			return nil, fault.New(fault.Invalid, "STORE_NUMBER_INVALID",
				"the value of the key %.80q in the store is no integer of 64 bits; put a number before you add to it", w.Key)
		}
	}
	sum, err := sumOf(w.Key, n, w.Delta)
	return strconv.AppendInt(nil, sum, 10), err
}

func sumOf(key string, a, b int64) (int64, error) {
	if b > 0 && a > math.MaxInt64-b || b < 0 && a < math.MinInt64-b {
		return 0, fault.New(fault.Invalid, "STORE_NUMBER_INVALID", "the sum at the key %.80q in the store exceeds 64 bits", key)
	}
	return a + b, nil
}

// Discard drops the writes of this call so far.
func (s *Store) Discard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.writes)
	s.bytes = 0
}

// End returns the writes in the order of their keys, and closes the store: later writes fail with CALL_ENDED.
func (s *Store) End() []StoreWrite {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	return slices.SortedFunc(maps.Values(s.writes), func(a, b StoreWrite) int { return cmp.Compare(a.Key, b.Key) })
}

func checkStoreKey(key string) error {
	if key == "" || len(key) > MaxStoreKey || !utf8.ValidString(key) || strings.ContainsFunc(key, unicode.IsControl) {
		return fault.New(fault.Invalid, "STORE_KEY_INVALID",
			"the key %.80q of the store must have 1 to %d bytes of UTF-8 without control characters", key, MaxStoreKey)
	}
	return nil
}
