package server

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/grant"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/stream/internal/livelog"
	"github.com/holdfast-run/holdfast/services/stream/internal/log"
)

// maxDecisions is how often an append is decided while other writers change the tail. Of two writers, the one
// with the older epoch is fenced at its next query.
const maxDecisions = 8

var errTailChanges = errors.New("other writers keep changing the tail")

// Append stores records, or checks the tail.
func (s *Server) Append(ctx context.Context, r *streamv2.AppendRequest) (*streamv2.AppendResponse, error) {
	began := time.Now()
	err := s.append(ctx, r)
	took := time.Since(began).Seconds()
	if err != nil {
		s.meters.appends.Record(ctx, took, outcome(cmp.Or(fault.ReasonOf(err), "INTERNAL")))
		return nil, err
	}
	s.meters.appends.Record(ctx, took, s.meters.stored)
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
	if err := s.checkGrant(stream, r); err != nil {
		return err
	}
	message := &log.Message{Epoch: request.Epoch, Last: request.Last()}
	if message.Body, err = s.bodyOf(r.GetRecords()); err != nil {
		return err
	}
	if err := s.write(ctx, stream, request, message); err != nil {
		return err
	}
	if !request.IsCheck() {
		chunks := 0
		for _, record := range request.Records {
			chunks += record.Chunks
		}
		s.meters.chunks.Add(ctx, int64(chunks))
		s.meters.bytes.Add(ctx, int64(len(message.Body)))
	}
	return nil
}

// checkGrant checks that the writer holds the claim of the epoch. Without a secret it checks nothing. Denied (GRANT_MISSING,
// GRANT_REFUSED).
func (s *Server) checkGrant(stream log.Stream, r *streamv2.AppendRequest) error {
	if !s.keys.Enabled() {
		return nil
	}
	g, err := s.keys.Verify(r.GetGrant(), time.Now())
	if err != nil {
		return err
	}
	if g.Run == "" || g.Epoch != r.GetEpoch() || (log.Stream{Tenant: g.Tenant, Root: g.Root, Session: g.Session}) != stream {
		return grant.Refused("it is of another claim")
	}
	return nil
}

// write decides about the request and stores the message, and repeats both if the tail has changed. It refuses,
// and answers a check, only based on the log itself.
func (s *Server) write(ctx context.Context, stream log.Stream, r livelog.Request, m *log.Message) error {
	known, remembered := s.cachedTail(stream, r)
	for range maxDecisions {
		if !remembered {
			var err error
			if known, err = s.readTail(ctx, stream); err != nil {
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
	return log.Unavailable("append", errTailChanges)
}

// cachedTail returns the cached tail. A writer without appends counts as the first of a new session; if it is
// not, the log refuses the append.
func (s *Server) cachedTail(stream log.Stream, r livelog.Request) (tail, bool) {
	if r.IsCheck() {
		return tail{}, false
	}
	generation := s.log.Generation(stream)
	if known, ok := s.tails.get(stream, generation); ok {
		return known, true
	}
	return tail{generation: generation}, r.After == 0
}

func (s *Server) readTail(ctx context.Context, stream log.Stream) (tail, error) {
	known := tail{generation: s.log.Generation(stream)} // before the query, since it may rise meanwhile
	last, err := s.log.Last(ctx, stream)
	if err != nil || last == nil {
		return known, err
	}
	known.Tail = livelog.Tail{Epoch: last.Epoch, Last: last.Last}
	known.offset = last.Offset
	s.tails.put(stream, known)
	return known, nil
}

// maxTails is the size of the cache of tails: more than the number of concurrent writers. An entry takes about
// 200 bytes.
const maxTails = 1 << 16

// tail is the last record of a session as known to this process.
type tail struct {
	livelog.Tail

	offset     uint64 // 0: the log is empty
	generation uint64 // generation of the offset
}

// tails caches the tails of recently written sessions, so an append needs no query. A tail may be outdated:
// the append expects it, and the log refuses if it differs. A full cache is cleared, which costs each writer one
// query.
type tails struct {
	mu sync.Mutex
	of map[log.Stream]tail
}

// get returns a tail of the generation.
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

// requestOf checks an append and converts it: Invalid (RECORD_INVALID, CHUNK_INVALID, ID_INVALID).
func requestOf(r *streamv2.AppendRequest) (livelog.Request, error) {
	request := livelog.Request{Epoch: r.GetEpoch(), After: r.GetAfter(), Records: make([]livelog.Record, 0, len(r.GetRecords()))}
	for _, record := range r.GetRecords() {
		made, err := recordOf(record)
		if err != nil {
			return request, err
		}
		request.Records = append(request.Records, made)
	}
	return request, livelog.Validate(request)
}

func recordOf(record *streamv2.Record) (livelog.Record, error) {
	made := livelog.Record{Sequence: record.GetSequence(), Chunks: len(record.GetChunks())}
	if attempt := record.GetAttempt(); attempt != nil {
		made.Attempt = &livelog.Attempt{Stands: attempt.GetStands()}
		if err := checkID("ID_INVALID", "attempt.run_id", attempt.GetRunId()); err != nil {
			return made, err
		}
	}
	if boundary := record.GetBoundary(); boundary != nil {
		made.Boundary = &livelog.Boundary{
			Last: boundary.GetLast(), Committed: boundary.GetStepCommitted() != nil, Ended: boundary.GetRunEnded() != nil,
		}
		if err := checkBoundary(boundary); err != nil {
			return made, err
		}
	}
	for _, chunk := range record.GetChunks() {
		if err := checkChunk(chunk); err != nil {
			return made, err
		}
	}
	return made, nil
}

func checkChunk(c *eventv1.Chunk) error {
	if c.GetStep() < 0 {
		return fault.New(fault.Invalid, "CHUNK_INVALID", "chunk.step is %d; it is 0 or more", c.GetStep())
	}
	return checkID("CHUNK_INVALID", "chunk.agent_id", c.GetAgentId())
}

func checkBoundary(b *streamv2.Boundary) error {
	for _, chunk := range []*eventv1.Chunk{b.GetStepCommitted(), b.GetRunEnded()} {
		if chunk == nil {
			continue
		}
		if err := checkChunk(chunk); err != nil {
			return err
		}
	}
	end := b.GetEnd()
	_, known := streamv2.EndStatus_name[int32(end.GetEnd().GetStatus())]
	switch {
	case (b.GetRunEnded() == nil) != (end == nil):
		return recordInvalid("boundary.run_ended and boundary.end come together")
	case end == nil:
		return nil
	case end.GetFail() == nil && (!known || end.GetEnd().GetStatus() == 0):
		return recordInvalid("boundary.end has neither fail nor an end with a known status")
	}
	return checkID("ID_INVALID", "boundary.end.run_id", end.GetRunId())
}

func recordInvalid(format string, args ...any) error {
	return fault.New(fault.Invalid, "RECORD_INVALID", format, args...)
}
