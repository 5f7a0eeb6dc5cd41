package chunklog

import "slices"

// Stand says where a log stands, and one session's stream in it.
type Stand struct {
	// First is the sequence of the session's first record that is kept, 0 for none.
	First uint64
	// Floor is the highest sequence that retention may have removed whatever the
	// session it is of. Above it, only what lies before First may have gone.
	Floor uint64
	// Top is the highest sequence that was given.
	Top uint64
	// Began is the sequence at which the log was made or begun anew: lower ones are
	// of a log that does not exist any more.
	Began uint64
}

// before reports whether the sequence is of a log that does not exist any more.
// The one right before the beginning is nobody's: it is the floor that readers
// of a log without a record read on from.
func (s Stand) before(sequence uint64) bool { return sequence > 0 && sequence+1 < s.Began }

// Cursor is where a reader wants to go on: what it says itself, and what is known
// of it.
type Cursor struct {
	Sequence uint64 // of the last record that it has taken, 0 for none
	// Family says that it reads several sessions. One of which nothing is kept any
	// more does not show that something of it has gone.
	Family bool
	// Recorded is what the state service has recorded of the session, 0 when it is
	// not known. A reader that has it all misses nothing.
	Recorded uint64
}

// Proves reports whether what is stored from the cursor on shows that the
// cursor is of this log: its record is there. Then retention has removed nothing
// behind it.
func Proves(cursor uint64, stored []*Record) bool {
	return cursor == 0 || len(stored) > 0 && stored[0].Sequence == cursor
}

// Astray reports whether a reader cannot go on from a cursor that Proves does not
// vouch for: it is of a log that was lost, or retention may have removed
// something behind it that what is stored does not show. stored is what is stored
// after it, s was looked up later. A cursor is good when retention may have
// removed its record, when the record after it names it, or when a marker says
// that it was voided; in a family that may stand on a later page.
func Astray(c Cursor, stored []*Record, s Stand) bool {
	switch {
	case s.before(c.Sequence), c.Sequence > s.Top:
		return true
	case c.Sequence <= s.Floor:
		behind := c.Sequence < s.Floor && (c.Recorded == 0 || c.Sequence < c.Recorded)
		return behind && (c.Family || len(stored) == 0)
	}
	return !slices.ContainsFunc(stored, func(r *Record) bool {
		return r.Prev == c.Sequence || r.Kind == Marker && !r.Anew && r.At < c.Sequence && c.Sequence <= r.Prev
	})
}

// Account is what became of a record that was acknowledged.
type Account uint8

// The accounts.
const (
	// Stands: it is there, or a later one of its session is, or retention may have
	// removed it.
	Stands Account = iota
	// Gone: it was in a log that does not exist any more, and the reader may not
	// have been told.
	Gone
	// Missing: it ought to be there. Have the log settle the doubt.
	Missing
)

// AccountFor says what became of the record with a sequence that the state
// service has recorded, to a reader that began at start. last is the sequence of
// the session's last record, 0 for none.
func AccountFor(recorded, last, start uint64, s Stand) Account {
	switch {
	case recorded < s.Began && start+1 < s.Began:
		return Gone
	case recorded <= max(last, s.Floor):
		return Stands
	}
	return Missing
}

// From returns the cursor to read on from for a reader that cannot go on: below
// it nothing is kept of what stored, the records after its old cursor, begins
// with.
func (s Stand) From(stored []*Record) uint64 {
	if len(stored) == 0 {
		return s.Floor
	}
	return max(s.Floor, stored[0].Prev)
}
