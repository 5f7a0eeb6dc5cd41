package server

import (
	"context"
	"errors"

	"github.com/holdfast-run/holdfast/pkg/fault"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
)

// maxKeptBytes bounds what a rewind answers with, below the size of a gRPC
// message. A writer that rewinds to its last commit stays far below.
const maxKeptBytes = 8 << 20

// rewinding is a checked request.
type rewinding struct {
	stream bus.Stream
	marker *chunklog.Record
	former uint64
	from   uint64
	step   int32
}

// Rewind takes the writer's place and voids what a lost attempt left behind.
func (s *Server) Rewind(ctx context.Context, r *streamv1.RewindRequest) (*streamv1.RewindResponse, error) {
	q, err := rewindingOf(r)
	if err != nil {
		return nil, err
	}
	plan, err := s.mark(ctx, q)
	if err != nil {
		return nil, err
	}
	// The marker stands: whoever repeats the request from here on comes to the
	// same plan, because void records lie between its start and the marker.
	if len(plan.Void) > 0 {
		if err := s.bus.Void(ctx, q.stream, plan.Void); err != nil {
			return nil, err
		}
	}
	return rewindAnswer(q.marker, plan)
}

func rewindingOf(r *streamv1.RewindRequest) (*rewinding, error) {
	q := &rewinding{step: r.GetStep()}
	var err error
	if q.stream, err = streamOf(r.GetStream()); err != nil {
		return nil, err
	}
	if err := checkWriter(r.GetEpoch(), r.GetNumber()); err != nil {
		return nil, err
	}
	if err := checkID("run_id", r.GetRunId()); err != nil {
		return nil, err
	}
	if q.from, err = cursorOf("from_sequence", r.GetFromSequence()); err != nil {
		return nil, err
	}
	if q.former, err = cursorOf("expected_last_sequence", r.GetExpectedLastSequence()); err != nil {
		return nil, err
	}
	q.former = max(q.former, q.from) // a record with this sequence has existed, too
	q.marker = &chunklog.Record{Epoch: r.GetEpoch(), Number: r.GetNumber(), Run: r.GetRunId(), Kind: chunklog.Marker}
	return q, putMarker(q.marker, prefix(r.GetReason(), maxIDBytes))
}

// mark stores the marker and returns what it voids and keeps. The plan is made
// on the records before the tail, and the marker is stored only if the tail is
// still the last record, so nothing can come between.
func (s *Server) mark(ctx context.Context, q *rewinding) (*chunklog.Rewind, error) {
	for range maxAttempts {
		tail, err := s.lookUp(ctx, q.stream)
		if err != nil {
			return nil, err
		}
		decision, err := chunklog.Decide(tail, writeOf(q.marker, q.former))
		if err != nil {
			return nil, err
		}
		plan, err := s.plan(ctx, q, tail.Sequence)
		if err != nil {
			return nil, err
		}
		if decision == chunklog.Repeat {
			return plan, s.recall(ctx, q, tail.Sequence)
		}
		plan.Mark(q.marker, tail)
		q.marker.Sequence, err = s.store(ctx, q.stream, tail, q.former, q.marker)
		if !errors.Is(err, bus.ErrConflict) {
			return plan, err
		}
	}
	return nil, bus.Unavailable("rewind", errTailMoves)
}

// recall reads the marker of a repeated request: what it said stays said.
func (s *Server) recall(ctx context.Context, q *rewinding, sequence uint64) error {
	page, err := s.bus.History(ctx, bus.Scope{Stream: q.stream}, sequence-1)
	if err != nil {
		return err
	}
	if len(page.Records) == 0 || page.Records[0].Sequence != sequence {
		return bus.Unavailable("recall a marker", errTailMoves)
	}
	q.marker = page.Records[0]
	return nil
}

// plan judges the records behind the rewind's start, up to the tail.
func (s *Server) plan(ctx context.Context, q *rewinding, tail uint64) (*chunklog.Rewind, error) {
	plan := &chunklog.Rewind{Step: q.step}
	bytes, after := 0, q.from
	for {
		page, err := s.bus.History(ctx, bus.Scope{Stream: q.stream}, after)
		if err != nil {
			return nil, err
		}
		for _, record := range page.Records {
			after = record.Sequence
			if after > tail {
				return plan, nil
			}
			kept := len(plan.Kept)
			if plan.Take(record); len(plan.Kept) > kept {
				bytes += len(record.Payload)
			}
		}
		if bytes > maxKeptBytes {
			return nil, fault.New(fault.TooLarge, "REWIND_TOO_LARGE",
				"more than %d bytes of records stand after from_sequence; rewind from the last commit", maxKeptBytes)
		}
		if !page.More {
			return plan, nil
		}
	}
}

func rewindAnswer(marker *chunklog.Record, plan *chunklog.Rewind) (*streamv1.RewindResponse, error) {
	answer := &streamv1.RewindResponse{
		Sequence: wire(marker.Sequence),
		At:       wire(marker.At),
		Voided:   int32(len(plan.Void)), //nolint:gosec // far fewer than 2^31
		Kept:     make([]*streamv1.Record, 0, len(plan.Kept)),
	}
	for _, record := range plan.Kept {
		kept, err := keptOf(record)
		if err != nil {
			return nil, err
		}
		answer.Kept = append(answer.Kept, kept)
	}
	return answer, nil
}
