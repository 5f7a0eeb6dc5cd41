package group

import (
	"slices"
	"time"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// entry is a command from its arrival until its outcome is known. Entries are
// used again: one that has left the queue is blank but for what it can reuse.
type entry[C any] struct {
	command C
	bytes   int
	arrived time.Time
	done    chan error // gets the outcome of a command that was taken; holds one, so that a lane never waits

	places     []place[C] // one in the line of each of its keys
	blocked    int        // in how many lines it is not the first
	waiting    bool       // neither taken nor dropped
	prev, next *entry[C]  // in the list of those that are ready
}

// place is where an entry stands in the line of a key.
type place[C any] struct {
	entry      *entry[C]
	key        session.Key
	prev, next *place[C]
}

// queue keeps the order of commands. Each key has a line of the commands that
// lock it, in the order of their arrival; those in flight stand first. A
// command that waits and is the first of all its lines is ready. Every step costs
// the same however many commands there are.
//
// The commands that wait cannot wait for each other in a circle: the one that
// arrived first of them all has only commands in flight before it.
type queue[C any] struct {
	last        map[session.Key]*place[C] // the end of each line
	first, tail *entry[C]                 // those that are ready, in the order in which they became so
	length      int                       // commands that wait, ready or not
	bytes       int                       // of those
}

// add puts a new entry at the end of the lines of its keys. A key that is
// named twice counts once.
func (q *queue[C]) add(e *entry[C], keys []session.Key) {
	e.places = slices.Grow(e.places, len(keys)) // now, because lines point at places
	for _, key := range keys {
		last := q.last[key]
		if last != nil && last.entry == e {
			continue
		}
		e.places = append(e.places, place[C]{entry: e, key: key, prev: last})
		p := &e.places[len(e.places)-1]
		if last != nil {
			last.next = p
			e.blocked++
		}
		q.last[key] = p
	}
	e.waiting = true
	q.length++
	q.bytes += e.bytes
	if e.blocked == 0 {
		q.ready(e)
	}
}

// drop takes an entry out that waits, and reports false for one that does not.
func (q *queue[C]) drop(e *entry[C]) bool {
	if !e.waiting {
		return false
	}
	if e.blocked == 0 {
		q.unlist(e)
	}
	q.count(e)
	q.release(e)
	return true
}

// take moves the longest ready entries to the batch, in their order, until it
// has the most commands or the next one would bring it above the most bytes.
// The first one is taken whatever its size. They keep their keys until release.
func (q *queue[C]) take(batch []*entry[C], most, mostBytes int) []*entry[C] {
	bytes := 0
	for e := q.first; e != nil && len(batch) < most; e = q.first {
		bytes += e.bytes
		if len(batch) > 0 && bytes > mostBytes {
			break
		}
		q.unlist(e)
		q.count(e)
		batch = append(batch, e)
	}
	return batch
}

// release takes an entry out of its lines. Those behind it that are now the
// first of all their lines become ready.
func (q *queue[C]) release(e *entry[C]) {
	for i := range e.places {
		p := &e.places[i]
		if p.prev != nil {
			p.prev.next = p.next
		}
		switch {
		case p.next == nil && p.prev == nil:
			delete(q.last, p.key)
		case p.next == nil:
			q.last[p.key] = p.prev
		default:
			p.next.prev = p.prev
			if p.prev == nil {
				q.unblock(p.next.entry)
			}
		}
	}
	clear(e.places)
	e.places, e.blocked = e.places[:0], 0
}

func (q *queue[C]) unblock(e *entry[C]) {
	e.blocked--
	if e.blocked == 0 {
		q.ready(e)
	}
}

// count ends the waiting of an entry.
func (q *queue[C]) count(e *entry[C]) {
	e.waiting = false
	q.length--
	q.bytes -= e.bytes
}

// ready puts an entry at the end of those that are ready.
func (q *queue[C]) ready(e *entry[C]) {
	e.prev = q.tail
	if q.tail == nil {
		q.first = e
	} else {
		q.tail.next = e
	}
	q.tail = e
}

// unlist takes an entry out of those that are ready.
func (q *queue[C]) unlist(e *entry[C]) {
	if e.prev == nil {
		q.first = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		q.tail = e.prev
	} else {
		e.next.prev = e.prev
	}
	e.prev, e.next = nil, nil
}
