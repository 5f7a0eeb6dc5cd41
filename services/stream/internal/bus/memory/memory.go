// Package memory is a log in the process's memory, for tests and for trying
// things out: it ends with the process, and a reader that comes back after
// that is told that its cursor is of a lost log.
package memory

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
)

// Limits of a page of history.
const (
	pageRecords = 256
	pageBytes   = 1 << 20
)

// recordOverhead is what a record is counted for beside its payload.
const recordOverhead = 256

// Options say what is kept. The zero value keeps everything.
type Options struct {
	MaxAge   time.Duration    // 0: no limit
	MaxBytes int64            // 0: no limit; the oldest records go first
	Now      func() time.Time // nil is time.Now
	// SessionRecords is how many records a session has at most; 0: no limit. The
	// oldest go first.
	SessionRecords int64
}

// Log is a bus of one partition.
type Log struct {
	options Options

	began atomic.Uint64 // where it was made, or begun anew; written under mu

	mu      sync.Mutex
	first   uint64 // the sequence of entries[head]
	head    int    // entries before it have been removed
	entries []entry
	bytes   int64
	streams map[bus.Stream][]uint64
	follows map[bus.Scope]map[*follow]struct{} // by scope, see family
}

type entry struct {
	stream bus.Stream
	record *chunklog.Record // nil when it was removed out of turn
	stored time.Time
}

type follow struct{ sink bus.Sink }

// family returns the scope of the whole family of s.
func family(s bus.Stream) bus.Scope {
	return bus.Scope{Stream: bus.Stream{Tenant: s.Tenant, Root: s.Root}, Family: true}
}

// New returns an empty log.
func New(options Options) *Log {
	if options.Now == nil {
		options.Now = time.Now
	}
	began := bus.FirstSequence(options.Now())
	l := &Log{
		options: options,
		first:   began,
		streams: map[bus.Stream][]uint64{},
		follows: map[bus.Scope]map[*follow]struct{}{},
	}
	l.began.Store(began)
	return l
}

// Last implements bus.Writer.
func (l *Log) Last(_ context.Context, s bus.Stream) (*chunklog.Record, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last(s), nil
}

func (l *Log) last(s bus.Stream) *chunklog.Record {
	l.retain()
	sequences := l.streams[s]
	if len(sequences) == 0 {
		return nil
	}
	return l.at(sequences[len(sequences)-1]).record
}

// kept returns the entries that have not been removed; kept()[0] is that of first.
func (l *Log) kept() []entry { return l.entries[l.head:] }

func (l *Log) at(sequence uint64) *entry { return &l.kept()[sequence-l.first] }

// next returns the sequence of the next record.
func (l *Log) next() uint64 { return l.first + uint64(len(l.kept())) }

// Append implements bus.Writer.
func (l *Log) Append(_ context.Context, s bus.Stream, expected uint64, r *chunklog.Record) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if last := l.last(s); last == nil && expected != 0 || last != nil && expected != last.Sequence {
		return 0, bus.ErrConflict
	}
	stored := *r
	stored.Sequence = l.next()
	stored.Session = s.Session
	l.entries = append(l.entries, entry{stream: s, record: &stored, stored: l.options.Now()})
	l.streams[s] = append(l.streams[s], stored.Sequence)
	l.bytes += size(&stored)
	if limit := l.options.SessionRecords; limit > 0 && int64(len(l.streams[s])) > limit {
		l.remove(s, l.streams[s][0])
	}
	l.retain()
	for f := range l.follows[bus.Scope{Stream: s}] {
		f.sink.Deliver(&stored)
	}
	for f := range l.follows[family(s)] {
		f.sink.Deliver(&stored)
	}
	return stored.Sequence, nil
}

func size(r *chunklog.Record) int64 { return int64(len(r.Payload)) + recordOverhead }

// retain removes what is too old or too much from the front.
func (l *Log) retain() {
	now := l.options.Now()
	for l.head < len(l.entries) && l.expired(&l.entries[l.head], now) {
		e := &l.entries[l.head]
		if e.record != nil {
			l.bytes -= size(e.record)
			l.forget(e.stream, e.record.Sequence)
		}
		*e = entry{}
		l.head++
		l.first++
	}
	if l.head > len(l.entries)/2 { // so that each entry is moved about once
		l.entries = append([]entry(nil), l.kept()...)
		l.head = 0
	}
}

func (l *Log) expired(e *entry, now time.Time) bool {
	return e.record == nil ||
		l.options.MaxAge > 0 && now.Sub(e.stored) > l.options.MaxAge ||
		l.options.MaxBytes > 0 && l.bytes > l.options.MaxBytes && len(l.kept()) > 1
}

func (l *Log) forget(s bus.Stream, sequence uint64) {
	sequences := l.streams[s]
	if i, found := slices.BinarySearch(sequences, sequence); found {
		sequences = slices.Delete(sequences, i, i+1)
	}
	if len(sequences) == 0 {
		delete(l.streams, s)
		return
	}
	l.streams[s] = sequences
}

// Void implements bus.Writer.
func (l *Log) Void(_ context.Context, s bus.Stream, sequences []uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, sequence := range sequences {
		l.remove(s, sequence)
	}
	return nil
}

// remove removes one record of the stream, if it is still there.
func (l *Log) remove(s bus.Stream, sequence uint64) {
	if sequence < l.first || sequence >= l.next() {
		return
	}
	e := l.at(sequence)
	if e.record == nil || e.stream != s {
		return
	}
	l.bytes -= size(e.record)
	e.record = nil
	l.forget(s, sequence)
}

// Purge implements bus.Writer.
func (l *Log) Purge(_ context.Context, s bus.Stream, before uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, sequence := range slices.Clone(l.streams[s]) {
		if sequence < before {
			l.remove(s, sequence)
		}
	}
	return nil
}

// History implements bus.Reader.
func (l *Log) History(_ context.Context, s bus.Scope, after uint64) (bus.Page, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.retain()
	var page bus.Page
	bytes := 0
	l.each(s, after, func(r *chunklog.Record) bool {
		if len(page.Records) == pageRecords || bytes >= pageBytes {
			page.More = true
			return false
		}
		page.Records = append(page.Records, r)
		bytes += len(r.Payload)
		return true
	})
	return page, nil
}

// each shows the records of the scope after the cursor until show says stop.
func (l *Log) each(s bus.Scope, after uint64, show func(*chunklog.Record) bool) {
	if !s.Family {
		sequences := l.streams[s.Stream]
		i, found := slices.BinarySearch(sequences, after)
		if found {
			i++
		}
		for _, sequence := range sequences[i:] {
			if !show(l.at(sequence).record) {
				return
			}
		}
		return
	}
	entries := l.kept()
	if after >= l.first {
		entries = entries[min(after-l.first+1, uint64(len(entries))):]
	}
	for i := range entries {
		e := &entries[i]
		if e.record != nil && e.stream.Tenant == s.Tenant && e.stream.Root == s.Root && !show(e.record) {
			return
		}
	}
}

// Info implements bus.Reader.
func (l *Log) Info(_ context.Context, s bus.Stream) (bus.Info, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.retain()
	info := bus.Info{Floor: l.first - 1, Top: l.next() - 1, Began: l.began.Load()}
	if sequences := l.streams[s]; len(sequences) > 0 {
		info.First, info.Last = sequences[0], sequences[len(sequences)-1]
		info.Count = int64(len(sequences))
	}
	return info, nil
}

// Follow implements bus.Live.
func (l *Log) Follow(s bus.Scope, sink bus.Sink) func() {
	if s.Family {
		s = family(s.Stream)
	}
	f := &follow{sink}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.follows[s] == nil {
		l.follows[s] = map[*follow]struct{}{}
	}
	l.follows[s][f] = struct{}{}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.follows[s], f)
		if len(l.follows[s]) == 0 {
			delete(l.follows, s)
		}
	}
}

// Run implements bus.Bus. There is no background work: what is too old goes
// when the log is next touched.
func (l *Log) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Close implements bus.Bus.
func (l *Log) Close() error { return nil }
