package server

import (
	"cmp"
	"context"

	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
)

// defaultResetReason is what readers are told of a reset that gives no reason.
const defaultResetReason = "reset"

// Reset drops everything.
func (s *Server) Reset(ctx context.Context, r *streamv1.ResetRequest) (*streamv1.ResetResponse, error) {
	q, err := s.markingOf(r, cmp.Or(r.GetReason(), defaultResetReason))
	if err != nil {
		return nil, err
	}
	q.complete = q.reset
	if _, err := q.mark(ctx); err != nil {
		return nil, err
	}
	// The marker stands: whoever repeats the request removes the same.
	if err := s.bus.Purge(ctx, q.stream, q.record.Sequence); err != nil {
		return nil, err
	}
	return &streamv1.ResetResponse{Sequence: wire(q.record.Sequence)}, nil
}

func (q *marking) reset(ctx context.Context, tail chunklog.Tail, _ chunklog.Decision) error {
	var floor uint64
	if tail.Sequence == 0 {
		info, err := q.server.bus.Info(ctx, q.stream)
		if err != nil {
			return err
		}
		floor = info.Floor
	}
	chunklog.MarkReset(q.record, tail, floor)
	return nil
}

// Resume makes a stream active that has ended.
func (s *Server) Resume(ctx context.Context, r *streamv1.ResumeRequest) (*streamv1.ResumeResponse, error) {
	q, err := s.markingOf(r, "")
	if err != nil {
		return nil, err
	}
	q.complete = q.resume
	if _, err := q.mark(ctx); err != nil {
		return nil, err
	}
	return &streamv1.ResumeResponse{Sequence: wire(q.record.Sequence)}, nil
}

func (q *marking) resume(_ context.Context, _ chunklog.Tail, d chunklog.Decision) error {
	if chunklog.MarkResume(q.record); d == chunklog.Anew {
		chunklog.MarkAnew(q.record)
	}
	return nil
}
