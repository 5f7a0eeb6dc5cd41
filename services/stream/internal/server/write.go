package server

import (
	"context"
	"errors"

	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
)

// writing is one record on its way into the log. It belongs to one call.
type writing struct {
	server *Server
	stream bus.Stream
	record *chunklog.Record
	more   int64  // see chunklog.Write
	former uint64 // the same; 0 once it has proved to be wrong
	doubts int    // since the log was last begun anew
}

// maxDoubts is how many doubts in a row a write has at most: at the first one the
// log says whether it has lost anything, behind the last one the writer has to
// try again.
const maxDoubts = 3

var errLags = errors.New("the log does not show yet what it has acknowledged")

func (q *writing) write() chunklog.Write {
	return chunklog.Write{
		Epoch: q.record.Epoch, Number: q.record.Number, Kind: q.record.Kind, Run: q.record.Run, Former: q.former,
		More: q.more,
	}
}

// decide asks the log for the tail and decides on it: Accept, Repeat or Anew. It
// settles a doubt, and then looks again.
func (q *writing) decide(ctx context.Context) (chunklog.Tail, chunklog.Decision, error) {
	for range maxAttempts {
		tail, err := q.server.lookUp(ctx, q.stream)
		if err != nil {
			return tail, 0, err
		}
		decision, err := q.judge(ctx, tail)
		if err != nil || decision != chunklog.Doubt {
			return tail, decision, err
		}
		if err := q.settle(ctx); err != nil {
			return tail, 0, err
		}
	}
	return chunklog.Tail{}, 0, bus.Unavailable("settle a doubt", errTailMoves)
}

func (q *writing) judge(ctx context.Context, tail chunklog.Tail) (chunklog.Decision, error) {
	decision, err := chunklog.Decide(tail, q.write())
	if decision != chunklog.Ask {
		return decision, err
	}
	info, err := q.server.bus.Info(ctx, q.stream)
	if err != nil {
		return 0, err
	}
	return chunklog.Vanished(q.write(), standOf(info))
}

// settle has the log say whether it has lost what the writer had. A doubt that
// remains when it has not comes from an answer that is old, and refuses nobody;
// or the writer names a sequence that was never given, and that is forgotten.
func (q *writing) settle(ctx context.Context) error {
	q.doubts++
	if q.doubts == 1 {
		renewed, err := q.server.renew(ctx, q.stream, q.former)
		if renewed {
			q.doubts = 0
		}
		return err
	}
	info, err := q.server.bus.Info(ctx, q.stream)
	switch {
	case err != nil:
		return err
	case q.former > max(info.Top, bus.FirstSequence(q.server.now())): // the top may be old, too
		q.former = 0
	case q.doubts >= maxDoubts:
		return bus.Unavailable("settle a doubt", errLags)
	}
	return nil
}

// renew settles a doubt about the stream.
func (s *Server) renew(ctx context.Context, stream bus.Stream, witness uint64) (bool, error) {
	renewed, err := s.bus.Renew(ctx, stream, witness)
	if renewed {
		s.tails.forget(stream)
		s.meters.founded.Add(ctx, 1)
	}
	return renewed, err
}

// store stores the linked record behind the tail and returns the new one. When the
// bus cannot say whether it did, the log is asked: the record stands at the end, or
// before others of its request, or it is not known, and the writer repeats.
func (q *writing) store(ctx context.Context, tail chunklog.Tail) (chunklog.Tail, error) {
	s := q.server
	sequence, err := s.bus.Append(ctx, q.stream, tail.Sequence, q.record)
	if err == nil {
		q.record.Sequence = sequence
		stored := chunklog.TailOf(q.record)
		s.tails.put(q.stream, stored)
		return stored, nil
	}
	s.tails.forget(q.stream)
	if !errors.Is(err, bus.ErrUnknown) {
		return tail, err
	}
	last, lookErr := s.lookUp(ctx, q.stream)
	if lookErr != nil {
		return tail, err // the first error says more
	}
	decision, decideErr := chunklog.Decide(last, q.write())
	if decideErr != nil {
		return tail, decideErr
	}
	if decision == chunklog.Repeat {
		return last, nil
	}
	return tail, err
}
