// Package publishertest has a live log in memory that follows the specification of
// stream v2, and can fail in the ways that it allows.
package publishertest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/position"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
)

// Log is the appending half of the stream service. Its fields are set before it is used.
type Log struct {
	streamv2.UnimplementedStreamServiceServer

	// Down refuses everything.
	Down atomic.Bool
	// Gate, when set, is asked before each append takes effect.
	Gate func(ctx context.Context, r *streamv2.AppendRequest) error
	// MaxChunk is the size of the largest chunk or boundary; 0: no limit.
	MaxChunk int
	// MaxRecord is the size of the largest record; 0: no limit.
	MaxRecord int

	mu       sync.Mutex
	sessions map[string]*session
	faults   []string
}

type session struct {
	epoch   int64 // of the last record
	records []stored
	history []*streamv2.Record // everything that was ever stored, in its order
	first   map[int64]*streamv2.AppendRequest
}

type stored struct {
	epoch  int64
	record *streamv2.Record
}

// last is the sequence of the record's last frame.
func last(r *streamv2.Record) int64 { return r.GetSequence() + int64(max(len(r.GetChunks())-1, 0)) }

var errDown = fault.New(fault.Unavailable, "LOG_UNAVAILABLE", "the log is down")

// Append is as the specification says.
func (l *Log) Append(ctx context.Context, r *streamv2.AppendRequest) (*streamv2.AppendResponse, error) {
	if l.Down.Load() {
		return nil, errDown
	}
	if l.Gate != nil {
		if err := l.Gate(ctx, r); err != nil {
			return nil, err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.session(r.GetStream().GetSessionId())
	if s.first[r.GetEpoch()] == nil {
		s.first[r.GetEpoch()] = proto.CloneOf(r)
	}
	record := r.GetRecord()
	if err := l.check(record); err != nil {
		return nil, err
	}
	tail := int64(0)
	if len(s.records) > 0 {
		tail = last(s.records[len(s.records)-1].record)
	}
	repeated := slices.ContainsFunc(s.records, func(e stored) bool { return e.epoch == r.GetEpoch() && proto.Equal(e.record, record) })
	begins := record.GetAttempt() != nil || record.GetBoundary() != nil
	switch {
	case r.GetEpoch() < s.epoch:
		return nil, fault.New(fault.Stale, "WRITER_FENCED", "epoch %d", r.GetEpoch())
	case record == nil && (tail != r.GetAfter() || tail == 0):
		return nil, fault.New(fault.Stale, "RECORDS_LOST", "the log ends at %d", tail)
	case record == nil, repeated:
		return &streamv2.AppendResponse{}, nil
	case begins && record.GetSequence() <= tail, !begins && tail != r.GetAfter():
		return nil, fault.New(fault.Stale, "RECORDS_LOST", "the log ends at %d", tail)
	}
	if !begins && record.GetSequence() != tail+1 {
		l.faults = append(l.faults, fmt.Sprintf("%v comes behind %v", position.Of(record.GetSequence()), position.Of(tail)))
	}
	s.epoch = r.GetEpoch()
	s.records = append(s.records, stored{r.GetEpoch(), proto.CloneOf(record)})
	s.history = append(s.history, proto.CloneOf(record))
	return &streamv2.AppendResponse{}, nil
}

// check refuses records that can never be stored.
func (l *Log) check(record *streamv2.Record) error {
	for _, chunk := range record.GetChunks() {
		if l.MaxChunk > 0 && proto.Size(chunk) > l.MaxChunk {
			return fault.New(fault.TooLarge, "RECORD_TOO_LARGE", "%d bytes", proto.Size(chunk))
		}
	}
	if l.MaxRecord > 0 && proto.Size(record) > l.MaxRecord {
		return fault.New(fault.TooLarge, "RECORD_TOO_LARGE", "%d bytes", proto.Size(record))
	}
	if l.MaxChunk > 0 && proto.Size(record.GetBoundary()) > l.MaxChunk {
		return fault.New(fault.TooLarge, "RECORD_TOO_LARGE", "%d bytes", proto.Size(record.GetBoundary()))
	}
	if len(record.GetChunks()) > 64 || record.GetBoundary() != nil && len(record.GetChunks()) > 0 {
		l.faults = append(l.faults, fmt.Sprintf("a record with %d chunks", len(record.GetChunks())))
		return fault.New(fault.Invalid, "RECORD_INVALID", "chunks")
	}
	return nil
}

func (l *Log) session(id string) *session {
	if l.sessions == nil {
		l.sessions = map[string]*session{}
	}
	if l.sessions[id] == nil {
		l.sessions[id] = &session{first: map[int64]*streamv2.AppendRequest{}}
	}
	return l.sessions[id]
}

// Lose forgets all records, as after a power cut.
func (l *Log) Lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sessions {
		s.records, s.epoch = nil, 0
	}
}

// LoseTail forgets the last records of each session.
func (l *Log) LoseTail(records int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sessions {
		s.records = s.records[:max(0, len(s.records)-records)]
		s.epoch = 0
		if len(s.records) > 0 {
			s.epoch = s.records[len(s.records)-1].epoch
		}
	}
}

// Records gives what the log has of a session.
func (l *Log) Records(sessionID string) []*streamv2.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	var records []*streamv2.Record
	for _, e := range l.session(sessionID).records {
		records = append(records, proto.CloneOf(e.record))
	}
	return records
}

// History gives every record of a session that was ever stored, in the order in which
// live readers have seen it.
func (l *Log) History(sessionID string) []*streamv2.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.session(sessionID).history)
}

// First gives the first request of each epoch.
func (l *Log) First(sessionID string) map[int64]*streamv2.AppendRequest {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session(sessionID).first
}

// Faults gives what writers did that the specification does not allow.
func (l *Log) Faults() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.faults)
}

// Client calls a log directly.
type Client struct {
	streamv2.StreamServiceClient
	Log *Log
}

// Append appends to the log.
func (c Client) Append(ctx context.Context, r *streamv2.AppendRequest, _ ...grpc.CallOption) (*streamv2.AppendResponse, error) {
	return c.Log.Append(ctx, proto.CloneOf(r))
}
