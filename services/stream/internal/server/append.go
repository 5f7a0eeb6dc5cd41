package server

import (
	"context"
	"errors"
	"time"

	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
)

// maxAttempts is how often a write is decided anew when other writers keep
// changing the tail. Each time somebody else has won, and of two writers the
// one with the older epoch is fenced at its next look.
const maxAttempts = 8

// batchTime is how long the records of one request are stored one after the other:
// longer, and its writer, which gives an attempt some seconds, would not hear of
// those that are stored. It sends the rest again.
const batchTime = time.Second

// Append writes a record, or several chunks one behind the other.
func (s *Server) Append(ctx context.Context, r *streamv1.AppendRequest) (*streamv1.AppendResponse, error) {
	began := s.now()
	answer, err := s.append(ctx, r, began)
	s.meters.appended(ctx, s.now().Sub(began), answer.GetStored(), err)
	return answer, err
}

func (s *Server) append(ctx context.Context, r *streamv1.AppendRequest, began time.Time) (*streamv1.AppendResponse, error) {
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
	records, err := recordsOf(r, s.chunkBytes)
	if err != nil {
		return nil, err
	}
	last, stored, err := s.writeAll(ctx, stream, records, former, began)
	if stored == 0 {
		return nil, err
	}
	// What stopped the rest is told to the request that brings it again, so that
	// nothing that is stored is unknown to its writer.
	return &streamv1.AppendResponse{Sequence: wire(last), Stored: int32(stored)}, nil //nolint:gosec // as many as records at most
}

// writeAll stores the records one by one. It returns the sequence of the last one
// that is stored, how many are, and what stopped the next one, if anything has.
func (s *Server) writeAll(
	ctx context.Context, stream bus.Stream, records []*chunklog.Record, former uint64, began time.Time,
) (last uint64, stored int, err error) {
	for stored < len(records) && (stored == 0 || s.now().Sub(began) <= batchTime) {
		if stored > 0 && ctx.Err() != nil {
			return last, stored, ctx.Err()
		}
		tail, err := s.write(ctx, stream, records[stored:], former)
		if err != nil {
			return last, stored, err
		}
		former, last, stored = tail.Sequence, tail.Sequence, int(tail.Number-records[0].Number)+1
	}
	return last, stored, nil
}

// write decides about the first of the records, which a request holds in this
// order, and stores it, again when the tail was another. It returns the tail that
// then is one of them: mostly the first, a later one where another attempt of the
// same request has come as far.
func (s *Server) write(ctx context.Context, stream bus.Stream, records []*chunklog.Record, former uint64) (chunklog.Tail, error) {
	record := records[0]
	q := &writing{server: s, stream: stream, record: record, more: int64(len(records) - 1), former: former}
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
				return tail, err
			}
			if decision == chunklog.Repeat {
				return tail, nil
			}
		}
		chunklog.Link(record, tail, q.former)
		stored, err := q.store(ctx, tail)
		if !errors.Is(err, bus.ErrConflict) {
			return stored, err
		}
	}
	return chunklog.Tail{}, bus.Unavailable("append", errTailMoves)
}

var errTailMoves = errors.New("other writers keep changing the tail")

// remembered returns the tail that this process knows, unless the writer knows
// a later one. A stream of which neither knows a record is taken for new: where it is
// not, the bus refuses what was to be the first of it.
func (s *Server) remembered(stream bus.Stream, former uint64) (chunklog.Tail, bool) {
	tail, ok := s.tails.get(stream)
	return tail, (ok || former == 0) && former <= tail.Sequence
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
