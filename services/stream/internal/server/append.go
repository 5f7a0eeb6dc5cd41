package server

import (
	"context"
	"errors"

	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/stream/internal/livelog"
	"github.com/holdfast-run/holdfast/services/stream/internal/log"
)

// maxAttempts is how often an append is decided when other writers keep changing the tail. Of
// two writers the one with the older epoch is fenced at its next look.
const maxAttempts = 8

var errTailMoves = errors.New("other writers keep changing the tail")

// Append stores a record, or asks for the tail.
func (s *Server) Append(ctx context.Context, r *streamv2.AppendRequest) (*streamv2.AppendResponse, error) {
	began := s.now()
	err := s.append(ctx, r)
	s.meters.appended(ctx, s.now().Sub(began), err)
	if err != nil {
		return nil, err
	}
	return &streamv2.AppendResponse{}, nil
}

func (s *Server) append(ctx context.Context, r *streamv2.AppendRequest) error {
	stream, err := streamOf(r.GetStream())
	if err != nil {
		return err
	}
	request, err := requestOf(r)
	if err != nil {
		return err
	}
	message := &log.Message{Epoch: request.Epoch, Last: request.Last()}
	if message.Body, err = s.bodyOf(r.GetRecord()); err != nil {
		return err
	}
	return s.write(ctx, stream, request, message)
}

// write decides about the request and stores the message; again when the tail was another one.
// It refuses, and answers a check, only by what the log itself holds.
func (s *Server) write(ctx context.Context, stream log.Stream, r livelog.Request, m *log.Message) error {
	known, remembered := s.remembered(stream, r)
	for range maxAttempts {
		if !remembered {
			var err error
			if known, err = s.lookUp(ctx, stream); err != nil {
				return err
			}
		}
		decision, err := livelog.Decide(known.Tail, r)
		if remembered && (err != nil || decision == livelog.Repeat) {
			remembered = false
			continue
		}
		if err != nil || decision == livelog.Repeat {
			return err
		}
		offset, err := s.log.Append(ctx, stream, known.offset, m)
		if errors.Is(err, log.ErrConflict) {
			remembered = false
			continue
		}
		if err == nil {
			s.tails.put(stream, tail{livelog.Tail{Epoch: m.Epoch, Last: m.Last}, offset, known.generation})
		}
		return err
	}
	return log.Unavailable("append", errTailMoves)
}

// remembered returns the tail that this process knows. A writer that has appended nothing is
// taken for the first of a new session: if it is not, the log refuses the append.
func (s *Server) remembered(stream log.Stream, r livelog.Request) (tail, bool) {
	if r.Check() {
		return tail{}, false
	}
	generation := s.log.Generation(stream)
	if known, ok := s.tails.get(stream, generation); ok {
		return known, true
	}
	return tail{generation: generation}, r.After == 0
}

func (s *Server) lookUp(ctx context.Context, stream log.Stream) (tail, error) {
	known := tail{generation: s.log.Generation(stream)} // before the look: it may rise meanwhile
	last, err := s.log.Last(ctx, stream)
	if err != nil || last == nil {
		return known, err
	}
	known.Tail, known.offset = livelog.Tail{Epoch: last.Epoch, Last: last.Last}, last.Offset
	s.tails.put(stream, known)
	return known, nil
}
