package server

import (
	"context"
	"errors"

	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
)

// marking is what the requests that leave a marker have in common.
type marking struct {
	writing
	// complete makes the linked record a marker. It is asked again when the tail was
	// another.
	complete func(ctx context.Context, tail chunklog.Tail, d chunklog.Decision) error
}

// markRequest is what every request that leaves a marker says.
type markRequest interface {
	GetStream() *streamv1.StreamRef
	GetEpoch() int64
	GetNumber() int64
	GetExpectedLastSequence() int64
	GetRunId() string
}

// markingOf checks a request. reason is what readers are told.
func (s *Server) markingOf(r markRequest, reason string) (*marking, error) {
	stream, err := streamOf(r.GetStream())
	if err != nil {
		return nil, err
	}
	if err := checkWriter(r.GetEpoch(), r.GetNumber()); err != nil {
		return nil, err
	}
	if err := checkID("run_id", r.GetRunId()); err != nil {
		return nil, err
	}
	former, err := cursorOf("expected_last_sequence", r.GetExpectedLastSequence())
	if err != nil {
		return nil, err
	}
	marker := &chunklog.Record{Epoch: r.GetEpoch(), Number: r.GetNumber(), Run: r.GetRunId(), Kind: chunklog.Marker}
	q := &marking{writing: writing{server: s, stream: stream, record: marker, former: former}}
	return q, putMarker(marker, prefix(reason, maxIDBytes))
}

// mark stores the marker; Repeat says that it was stored before. What complete
// saw is what stands before the marker, because it is stored only if the tail is
// still the last record.
func (q *marking) mark(ctx context.Context) (chunklog.Decision, error) {
	for range maxAttempts {
		tail, decision, err := q.decide(ctx)
		if err != nil {
			return 0, err
		}
		if decision == chunklog.Repeat {
			q.record.Sequence = tail.Sequence
			return decision, nil
		}
		chunklog.Link(q.record, tail, q.former)
		q.record.Anew = false
		if err := q.complete(ctx, tail, decision); err != nil {
			return 0, err
		}
		marked, err := q.store(ctx, tail)
		if err == nil {
			q.record.Sequence = marked.Sequence
		}
		if !errors.Is(err, bus.ErrConflict) {
			return decision, err
		}
	}
	return 0, bus.Unavailable("mark", errTailMoves)
}
