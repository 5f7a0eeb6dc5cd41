package server

import (
	"context"
	"errors"

	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
)

// maxAttempts is how often a write is decided anew when other writers keep
// changing the tail. Each time somebody else has won, and of two writers the
// one with the older epoch is fenced at its next look.
const maxAttempts = 8

// Append writes one record.
func (s *Server) Append(ctx context.Context, r *streamv1.AppendRequest) (*streamv1.AppendResponse, error) {
	began := s.now()
	answer, err := s.append(ctx, r)
	s.meters.appended(ctx, s.now().Sub(began), err)
	return answer, err
}

func (s *Server) append(ctx context.Context, r *streamv1.AppendRequest) (*streamv1.AppendResponse, error) {
	stream, err := streamOf(r.GetStream())
	if err != nil {
		return nil, err
	}
	if err := checkWriter(r.GetEpoch(), r.GetNumber()); err != nil {
		return nil, err
	}
	former, err := cursorOf("expected_last_sequence", r.GetExpectedLastSequence())
	if err != nil {
		return nil, err
	}
	record, err := recordOf(r, s.chunkBytes)
	if err != nil {
		return nil, err
	}
	sequence, err := s.write(ctx, stream, record, former)
	if err != nil {
		return nil, err
	}
	return &streamv1.AppendResponse{Sequence: wire(sequence)}, nil
}

// write decides about the record and stores it, again when the tail was
// another.
func (s *Server) write(ctx context.Context, stream bus.Stream, record *chunklog.Record, former uint64) (uint64, error) {
	q := &writing{server: s, stream: stream, record: record, former: former}
	tail, remembered := s.remembered(stream, former)
	for range maxAttempts {
		if remembered {
			remembered = false // refuse only on what the log says itself
			if decision, err := chunklog.Decide(tail, q.write()); err != nil || decision != chunklog.Accept {
				continue
			}
		} else {
			var decision chunklog.Decision
			var err error
			if tail, decision, err = q.decide(ctx); err != nil {
				return 0, err
			}
			if decision == chunklog.Repeat {
				return tail.Sequence, nil
			}
		}
		chunklog.Link(record, tail, q.former)
		sequence, err := q.store(ctx, tail)
		if !errors.Is(err, bus.ErrConflict) {
			return sequence, err
		}
	}
	return 0, bus.Unavailable("append", errTailMoves)
}

var errTailMoves = errors.New("other writers keep changing the tail")

// remembered returns the tail that this process knows, unless the writer knows
// a later one.
func (s *Server) remembered(stream bus.Stream, former uint64) (chunklog.Tail, bool) {
	tail, ok := s.tails.get(stream)
	return tail, ok && former <= tail.Sequence
}

func (s *Server) lookUp(ctx context.Context, stream bus.Stream) (chunklog.Tail, error) {
	last, err := s.bus.Last(ctx, stream)
	if err != nil {
		return chunklog.Tail{}, err
	}
	if last == nil {
		s.tails.forget(stream)
		return chunklog.Tail{}, nil
	}
	tail := chunklog.TailOf(last)
	s.tails.put(stream, tail)
	return tail, nil
}
