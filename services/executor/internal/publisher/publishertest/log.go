// Package publishertest is an in-memory live log that follows the specification of stream v2, including its
// permitted failures.
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

// Log is the append side of the stream service. Set its fields before use.
type Log struct {
	streamv2.UnimplementedStreamServiceServer

	// Down refuses everything.
	Down atomic.Bool
	// Gate, if set, is called before each append takes effect.
	Gate func(ctx context.Context, r *streamv2.AppendRequest) error
	// MaxChunk limits a chunk or boundary in bytes; 0: no limit.
	MaxChunk int
	// MaxAppend limits an append in bytes; 0: no limit.
	MaxAppend int

	mu       sync.Mutex
	sessions map[string]*session
	faults   []string
}

type session struct {
	epoch   int64 // of the last append
	appends []stored
	history []*streamv2.Record // everything ever stored, in order
	first   map[int64]*streamv2.AppendRequest
}

type stored struct {
	epoch   int64
	records []*streamv2.Record
}

func (s stored) last() int64 { return last(s.records[len(s.records)-1]) }

// last returns the sequence of the record's last frame.
func last(r *streamv2.Record) int64 { return r.GetSequence() + int64(max(len(r.GetChunks())-1, 0)) }

var errDown = fault.New(fault.Unavailable, "LOG_UNAVAILABLE", "the log is down")

// Append implements the specification.
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
	if err := l.check(r.GetRecords()); err != nil {
		return nil, err
	}
	tail := int64(0)
	if len(s.appends) > 0 {
		tail = s.appends[len(s.appends)-1].last()
	}
	repeated := slices.ContainsFunc(s.appends, func(e stored) bool {
		return e.epoch == r.GetEpoch() &&
			slices.EqualFunc(e.records, r.GetRecords(), func(a, b *streamv2.Record) bool { return proto.Equal(a, b) })
	})
	check := len(r.GetRecords()) == 0
	switch {
	case r.GetEpoch() < s.epoch:
		return nil, fault.New(fault.Stale, "WRITER_FENCED", "epoch %d", r.GetEpoch())
	case check && (tail != r.GetAfter() || tail == 0):
		return nil, fault.New(fault.Stale, "RECORDS_LOST", "the log ends at %d", tail)
	case check, repeated:
		return &streamv2.AppendResponse{}, nil
	}
	if begins := begins(r.GetRecords()[0]); begins && r.GetRecords()[0].GetSequence() <= tail || !begins && tail != r.GetAfter() {
		return nil, fault.New(fault.Stale, "RECORDS_LOST", "the log ends at %d", tail)
	}
	added := stored{epoch: r.GetEpoch()}
	for _, record := range r.GetRecords() {
		if at := record.GetSequence(); at <= tail || !begins(record) && at != tail+1 {
			l.faults = append(l.faults, fmt.Sprintf("%v comes behind %v", position.Of(at), position.Of(tail)))
		}
		tail = last(record)
		added.records = append(added.records, proto.CloneOf(record))
		s.history = append(s.history, proto.CloneOf(record))
	}
	s.epoch = r.GetEpoch()
	s.appends = append(s.appends, added)
	return &streamv2.AppendResponse{}, nil
}

// begins reports whether the record may follow any lower one.
func begins(r *streamv2.Record) bool { return r.GetAttempt() != nil || r.GetBoundary() != nil }

// check refuses records that are never valid.
func (l *Log) check(records []*streamv2.Record) error {
	bytes := 0
	for _, record := range records {
		bytes += proto.Size(record)
		for _, chunk := range record.GetChunks() {
			if l.MaxChunk > 0 && proto.Size(chunk) > l.MaxChunk {
				return fault.New(fault.TooLarge, "RECORD_TOO_LARGE", "%d bytes", proto.Size(chunk))
			}
		}
		if l.MaxChunk > 0 && proto.Size(record.GetBoundary()) > l.MaxChunk {
			return fault.New(fault.TooLarge, "RECORD_TOO_LARGE", "%d bytes", proto.Size(record.GetBoundary()))
		}
		if len(record.GetChunks()) > 64 || record.GetBoundary() != nil && len(record.GetChunks()) > 0 {
			l.faults = append(l.faults, fmt.Sprintf("a record with %d chunks", len(record.GetChunks())))
			return fault.New(fault.Invalid, "RECORD_INVALID", "chunks")
		}
	}
	if l.MaxAppend > 0 && bytes > l.MaxAppend {
		return fault.New(fault.TooLarge, "RECORD_TOO_LARGE", "%d bytes", bytes)
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

// Lose drops all records, like a power cut.
func (l *Log) Lose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sessions {
		s.appends, s.epoch = nil, 0
	}
}

// LoseTail drops the last appends of each session.
func (l *Log) LoseTail(appends int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sessions {
		s.appends = s.appends[:max(0, len(s.appends)-appends)]
		s.epoch = 0
		if len(s.appends) > 0 {
			s.epoch = s.appends[len(s.appends)-1].epoch
		}
	}
}

// Records returns the stored records of a session.
func (l *Log) Records(sessionID string) []*streamv2.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	var records []*streamv2.Record
	for _, e := range l.session(sessionID).appends {
		for _, record := range e.records {
			records = append(records, proto.CloneOf(record))
		}
	}
	return records
}

// History returns every record of a session ever stored, in the order seen by live readers.
func (l *Log) History(sessionID string) []*streamv2.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.session(sessionID).history)
}

// First returns the first request of each epoch.
func (l *Log) First(sessionID string) map[int64]*streamv2.AppendRequest {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session(sessionID).first
}

// Faults returns the writers' violations of the specification.
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
