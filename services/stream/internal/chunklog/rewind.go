package chunklog

// Rewind collects what a rewind does to the records behind its starting point.
// Make one per attempt and show it the records in order with Take.
type Rewind struct {
	// From is the starting point: the records after it are shown.
	From uint64
	// Step is the last step that stands.
	Step int32
	// Void holds the sequences to remove.
	Void []uint64
	// Kept holds the chunks and terminal records that stand.
	Kept []*Record

	at    uint64 // the last record that stands before the first void one
	begun bool   // a record was shown
	// cut says that retention has removed what follows From, and that nothing
	// shown so far tells that it stood.
	cut bool
}

// Take judges one record. Once a chunk is void the chunks behind it are void
// too: they were written on top of it, and a reader that drops what it has
// seen after At would miss them. What retention has removed before the first
// void chunk is taken to be void, too, unless a chunk that stands follows it:
// readers may hold it.
func (w *Rewind) Take(r *Record) {
	if !w.begun {
		w.begun, w.cut = true, r.Prev > w.From
	}
	if r.Kind == Chunk && (len(w.Void) > 0 || r.Step > w.Step) {
		if len(w.Void) == 0 {
			w.at = r.Prev
			if w.cut {
				w.at = w.From
			}
		}
		w.Void = append(w.Void, r.Sequence)
		return
	}
	switch r.Kind {
	case Marker:
		w.cut = w.cut && r.At > w.From // else it has voided all of it
		return
	case Chunk:
		w.cut = false
	case Terminal:
	}
	w.Kept = append(w.Kept, r)
}

// Mark completes the marker of a rewind that was linked to this tail. A terminal
// record that stands keeps ending its run's stream when the same run leaves the
// marker, as an executor that settles a lost one's run does.
func (w *Rewind) Mark(marker *Record, tail Tail) {
	marker.Kind = Marker
	marker.At, marker.Status = marker.Prev, Active
	if len(w.Void) > 0 {
		marker.At = w.at
		return
	}
	if tail.Run == marker.Run {
		marker.Status = tail.Status
	}
}

// MarkReset completes the marker of a reset that was linked: it voids whatever
// came before. floor is where the log stands; on a stream of which nothing is
// kept, readers may have had records up to there.
func MarkReset(marker *Record, tail Tail, floor uint64) {
	marker.Kind, marker.Status, marker.At = Marker, Active, 0
	if tail.Sequence == 0 {
		marker.Prev = max(marker.Prev, floor)
	}
}

// MarkResume completes the marker of a resume that was linked: it voids nothing.
func MarkResume(marker *Record) {
	marker.Kind, marker.Status, marker.At = Marker, Active, marker.Prev
}

// MarkAnew turns a marker into one that is the first of its stream in a log that
// was begun anew: nothing stands of what its writer had.
func MarkAnew(marker *Record) {
	marker.Status, marker.At, marker.Anew = Active, 0, true
}
