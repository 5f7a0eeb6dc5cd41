package chunklog

// Verdict says what becomes of a record that a reader has taken.
type Verdict uint8

// The verdicts.
const (
	// Skip: the reader is not told.
	Skip Verdict = iota
	// Give: the reader is given the chunk.
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
	start   uint64
	cursor  uint64 // all records up to here have been taken
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
	seen uint64 // the last record taken, or the start
	held uint64 // nothing after this was given to the reader and still stands
}

// NewReader returns the reader of a session (or of the family below it) that
// has seen everything up to cursor. With a run, only the terminal record of
// that run ends the reading.
func NewReader(session, run string, cursor uint64) *Reader {
	return &Reader{session: session, run: run, start: cursor, cursor: cursor, own: place{cursor, cursor}}
}

// Cursor returns the sequence up to which all records have been taken.
func (r *Reader) Cursor() uint64 { return r.cursor }

// Missed reports whether a record was stored before this live one that the
// reader has not taken; it has to read what is stored before it takes this one.
func (r *Reader) Missed(rec *Record) bool {
	return rec.Sequence > r.cursor && rec.Prev > r.place(rec.Session).seen
}

// Hole reports whether between the last stored record taken and this one there
// were records that are not stored any more and that this record does not
// explain. Ask Lost whether they matter.
func (r *Reader) Hole(rec *Record) bool {
	before := rec.Prev
	if rec.Kind == Marker {
		before = min(before, rec.At)
	}
	return rec.Sequence > r.cursor && before > r.place(rec.Session).seen
}

// Lost reports whether the hole before rest[0] was made by retention. floor is
// the highest sequence that retention may have removed, looked up after rest
// was read.
func (r *Reader) Lost(floor uint64, rest []*Record) bool {
	session := rest[0].Session
	seen := r.place(session).seen
	if floor <= seen {
		return false
	}
	for _, rec := range rest {
		if rec.Kind == Marker && rec.Session == session && rec.At <= seen {
			return false
		}
	}
	return true
}

// Take takes one record and says what the reader is told. A record that was
// taken before is skipped. live says that the record was not read from what is
// stored: then a terminal record is the last one.
func (r *Reader) Take(rec *Record, live bool) Verdict {
	if rec.Sequence <= r.cursor {
		return Skip
	}
	r.cursor = rec.Sequence
	p := r.place(rec.Session)
	p.seen = rec.Sequence
	verdict := r.judge(rec, &p, live)
	r.put(rec.Session, p)
	return verdict
}

func (r *Reader) judge(rec *Record, p *place, live bool) Verdict {
	switch rec.Kind {
	case Terminal:
		return r.terminal(rec, live)
	case Marker:
		r.displace(rec)
		if p.held <= rec.At {
			return Skip
		}
		p.held = rec.At
		return Rewound
	default:
		r.displace(rec)
		p.held = rec.Sequence
		return Give
	}
}

// terminal judges a terminal record.
func (r *Reader) terminal(rec *Record, live bool) Verdict {
	switch {
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
	return place{r.start, r.start}
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

// Stranded reports whether a reader whose cursor nothing stored follows cannot
// go on from it: the cursor is above everything that exists, so it belongs to
// a log that was lost; or retention may have removed what followed it. last is
// the sequence of the session's last record (0 for none), floor as in Lost,
// top the highest sequence ever given in this log.
func Stranded(cursor, last, floor, top uint64) bool {
	switch {
	case cursor == 0:
		return false
	case cursor > top:
		return true
	}
	return last == 0 && cursor < floor
}
