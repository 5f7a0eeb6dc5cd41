package server

import (
	"context"

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
	*marking
	from uint64
	step int32
	plan *chunklog.Rewind // of the last attempt
}

// Rewind takes the writer's place and voids what a lost attempt left behind.
func (s *Server) Rewind(ctx context.Context, r *streamv1.RewindRequest) (*streamv1.RewindResponse, error) {
	q, err := s.rewindingOf(r)
	if err != nil {
		return nil, err
	}
	decision, err := q.mark(ctx)
	if err != nil {
		return nil, err
	}
	if decision == chunklog.Repeat {
		if err := q.recall(ctx); err != nil {
			return nil, err
		}
	}
	// The marker stands: whoever repeats the request from here on comes to the
	// same plan, because void records lie between its start and the marker.
	if len(q.plan.Void) > 0 {
		if err := s.bus.Void(ctx, q.stream, q.plan.Void); err != nil {
			return nil, err
		}
	}
	s.meters.rewinds.Add(ctx, 1)
	return rewindAnswer(q.record, q.plan)
}

func (s *Server) rewindingOf(r *streamv1.RewindRequest) (*rewinding, error) {
	m, err := s.markingOf(r, r.GetReason())
	if err != nil {
		return nil, err
	}
	if r.GetStep() < 0 {
		return nil, chunkInvalid("step is %d; it is 0 or more", r.GetStep())
	}
	q := &rewinding{marking: m, step: r.GetStep()}
	if q.from, err = cursorOf("from_sequence", r.GetFromSequence()); err != nil {
		return nil, err
	}
	q.former = max(q.former, q.from) // a record with this sequence has existed, too
	q.complete = q.rewind
	return q, nil
}

// rewind makes the marker of a rewind.
func (q *rewinding) rewind(ctx context.Context, tail chunklog.Tail, d chunklog.Decision) error {
	if err := q.judgeAll(ctx, tail.Sequence); err != nil {
		return err
	}
	if q.plan.Mark(q.record, tail); d == chunklog.Anew {
		chunklog.MarkAnew(q.record)
	}
	return nil
}

// recall reads the marker of a repeated request: what it said stays said.
func (q *rewinding) recall(ctx context.Context) error {
	sequence := q.record.Sequence
	page, err := q.server.bus.History(ctx, bus.Scope{Stream: q.stream}, sequence-1)
	if err != nil {
		return err
	}
	if !chunklog.Proves(sequence, page.Records) {
		return bus.Unavailable("recall a marker", errTailMoves)
	}
	q.record = page.Records[0]
	return q.judgeAll(ctx, sequence)
}

// judgeAll plans what becomes of the records behind the rewind's start, up to
// the tail.
func (q *rewinding) judgeAll(ctx context.Context, tail uint64) error {
	q.plan = &chunklog.Rewind{From: q.from, Step: q.step}
	bytes, after := 0, q.from
	for {
		page, err := q.server.bus.History(ctx, bus.Scope{Stream: q.stream}, after)
		if err != nil {
			return err
		}
		for _, record := range page.Records {
			after = record.Sequence
			if after > tail {
				return nil
			}
			kept := len(q.plan.Kept)
			if q.plan.Take(record); len(q.plan.Kept) > kept {
				bytes += len(record.Payload)
			}
		}
		if bytes > maxKeptBytes {
			return fault.New(fault.TooLarge, "REWIND_TOO_LARGE",
				"more than %d bytes of records stand after from_sequence; rewind from the last commit", maxKeptBytes)
		}
		if !page.More {
			return nil
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
		kept, err := entryOf(record)
		if err != nil {
			return nil, err
		}
		answer.Kept = append(answer.Kept, kept)
	}
	return answer, nil
}
