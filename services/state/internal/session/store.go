package session

import (
	"math"
	"slices"
	"strconv"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// StoreOp is the kind of a StoreWrite.
type StoreOp string

// The kinds of StoreWrite.
const (
	StorePut    StoreOp = "put"
	StoreDelete StoreOp = "delete"
	StoreAdd    StoreOp = "add"
)

// StoreWrite is a write to one key of the private store of a session.
type StoreWrite struct {
	Op    StoreOp
	Key   string
	Value string // of StorePut: one JSON text
	Delta int64  // of StoreAdd
}

// StoreMark is what the journal keeps of a StoreWrite of a recorded result: enough to write the results of
// parallel calls in the plan's order of calls.
type StoreMark struct {
	Op    StoreOp `json:"op"`
	Key   string  `json:"key"`
	Delta int64   `json:"delta,omitempty"`
	Bytes int64   `json:"bytes,omitempty"` // of the key and the value
}

// StoreEntry is a key of a store with its value.
type StoreEntry struct {
	Key   string
	Value string // one JSON text
}

func (e StoreEntry) bytes() int64 { return int64(len(e.Key) + len(e.Value)) }

// StoredKey is what a command sees of a stored entry.
type StoredKey struct {
	Key   string
	Bytes int64  // of the key and the value
	Short string // the value, if it has at most MaxStoreNumber bytes
}

// MaxStoreKey is the longest key of a private store, in bytes.
const MaxStoreKey = 512

// MaxStoreNumber is the longest value that can be an integer of 64 bits, in bytes.
const MaxStoreNumber = 20

// WriteStore writes to the private store of a session, outside of runs.
//
// Faults: NotFound (SESSION_NOT_FOUND), TooLarge (STORE_FULL), Invalid (STORE_NUMBER_INVALID).
type WriteStore struct {
	Key
	Writes []StoreWrite
	Limits Limits
}

// Need lists the rows for Decide.
func (c WriteStore) Need() Need { return Need{StoreKeys: storeKeys(c.Writes)} }

// Decide writes the entries. They change no version: the store is not a part of what clients see of a session.
func (c WriteStore) Decide(v *View) (*Change, error) {
	if v.Session == nil {
		return nil, SessionNotFound(c.Key)
	}
	change := &Change{}
	if err := v.writeStore(change, c.Writes, nil, c.Limits); err != nil {
		return nil, err
	}
	return change, nil
}

// StoreBytes returns the size of the keys and values.
func StoreBytes(writes []StoreWrite) (n int64) {
	for _, w := range writes {
		n += int64(len(w.Key) + len(w.Value))
	}
	return n
}

func storeKeys(writes []StoreWrite) []string {
	var keys []string
	for _, w := range writes {
		keys = append(keys, w.Key)
	}
	return keys
}

// storeMarks returns what the journal keeps of the writes.
func storeMarks(writes []StoreWrite) []StoreMark {
	var marks []StoreMark
	for _, w := range writes {
		marks = append(marks, StoreMark{Op: w.Op, Key: w.Key, Delta: w.Delta, Bytes: int64(len(w.Key) + len(w.Value))})
	}
	return marks
}

// storedAfter returns the writes to the store by the recorded calls that follow the call in the plan, in its order.
func (j *Journal) storedAfter(callID string) []StoreMark {
	var marks []StoreMark
	for _, id := range j.CallIDs[slices.Index(j.CallIDs, callID)+1:] {
		for _, r := range j.Results {
			if r.CallID == id {
				marks = append(marks, r.Stored...)
			}
		}
	}
	return marks
}

// storedBytes returns the size of all writes of the step to the store.
func (j *Journal) storedBytes() (size int64) {
	for _, r := range j.Results {
		for _, m := range r.Stored {
			size += m.Bytes
		}
	}
	return size
}

// writeStore adds writes to the change, at most one for each key. later are writes that are stored already and come
// after these: a later put or delete overrules a write, and a later addition is kept.
func (v *View) writeStore(change *Change, writes []StoreWrite, later []StoreMark, limits Limits) error {
	size := v.Session.StoreBytes
	for _, w := range writes {
		overruled, added := false, int64(0)
		for _, m := range later {
			if m.Key == w.Key {
				overruled = overruled || m.Op != StoreAdd
				added += m.Delta
			}
		}
		if overruled {
			continue
		}
		entry := StoreEntry{Key: w.Key}
		stored, ok := v.storedKey(w.Key)
		var err error
		switch {
		case w.Op == StoreAdd:
			entry.Value, err = addToStored(w.Key, stored, ok, w.Delta)
		case added != 0 && w.Op == StorePut:
			entry.Value, err = addToStored(w.Key, StoredKey{Short: w.Value}, true, added)
		case added != 0:
			entry.Value = strconv.FormatInt(added, 10)
		case w.Op == StorePut:
			entry.Value = w.Value
		}
		if err != nil {
			return err
		}
		size -= stored.Bytes
		if entry.Value == "" {
			if ok {
				change.StoreDeletes = append(change.StoreDeletes, w.Key)
			}
			continue
		}
		size += entry.bytes()
		change.StorePuts = append(change.StorePuts, entry)
	}
	if size > int64(limits.Store) && size > v.Session.StoreBytes {
		return fault.New(fault.TooLarge, "STORE_FULL",
			"the store of the session would have %d bytes of keys and values; the limit is %d: delete entries first", size, limits.Store).
			WithSizes(size, int64(limits.Store))
	}
	if size != v.Session.StoreBytes {
		s := *v.Session
		s.StoreBytes = size
		change.Session = &s
	}
	return nil
}

func (v *View) storedKey(key string) (StoredKey, bool) {
	if i := slices.IndexFunc(v.StoredKeys, func(k StoredKey) bool { return k.Key == key }); i >= 0 {
		return v.StoredKeys[i], true
	}
	return StoredKey{}, false
}

// addToStored returns the sum of a stored integer and delta. A missing key counts as 0.
func addToStored(key string, stored StoredKey, exists bool, delta int64) (string, error) {
	n := int64(0)
	if exists {
		var err error
		if n, err = strconv.ParseInt(stored.Short, 10, 64); err != nil {
			return "", fault.New(fault.Invalid, "STORE_NUMBER_INVALID",
				"the value of the key %q in the store is no integer of 64 bits; put a number before you add to it", key)
		}
	}
	if delta > 0 && n > math.MaxInt64-delta || delta < 0 && n < math.MinInt64-delta {
		return "", fault.New(fault.Invalid, "STORE_NUMBER_INVALID", "the sum at the key %q in the store exceeds 64 bits", key)
	}
	return strconv.FormatInt(n+delta, 10), nil
}
