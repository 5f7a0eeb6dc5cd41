package server

import (
	"context"
	"errors"
	"sync"
	"time"

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
	began := time.Now()
	err := s.append(ctx, r)
	s.meters.appended(ctx, time.Since(began), err)
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
		store, err := livelog.Decide(known.Tail, r)
		if remembered && !store {
			remembered = false
			continue
		}
		if !store {
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

// maxTails is how many tails a process remembers: more than write at the same time. One takes
// some 200 bytes.
const maxTails = 1 << 16

// tail is the last record of a session, as a process knows it.
type tail struct {
	livelog.Tail

	offset     uint64 // 0: nothing is stored
	generation uint64 // in which the offset was learned
}

// tails remembers the tails of recently written sessions, so that an append needs no look-up.
// A tail may be old: an append expects it, and the log refuses when it is another one. When
// there are too many, all are forgotten, which costs each writer one look-up.
type tails struct {
	mu sync.Mutex
	of map[log.Stream]tail
}

// get returns the tail that was learned in the generation.
func (t *tails) get(s log.Stream, generation uint64) (known tail, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known, ok = t.of[s]
	return known, ok && known.generation == generation
}

func (t *tails) put(s log.Stream, known tail) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.of) >= maxTails || t.of == nil {
		t.of = map[log.Stream]tail{}
	}
	t.of[s] = known
}
