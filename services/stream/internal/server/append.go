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
	tail, remembered := s.remembered(stream, former)
	for range maxAttempts {
		if !remembered {
			var err error
			if tail, err = s.lookUp(ctx, stream); err != nil {
				return 0, err
			}
		}
		decision, err := chunklog.Decide(tail, writeOf(record, former))
		if err != nil && remembered {
			remembered = false // refuse only on what the log says itself
			continue
		}
		if err != nil {
			return 0, err
		}
		if decision == chunklog.Repeat {
			return tail.Sequence, nil
		}
		sequence, err := s.store(ctx, stream, tail, former, record)
		if !errors.Is(err, bus.ErrConflict) {
			return sequence, err
		}
		remembered = false
	}
	return 0, bus.Unavailable("append", errTailMoves)
}

var errTailMoves = errors.New("other writers keep changing the tail")

func writeOf(record *chunklog.Record, former uint64) chunklog.Write {
	return chunklog.Write{Epoch: record.Epoch, Number: record.Number, Kind: record.Kind, Former: former}
}

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

// store stores the record behind the tail. When the bus cannot say whether it
// did, the log is asked: the record stands at the end, or it is not known, and
// the writer repeats.
func (s *Server) store(ctx context.Context, stream bus.Stream, tail chunklog.Tail, former uint64, record *chunklog.Record) (uint64, error) {
	chunklog.Link(record, tail, former)
	sequence, err := s.bus.Append(ctx, stream, tail.Sequence, record)
	if err == nil {
		record.Sequence = sequence
		s.tails.put(stream, chunklog.TailOf(record))
		return sequence, nil
	}
	s.tails.forget(stream)
	if !errors.Is(err, bus.ErrUnknown) {
		return 0, err
	}
	last, lookErr := s.lookUp(ctx, stream)
	if lookErr != nil {
		return 0, err // the first error says more
	}
	decision, decideErr := chunklog.Decide(last, writeOf(record, former))
	if decideErr != nil {
		return 0, decideErr
	}
	if decision == chunklog.Repeat {
		return last.Sequence, nil
	}
	return 0, err
}
