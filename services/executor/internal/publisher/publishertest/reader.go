package publishertest

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/position"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
)

// Reader is a live reader of one session that follows positions and was there all the
// time. The zero value stands at the begin of the session.
type Reader struct {
	Cursor int64
	// Chunks are those that the reader has seen and that are not void: of the step in
	// flight, and of the committed steps that it has seen whole.
	Chunks []*eventv1.Chunk
	// Asked are the stretches that it could not follow, and has asked the state service
	// for.
	Asked []Stretch
	// Ends is how runs ended, by their id.
	Ends map[string]*streamv2.Terminal

	places []int64 // the sequences of Chunks
}

// Stretch is everything behind one position, up to another.
type Stretch struct{ After, UpTo int64 }

// Read takes records in the order in which the log has stored them.
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
			r.ask(attempt.GetStands())
		case attempt != nil:
			r.void(attempt.GetStands())
		case record.GetSequence() > r.Cursor+1:
			r.ask(r.Cursor)
			continue
		}
		for i, chunk := range record.GetChunks() {
			if sequence := record.GetSequence() + int64(i); sequence > r.Cursor {
				r.add(sequence, chunk)
			}
		}
		r.Cursor = max(r.Cursor, last(record)) // also that of an attempt without chunks
	}
}

func (r *Reader) add(sequence int64, chunk *eventv1.Chunk) {
	r.Cursor = sequence
	r.Chunks, r.places = append(r.Chunks, proto.CloneOf(chunk)), append(r.places, sequence)
}

// void forgets what comes behind the position.
func (r *Reader) void(stands int64) {
	for len(r.places) > 0 && r.places[len(r.places)-1] > stands {
		r.Chunks, r.places = r.Chunks[:len(r.Chunks)-1], r.places[:len(r.places)-1]
	}
	r.Cursor = min(r.Cursor, stands)
}

// ask has the state service give what is durable up to the position.
func (r *Reader) ask(upTo int64) {
	if at := position.Of(r.Cursor); at.Attempt != position.Stored && at.N != position.MaxN {
		r.void(position.Start(at.Step)) // a part of a step
	}
	r.Asked = append(r.Asked, Stretch{r.Cursor, upTo})
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
		r.ask(record.GetSequence())
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

// Between gives the chunks behind one position, up to another.
func (r *Reader) Between(after, upTo int64) []*eventv1.Chunk {
	var chunks []*eventv1.Chunk
	for i, place := range r.places {
		if place > after && place <= upTo {
			chunks = append(chunks, r.Chunks[i])
		}
	}
	return chunks
}

// Saw reports whether the reader has come to the position without a question to the
// state service.
func (r *Reader) Saw(position int64) bool {
	return r.Cursor >= position && !slices.ContainsFunc(r.Asked, func(s Stretch) bool { return s.After < position && position <= s.UpTo })
}
