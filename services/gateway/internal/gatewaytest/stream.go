package gatewaytest

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
)

// Stream injects faults into a gateway's reads of the stream service.
type Stream struct {
	mu       sync.Mutex
	changed  chan struct{} // closed and replaced at every change
	drops    int           // how often all reads were dropped
	away     bool
	deaf     bool // live reads receive nothing
	appended map[string][]*streamv2.Record
	lost     map[string]map[int64]bool // the sequences of lost frames, by session
	open     int
	live     int // live reads so far
	stored   int // stored-only reads so far
}

func newStream() *Stream {
	return &Stream{
		changed: make(chan struct{}), appended: map[string][]*streamv2.Record{}, lost: map[string]map[int64]bool{},
	}
}

// wake notifies all reads of a change. It is called with mu held.
func (s *Stream) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// note records an appended record.
func (s *Stream) note(tenant, session string, r *streamv2.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := sessionKey(tenant, session)
	s.appended[key] = append(s.appended[key], r)
}

// DropReads ends all reads.
func (s *Stream) DropReads() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drops++
	s.wake()
}

// SetUnavailable drops all reads and refuses new ones, until it is called with false.
func (s *Stream) SetUnavailable(away bool) {
	s.mu.Lock()
	s.away = away
	s.mu.Unlock()
	s.DropReads()
}

// WithholdLive withholds all records from live reads, until it is called with false. Stored-only reads go
// on.
func (s *Stream) WithholdLive(deaf bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deaf = deaf
	s.wake()
}

// LoseRecords loses all records of a session.
func (s *Stream) LoseRecords(tenant, session string) {
	s.LoseRecordsIf(tenant, session, func(*streamv2.Record) bool { return true })
}

// LoseRecordsIf loses records of a session: reads do not return them.
func (s *Stream) LoseRecordsIf(tenant, session string, lost func(*streamv2.Record) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := sessionKey(tenant, session)
	if s.lost[key] == nil {
		s.lost[key] = map[int64]bool{}
	}
	for _, r := range s.appended[key] {
		if s.lost[key][r.GetSequence()] || !lost(r) {
			continue
		}
		for n := range max(1, len(r.GetChunks())) {
			s.lost[key][r.GetSequence()+int64(n)] = true
		}
	}
}

// OpenReads returns the number of open reads.
func (s *Stream) OpenReads() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// Reads returns the number of live and of stored-only reads so far.
func (s *Stream) Reads() (live, stored int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live, s.stored
}

func unavailable(detail string) error {
	return fault.New(fault.Unavailable, "LOG_UNAVAILABLE", "%s", detail)
}

// intercept runs around every read of a gateway.
func (s *Stream) intercept(service any, calls grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	ctx, cancel := context.WithCancel(calls.Context())
	defer cancel()
	s.mu.Lock()
	if s.away {
		s.mu.Unlock()
		return unavailable("away")
	}
	s.open++
	drops := s.drops
	s.mu.Unlock()
	var ended sync.WaitGroup
	ended.Go(func() {
		if s.wait(ctx, func() bool { return s.drops != drops }) {
			cancel()
		}
	})
	err := next(service, &read{ServerStream: calls, ctx: ctx, stream: s})
	cancel()
	ended.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	if s.drops != drops {
		return unavailable("dropped")
	}
	return err
}

// wait waits until done, which is called with mu held, or the end of ctx.
func (s *Stream) wait(ctx context.Context, done func() bool) bool {
	for {
		s.mu.Lock()
		is, changed := done(), s.changed
		s.mu.Unlock()
		if is {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// read is one read of a gateway.
type read struct {
	grpc.ServerStream

	ctx     context.Context //nolint:containedctx // of one call
	stream  *Stream
	request streamv2.ReadRequest
}

// Context implements grpc.ServerStream.
func (r *read) Context() context.Context { return r.ctx }

// RecvMsg implements grpc.ServerStream.
func (r *read) RecvMsg(m any) error {
	if err := r.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	request, _ := m.(*streamv2.ReadRequest)
	r.request.Stream, r.request.StoredOnly = request.GetStream(), request.GetStoredOnly()
	r.stream.mu.Lock()
	defer r.stream.mu.Unlock()
	if r.request.GetStoredOnly() {
		r.stream.stored++
	} else {
		r.stream.live++
	}
	return nil
}

// SendMsg implements grpc.ServerStream.
func (r *read) SendMsg(m any) error {
	if !r.request.GetStoredOnly() && !r.stream.wait(r.ctx, func() bool { return !r.stream.deaf }) {
		return r.ctx.Err()
	}
	response, err := decoded(m)
	if err != nil {
		return err
	}
	records := response.GetRecords()
	if records == nil {
		return r.ServerStream.SendMsg(m)
	}
	left := r.stream.found(sessionKey(r.request.GetStream().GetTenant(), records.GetSessionId()), records.GetRecords())
	for len(left) > 0 {
		n := min(len(left), maxRecords)
		frame := &streamv2.SessionRecords{SessionId: records.GetSessionId(), Records: left[:n], Epoch: records.GetEpoch()}
		if err := r.ServerStream.SendMsg(&streamv2.ReadResponse{Frame: &streamv2.ReadResponse_Records{Records: frame}}); err != nil {
			return err
		}
		left = left[n:]
	}
	return nil
}

// decoded decodes a response, which the service sends with encoded records.
func decoded(m any) (*streamv2.ReadResponse, error) {
	response := &streamv2.ReadResponse{}
	encoded, ok := m.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("a %T is no response", m)
	}
	body, err := proto.Marshal(encoded)
	if err != nil {
		return nil, err
	}
	return response, proto.Unmarshal(body, response)
}

// maxRecords bounds the records of a frame, so that a gateway receives several frames.
const maxRecords = 3

// found returns the records without lost ones. The service may have joined records.
func (s *Stream) found(key string, records []*streamv2.Record) []*streamv2.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	lost := s.lost[key]
	if len(lost) == 0 {
		return records
	}
	var found []*streamv2.Record
	for _, r := range records {
		if len(r.GetChunks()) == 0 && !lost[r.GetSequence()] {
			found = append(found, r)
		}
		var run *streamv2.Record // of chunks that follow each other
		for i, c := range r.GetChunks() {
			at := r.GetSequence() + int64(i)
			switch {
			case lost[at]:
				run = nil
				continue
			case run == nil:
				run = &streamv2.Record{Sequence: at}
				if i == 0 {
					run.Attempt = r.GetAttempt()
				}
				found = append(found, run)
			}
			run.Chunks = append(run.Chunks, c)
		}
	}
	return found
}
