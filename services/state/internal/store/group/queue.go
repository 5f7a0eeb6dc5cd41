package group

import (
	"slices"
	"time"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// entry is a command from Do until its outcome is known. Entries are pooled: outside
// of the queue an entry is blank but for its memory.
type entry[C any] struct {
	command    C
	bytes      int
	enqueuedAt time.Time
	done       chan error // gets the outcome of a taken command; buffered, so that a lane never waits

	keyEntries []keyEntry[C] // one in the queue of each key
	blocked    int           // in how many of these queues it is not the first
	waiting    bool          // neither taken nor removed
	prev, next *entry[C]     // in the list of ready entries
}

// keyEntry is an entry in the queue of a key.
type keyEntry[C any] struct {
	entry      *entry[C]
	key        session.Key
	prev, next *keyEntry[C]
}

// queue orders commands. Each key has a FIFO queue of its commands; the commands in
// flight are at its head. A waiting command that is the first in all its
// queues is ready. The costs of every operation are independent of the number of
// commands.
//
// There is no circular wait: only commands in flight are ahead of the oldest waiting
// command.
type queue[C any] struct {
	lastOfKey             map[session.Key]*keyEntry[C] // the tail of each queue
	firstReady, lastReady *entry[C]                    // the ready entries, the longest ready first
	length                int                          // waiting commands, ready or not
	bytes                 int                          // of the waiting commands
}

// add appends a new entry to the queues of its keys. Duplicate keys count once.
func (q *queue[C]) add(e *entry[C], keys []session.Key) {
	e.keyEntries = slices.Grow(e.keyEntries, len(keys)) // before the queues point to the elements
	for _, key := range keys {
		last := q.lastOfKey[key]
		if last != nil && last.entry == e {
			continue
		}
		e.keyEntries = append(e.keyEntries, keyEntry[C]{entry: e, key: key, prev: last})
		p := &e.keyEntries[len(e.keyEntries)-1]
		if last != nil {
			last.next = p
			e.blocked++
		}
		q.lastOfKey[key] = p
	}
	e.waiting = true
	q.length++
	q.bytes += e.bytes
	if e.blocked == 0 {
		q.appendReady(e)
	}
}

// remove removes a waiting entry. It reports false when the entry does not wait.
func (q *queue[C]) remove(e *entry[C]) bool {
	if !e.waiting {
		return false
	}
	if e.blocked == 0 {
		q.removeReady(e)
	}
	q.markTaken(e)
	q.release(e)
	return true
}

// take moves ready entries to the batch, the longest ready first, up to maxCommands and
// maxBytes. The first entry is taken whatever its size. The entries keep their keys until
// release.
func (q *queue[C]) take(batch []*entry[C], maxCommands, maxBytes int) []*entry[C] {
	bytes := 0
	for e := q.firstReady; e != nil && len(batch) < maxCommands; e = q.firstReady {
		bytes += e.bytes
		if len(batch) > 0 && bytes > maxBytes {
			break
		}
		q.removeReady(e)
		q.markTaken(e)
		batch = append(batch, e)
	}
	return batch
}

// release removes an entry from the queues of its keys. Entries behind it become ready
// when they are the first in all their queues.
func (q *queue[C]) release(e *entry[C]) {
	for i := range e.keyEntries {
		p := &e.keyEntries[i]
		if p.prev != nil {
			p.prev.next = p.next
		}
		switch {
		case p.next == nil && p.prev == nil:
			delete(q.lastOfKey, p.key)
		case p.next == nil:
			q.lastOfKey[p.key] = p.prev
		default:
			p.next.prev = p.prev
			if p.prev == nil {
				q.unblock(p.next.entry)
			}
		}
	}
	clear(e.keyEntries)
	e.keyEntries, e.blocked = e.keyEntries[:0], 0
}

func (q *queue[C]) unblock(e *entry[C]) {
	e.blocked--
	if e.blocked == 0 {
		q.appendReady(e)
	}
}

// markTaken marks an entry as no longer waiting.
func (q *queue[C]) markTaken(e *entry[C]) {
	e.waiting = false
	q.length--
	q.bytes -= e.bytes
}

// appendReady appends an entry to the list of ready entries.
func (q *queue[C]) appendReady(e *entry[C]) {
	e.prev = q.lastReady
	if q.lastReady == nil {
		q.firstReady = e
	} else {
		q.lastReady.next = e
	}
	q.lastReady = e
}

// removeReady removes an entry from the list of ready entries.
func (q *queue[C]) removeReady(e *entry[C]) {
	if e.prev == nil {
		q.firstReady = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		q.lastReady = e.prev
	} else {
		e.next.prev = e.prev
	}
	e.prev, e.next = nil, nil
}
