package chunklog

// Verdict says what becomes of a record that a reader has taken.
type Verdict uint8

// The verdicts.
const (
	// Skip: the reader is not told.
	Skip Verdict = iota
	// Give: the reader is given the record.
	Give
	// Rewound: the reader is told that what it has after the marker's At is void.
	Rewound
	// End: the reader is given the terminal record, and that was all.
	End
	// CaughtUp: the reader is told that it has all that was stored.
	CaughtUp
)

// Reader is the state of one reading. It is not safe for concurrent use.
type Reader struct {
	session string // whose terminal records count
	run     string // "" for any
	every   bool   // terminal records end nothing
	start   uint64
	cursor  uint64 // all records up to here have been taken
	first   uint64 // the first record of session that was shown, 0 for none
	last    uint64 // the last one
	own     place  // of session
	// below holds the places of the other sessions of a family; nil until one
	// was seen.
	below map[string]place
	// pending is a stored terminal record that ends the reading unless another
	// run has written behind it.
	pending  *Record
	caughtUp bool
}

// place is where a reader stands in one session.
type place struct {
	seen  uint64 // the last record taken, or the start
	taken bool   // seen is that of a record
	held  uint64 // no chunk after this was given to the reader and still stands
	given bool   // something was given since the start or the last reset
}

// NewReader returns the reader of a session (or of the family below it) that
// has seen everything up to cursor. With a run, only the terminal record of
// that run ends the reading.
func NewReader(session, run string, cursor uint64) *Reader {
	return &Reader{session: session, run: run, start: cursor, cursor: cursor, own: startAt(cursor)}
}

// NewLasting returns a reader that no terminal record ends: it is given each in
// its place.
func NewLasting(session string, cursor uint64) *Reader {
	r := NewReader(session, "", cursor)
	r.every = true
	return r
}

func startAt(cursor uint64) place { return place{seen: cursor, held: cursor, given: cursor > 0} }

// Cursor returns the sequence up to which all records have been taken.
func (r *Reader) Cursor() uint64 { return r.cursor }

// Shown returns the sequences of the first and the last record of the session
// itself that the reader was shown, 0 for none.
func (r *Reader) Shown() (first, last uint64) { return r.first, r.last }

// Missed reports whether the reader has to read what is stored before it takes
// this live record: one before it was not taken, or it does not stand behind the
// one that was.
func (r *Reader) Missed(rec *Record) bool {
	p := r.place(rec.Session)
	return rec.Sequence > r.cursor && (rec.Prev > p.seen || p.taken && rec.Prev < p.seen)
}

// Hole reports whether between the last stored record taken and this one there
// were records that are not stored any more and that this record does not
// explain; or that it stands behind another record than that one, which happens
// when nothing was kept, or the log was begun anew. Ask Lost whether it matters.
func (r *Reader) Hole(rec *Record) bool {
	if rec.Sequence <= r.cursor {
		return false
	}
	before := rec.Prev
	if rec.Kind == Marker && !rec.Anew {
		before = min(before, rec.At)
	}
	p := r.place(rec.Session)
	return before > p.seen || p.taken && rec.Prev < p.seen
}

// Lost reports whether the hole before rest[0] means that the reader misses
// something: it was made by retention, or what the reader has is of a log that
// was lost. s is where the log stands, and rest[0]'s session in it, looked up
// after rest was read.
func (r *Reader) Lost(s Stand, rest []*Record) bool {
	session := rest[0].Session
	seen := r.place(session).seen
	switch {
	case s.before(seen):
		return true
	case rest[0].Prev <= seen:
		return false // retention has removed what the reader has, and nothing else
	case s.Floor <= seen && s.First < rest[0].Sequence:
		return false // retention was not here
	}
	for _, rec := range rest {
		if rec.Kind == Marker && !rec.Anew && rec.Session == session && rec.At <= seen {
			return false
		}
	}
	return true
}

// From returns the cursor to read on from for a reader that has lost something
// before rest[0].
func (r *Reader) From(s Stand, rest []*Record) uint64 { return max(s.From(rest), r.cursor) }

// Take takes one record and says what the reader is told. A record that was
// taken before is skipped. live says that the record was not read from what is
// stored: then a terminal record is the last one.
func (r *Reader) Take(rec *Record, live bool) Verdict {
	if rec.Session == r.session {
		r.show(rec.Sequence)
	}
	if rec.Sequence <= r.cursor {
		return Skip
	}
	r.cursor = rec.Sequence
	p := r.place(rec.Session)
	p.seen, p.taken = rec.Sequence, true
	verdict := r.judge(rec, &p, live)
	r.put(rec.Session, p)
	return verdict
}

func (r *Reader) show(sequence uint64) {
	if r.first == 0 {
		r.first = sequence
	}
	r.last = max(r.last, sequence)
}

func (r *Reader) judge(rec *Record, p *place, live bool) Verdict {
	switch rec.Kind {
	case Terminal:
		verdict := r.terminal(rec, live)
		p.given = p.given || verdict == Give
		return verdict
	case Marker:
		r.displace(rec)
		if !p.loses(rec) {
			return Skip
		}
		p.held, p.given = rec.At, rec.At > 0
		return Rewound
	default:
		r.displace(rec)
		p.held, p.given = rec.Sequence, true
		return Give
	}
}

// loses reports whether something that the reader was given is void by the
// marker. One that voids everything voids terminal records, too.
func (p *place) loses(marker *Record) bool {
	switch {
	case marker.At >= marker.Prev:
		return false // it voids nothing
	case marker.Anew && p.held > marker.Prev:
		return false // the reader has begun above what was lost
	case marker.At == 0:
		return p.given
	}
	return p.held > marker.At
}

// terminal judges a terminal record.
func (r *Reader) terminal(rec *Record, live bool) Verdict {
	switch {
	case r.every:
		return Give
	case r.run != "" && rec.Run == r.run:
		return End
	case r.run != "" || rec.Session != r.session:
		return Skip
	case live:
		return End
	}
	r.pending = rec
	return Skip
}

// displace forgets a pending terminal record when rec, which follows it, shows
// that the stream went on.
func (r *Reader) displace(rec *Record) {
	if r.pending == nil || rec.Session != r.session {
		return
	}
	if rec.Kind == Marker && rec.Status != Active && rec.Run == r.pending.Run {
		return
	}
	r.pending = nil
}

// Settle is called when nothing more is stored. It answers End with the
// terminal record that ends the reading, CaughtUp the first time otherwise,
// and Skip later.
func (r *Reader) Settle() (Verdict, *Record) {
	switch {
	case r.pending != nil:
		return End, r.pending
	case r.caughtUp:
		return Skip, nil
	}
	r.caughtUp = true
	return CaughtUp, nil
}

func (r *Reader) place(session string) place {
	if session == r.session {
		return r.own
	}
	if p, ok := r.below[session]; ok {
		return p
	}
	return startAt(r.start)
}

func (r *Reader) put(session string, p place) {
	if session == r.session {
		r.own = p
		return
	}
	if r.below == nil {
		r.below = map[string]place{}
	}
	r.below[session] = p
}
