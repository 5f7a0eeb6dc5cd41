package publisher

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/position"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
)

// queue has what the log lacks, and the place in the log behind which it goes.
type queue struct {
	entries  []entry
	bytes    int // of the chunks among the entries
	inflight *request
	at       position.Position // of the last sent frame
	after    int64             // sequence of the last acknowledged frame
}

// entry is one queued item: the start of an attempt, a chunk or a boundary.
type entry struct {
	step, attempt int32
	start         *streamv2.Attempt
	chunk         *eventv1.Chunk
	boundary      *streamv2.Record
	partial       bool // for a boundary: the live log lacks a part of the step
}

// request is one append. It is repeated unchanged until its outcome is known, unless it is abandoned.
type request struct {
	records []*streamv2.Record // empty for a check
	after   int64
	last    int64 // sequence of the last frame
	// entries are the entries of the records that still have to be shown: a new attempt replaces the one that it
	// voids.
	entries []entry
	before  position.Position // position of the last frame sent before
	since   time.Time         // time of the first attempt
	trimmed bool              // a part of it is void
	void    bool              // the outcome is irrelevant
	voided  chan struct{}     // closed when it becomes void
}

// check reports whether the request only checks the last record.
func (r *request) check() bool { return len(r.records) == 0 }

// stopRepeating stops repeating the request: a later record replaces it.
func (r *request) stopRepeating() {
	if !r.void {
		r.void = true
		close(r.voided)
	}
}

// newRequest returns a request without records: a check.
func (q *queue) newRequest() *request {
	return &request{after: q.after, last: q.after, before: q.at, voided: make(chan struct{})}
}

// isFlushed reports whether the log has everything.
func (q *queue) isFlushed() bool {
	return len(q.entries) == 0 && (q.inflight == nil || q.inflight.check())
}

// push adds a chunk of the attempt. It merges small deltas and splits large ones.
func (q *queue) push(a *attempt, chunk *eventv1.Chunk, l limits) {
	for chunk != nil {
		rest := l.split(chunk)
		var last entry
		if n := len(q.entries); n > 0 {
			last = q.entries[n-1]
		}
		if last.chunk != nil && last.step == a.step && merge(last.chunk, chunk, min(maxMerged, l.delta)) {
			q.bytes += len(*delta(chunk))
		} else {
			q.entries = append(q.entries, entry{step: a.step, attempt: a.number, chunk: chunk})
			q.bytes += size(chunk)
		}
		chunk = rest
	}
}

// pop removes and returns the first entry.
func (q *queue) pop() entry {
	e := q.entries[0]
	if e.chunk != nil {
		q.bytes -= size(e.chunk)
	}
	q.entries[0] = entry{}
	q.entries = q.entries[1:]
	return e
}

// remove removes the matching entries.
func (q *queue) remove(matches func(entry) bool) { q.set(slices.DeleteFunc(q.entries, matches)) }

// requeue queues entries of the request again, which the log has not stored.
func (q *queue) requeue(r *request, entries []entry) {
	q.at = r.before
	q.set(slices.Concat(entries, q.entries))
}

func (q *queue) set(entries []entry) {
	q.entries, q.bytes = entries, 0
	for _, e := range entries {
		if e.chunk != nil {
			q.bytes += size(e.chunk)
		}
	}
}

// take builds a request from the first entries; nil if none of them can be shown. spoiled is the step with more chunks
// than an attempt may have; 0 for none.
func (q *queue) take(l limits) (r *request, spoiled int32) {
	r = q.newRequest()
	for bytes := 0; len(q.entries) > 0 && len(r.entries) < maxEntries; {
		if q.entries[0].chunk != nil && q.at.N >= position.MaxChunks {
			spoiled = q.pop().step
			q.markPartial(spoiled) // its boundary may be queued
			continue
		}
		count := unitLength(q.entries)
		if last := q.entries[count-1]; last.chunk != nil { // the limit may have fallen since
			if rest := l.split(last.chunk); rest != nil {
				q.set(slices.Insert(q.entries, count, entry{step: last.step, attempt: last.attempt, chunk: rest}))
			}
		}
		bytes += sizeOf(q.entries[:count])
		if len(r.entries) > 0 && bytes > l.append {
			break
		}
		for range count {
			q.send(r, q.pop())
		}
	}
	if len(r.entries) == 0 {
		return nil, spoiled
	}
	r.last = q.at.Sequence()
	return r, spoiled
}

// unitLength returns how many of the first entries belong together: the first chunk of an attempt is in the
// attempt's first record.
func unitLength(entries []entry) int {
	if len(entries) > 1 && entries[0].start != nil && entries[1].chunk != nil {
		return 2
	}
	return 1
}

// send adds an entry to the request. A chunk extends the last record of its attempt.
func (q *queue) send(r *request, e entry) {
	r.entries = append(r.entries, e)
	switch {
	case e.boundary != nil:
		b := e.boundary.GetBoundary()
		b.Last = 0
		if !e.partial && q.at.Step == e.step && q.at.Attempt == e.attempt {
			b.Last = q.at.Sequence()
		}
		q.at = position.Of(e.boundary.GetSequence())
		r.records = append(r.records, e.boundary)
		return
	case e.start != nil:
		q.at = position.Position{Step: e.step, Attempt: e.attempt}
		r.records = append(r.records, &streamv2.Record{Sequence: q.at.Sequence(), Attempt: e.start})
		return
	}
	q.at.N++
	if n := len(r.records); n == 0 || r.records[n-1].GetBoundary() != nil {
		r.records = append(r.records, &streamv2.Record{})
	}
	record := r.records[len(r.records)-1]
	if len(record.Chunks) == 0 {
		record.Sequence = q.at.Sequence()
	}
	record.Chunks = append(record.Chunks, e.chunk)
}

// sending returns the chunks of a step in the request in flight.
func (q *queue) sending(step int32) []*eventv1.Chunk {
	if q.inflight == nil {
		return nil
	}
	return chunksOf(q.inflight.entries, step)
}

func chunksOf(entries []entry, step int32) (chunks []*eventv1.Chunk) {
	for _, e := range entries {
		if e.chunk != nil && e.step == step {
			chunks = append(chunks, e.chunk)
		}
	}
	return chunks
}

// trimRequest removes a step from the request in flight, whose place in the log is below that of a new attempt. The
// request's entries of earlier steps remain to be shown.
func (q *queue) trimRequest(step int32) {
	r := q.inflight
	if r == nil {
		return
	}
	before := len(r.entries)
	r.entries = slices.DeleteFunc(r.entries, func(e entry) bool { return e.step == step })
	r.trimmed = r.trimmed || len(r.entries) < before
	if len(r.entries) == 0 {
		r.stopRepeating()
	}
}

// markPartial records that the live log lacks a part of the step.
func (q *queue) markPartial(step int32) {
	for i := range q.entries {
		if q.entries[i].step == step {
			q.entries[i].partial = true
		}
	}
}

// dropBacklog drops entries of steps before the given one, except the last boundary: readers get these steps from the
// state service.
func (q *queue) dropBacklog(step int32) {
	boundary := -1
	for i, e := range q.entries {
		if e.step < step && e.boundary != nil {
			boundary = i
		}
	}
	if boundary < 0 {
		return
	}
	if q.inflight != nil { // older than the boundary
		q.inflight.stopRepeating()
	}
	q.set(slices.Clone(q.entries[boundary:]))
	q.entries[0].partial = true
}

// sizeOf returns the size of the entries in records.
func sizeOf(entries []entry) (bytes int) {
	for _, e := range entries {
		switch {
		case e.chunk != nil:
			bytes += proto.Size(e.chunk)
		case e.boundary != nil:
			bytes += proto.Size(e.boundary)
		default:
			bytes += proto.Size(e.start)
		}
	}
	return bytes
}
