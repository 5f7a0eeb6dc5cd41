package publishertest

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/position"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
)

// Reader is a continuous live reader of one session that follows positions. The zero value is at the start of
// the session.
type Reader struct {
	Cursor int64
	// Chunks are the valid chunks seen by the reader: of the step in flight, and of completely seen committed
	// steps.
	Chunks []*eventv1.Chunk
	// Asked are the ranges that the reader could not follow live and read from the state service.
	ReadStored []Range
	// Ends are the outcomes of runs by id.
	Ends map[string]*streamv2.Terminal

	places []int64 // the sequences of Chunks
}

// Range is the range after one position, up to and including another.
type Range struct{ After, UpTo int64 }

// Read processes records in the order of the log.
func (r *Reader) Read(records ...*streamv2.Record) {
	for _, record := range records {
		attempt, boundary := record.GetAttempt(), record.GetBoundary()
		switch {
		case last(record) < r.Cursor:
			continue
		case boundary != nil:
			r.boundary(record)
			continue
		case attempt != nil && r.Cursor < attempt.GetStands():
			r.readStored(attempt.GetStands())
		case attempt != nil:
			r.void(attempt.GetStands())
		case record.GetSequence() > r.Cursor+1:
			r.readStored(r.Cursor)
			continue
		}
		for i, chunk := range record.GetChunks() {
			if sequence := record.GetSequence() + int64(i); sequence > r.Cursor {
				r.add(sequence, chunk)
			}
		}
		r.Cursor = max(r.Cursor, last(record)) // also for an attempt without chunks
	}
}

func (r *Reader) add(sequence int64, chunk *eventv1.Chunk) {
	r.Cursor = sequence
	r.Chunks, r.places = append(r.Chunks, proto.CloneOf(chunk)), append(r.places, sequence)
}

// void drops everything after the position.
func (r *Reader) void(position int64) {
	for len(r.places) > 0 && r.places[len(r.places)-1] > position {
		r.Chunks, r.places = r.Chunks[:len(r.Chunks)-1], r.places[:len(r.places)-1]
	}
	r.Cursor = min(r.Cursor, position)
}

// readStored reads the durable part up to the position from the state service.
func (r *Reader) readStored(upTo int64) {
	if at := position.Of(r.Cursor); at.Attempt != position.Stored && at.N != position.MaxN {
		r.void(position.Start(at.Step)) // a partial step
	}
	r.ReadStored = append(r.ReadStored, Range{r.Cursor, upTo})
	r.Cursor = upTo
}

func (r *Reader) boundary(record *streamv2.Record) {
	b := record.GetBoundary()
	if end := b.GetEnd(); end != nil {
		if r.Ends == nil {
			r.Ends = map[string]*streamv2.Terminal{}
		}
		r.Ends[end.GetRunId()] = end
	}
	if b.GetLast() == 0 || b.GetLast() != r.Cursor {
		r.readStored(record.GetSequence())
		return
	}
	if b.GetStepCommitted() != nil {
		r.add(position.Committed(position.Of(record.GetSequence()).Step), b.GetStepCommitted())
	}
	if b.GetRunEnded() != nil {
		r.add(record.GetSequence()-1, b.GetRunEnded())
	}
	r.Cursor = record.GetSequence()
}

// Between returns the chunks after one position, up to another.
func (r *Reader) Between(after, upTo int64) []*eventv1.Chunk {
	var chunks []*eventv1.Chunk
	for i, place := range r.places {
		if place > after && place <= upTo {
			chunks = append(chunks, r.Chunks[i])
		}
	}
	return chunks
}

// Saw reports whether the reader reached the position without the state service.
func (r *Reader) Saw(position int64) bool {
	return r.Cursor >= position && !slices.ContainsFunc(r.ReadStored, func(s Range) bool { return s.After < position && position <= s.UpTo })
}
