// Package memory is a live log in the memory of the process.
package memory

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/services/stream/internal/log"
)

// messageOverhead is a message's cost beside its body, in bytes.
const messageOverhead = 256

// Options bound the log.
type Options struct {
	MaxAge   time.Duration // 0: any age
	MaxBytes int64         // 0: any size; the last message always stays
}

// Log is a log in memory.
type Log struct {
	options Options
	feed    log.Feed

	mu       sync.Mutex
	last     uint64 // the highest offset
	bytes    int64
	entries  []entry // in order
	families map[family][]*log.Message
}

var _ log.Log = (*Log)(nil)

// family is a tenant and a root.
type family [2]string

type entry struct {
	family  family
	message *log.Message
	stored  time.Time
}

// New returns an empty log.
func New(o Options) *Log {
	return &Log{options: o, families: map[family][]*log.Message{}}
}

func familyOf(s log.Stream) family { return family{s.Tenant, s.Root} }

// Last implements log.Writer.
func (l *Log) Last(_ context.Context, s log.Stream) (*log.Message, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.retain()
	return l.lastOf(s), nil
}

func (l *Log) lastOf(s log.Stream) *log.Message {
	for _, m := range slices.Backward(l.families[familyOf(s)]) {
		if m.Session == s.Session {
			return m
		}
	}
	return nil
}

// Append implements log.Writer.
func (l *Log) Append(_ context.Context, s log.Stream, expected uint64, m *log.Message) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.retain()
	var last uint64
	if m := l.lastOf(s); m != nil {
		last = m.Offset
	}
	if last != expected {
		return 0, log.ErrConflict
	}
	l.last++
	stored := *m
	stored.Offset, stored.Session = l.last, s.Session
	key := familyOf(s)
	l.families[key] = append(l.families[key], &stored)
	l.entries = append(l.entries, entry{family: key, message: &stored, stored: time.Now()})
	l.bytes += size(&stored)
	l.feed.Deliver(s, &stored)
	return stored.Offset, nil
}

// Notify implements log.Writer.
func (l *Log) Notify(_ context.Context, s log.Stream) error {
	l.feed.Deliver(s, &log.Message{Session: s.Session})
	return nil
}

// Erase implements log.Writer.
func (l *Log) Erase(_ context.Context, s log.Stream) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	erased := func(f family, m *log.Message) bool {
		return f[0] == s.Tenant && (s.Root == "" || f[1] == s.Root) && (s.Session == "" || m.Session == s.Session)
	}
	l.entries = slices.DeleteFunc(l.entries, func(e entry) bool {
		gone := erased(e.family, e.message)
		if gone {
			l.bytes -= size(e.message)
		}
		return gone
	})
	for f, messages := range l.families {
		left := slices.DeleteFunc(messages, func(m *log.Message) bool { return erased(f, m) })
		if l.families[f] = left; len(left) == 0 {
			delete(l.families, f)
		}
	}
	return nil
}

func size(m *log.Message) int64 { return int64(len(m.Body)) + messageOverhead }

// retain removes messages beyond the limits from the front.
func (l *Log) retain() {
	now := time.Now()
	for len(l.entries) > 1 || len(l.entries) == 1 && l.isExpired(now) {
		if !l.isExpired(now) && (l.options.MaxBytes == 0 || l.bytes <= l.options.MaxBytes) {
			return
		}
		e := l.entries[0]
		l.entries[0] = entry{}
		l.entries = l.entries[1:]
		l.bytes -= size(e.message)
		rest := l.families[e.family]
		rest[0] = nil // it is also the first of its family
		if l.families[e.family] = rest[1:]; len(rest) == 1 {
			delete(l.families, e.family)
		}
	}
}

func (l *Log) isExpired(now time.Time) bool {
	return l.options.MaxAge > 0 && now.Sub(l.entries[0].stored) > l.options.MaxAge
}

// Page implements log.Reader.
func (l *Log) Page(_ context.Context, s log.Scope, after uint64, limit int) (log.Page, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.retain()
	messages := l.families[familyOf(s.Stream)]
	start, _ := slices.BinarySearchFunc(messages, after+1, func(m *log.Message, offset uint64) int {
		return cmp.Compare(m.Offset, offset)
	})
	var page log.Page
	bytes := 0
	for _, m := range messages[start:] {
		if !s.Family && m.Session != s.Session {
			continue
		}
		if len(page.Messages) == limit || bytes >= log.PageBytes {
			page.More = true
			break
		}
		page.Messages = append(page.Messages, m)
		bytes += len(m.Body)
	}
	return page, nil
}

// Follow implements log.Reader.
func (l *Log) Follow(s log.Scope) *log.Follower { return l.feed.Follow(s) }

// Generation implements log.Log: nothing is ever replaced.
func (l *Log) Generation(log.Stream) uint64 { return 0 }

// Run implements log.Log. Expired messages are removed at the next access.
func (l *Log) Run(ctx context.Context) error {
	<-ctx.Done()
	l.feed.Close()
	return nil
}

// Close implements log.Log.
func (l *Log) Close() error {
	l.feed.Close()
	return nil
}
