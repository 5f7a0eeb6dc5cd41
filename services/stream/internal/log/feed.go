package log

import (
	"context"
	"errors"
	"sync"

	"github.com/holdfast-run/holdfast/pkg/fanout"
)

// ErrLagged means that the follower fell behind. Read the stored messages and continue.
var ErrLagged = fanout.ErrLagged

// ErrBroken means that the feed may lack messages, or has ended.
var ErrBroken = errors.New("the feed of the log is broken")

// feedLimits bound the messages buffered for the followers of a scope. A follower that falls behind reads the
// log instead, so a small buffer is enough.
var feedLimits = fanout.Limits{Values: 256, Bytes: 32 << 10}

// Feed distributes the appends of a partition to its followers, in memory. The followers of a scope share one
// ring. The zero Feed is ready.
type Feed struct {
	mu     sync.Mutex
	closed bool
	topics map[Scope]*topic
}

// topic is shared by the followers of a scope.
type topic struct {
	*fanout.Ring[*Message]

	followers int
}

// familyScope returns the scope of a family's followers.
func familyScope(s Stream) Scope {
	return Scope{Stream: Stream{Tenant: s.Tenant, Root: s.Root}, Family: true}
}

// Deliver passes on a message of the stream. It never waits.
func (f *Feed) Deliver(s Stream, m *Message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, scope := range [...]Scope{{Stream: s}, familyScope(s)} {
		if t := f.topics[scope]; t != nil {
			t.Put(m)
		}
	}
}

// HasFollowers reports whether the feed has followers. A follower that joins later and then reads the stored
// messages misses nothing.
func (f *Feed) HasFollowers() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.topics) > 0
}

// Break reports to all followers that messages may be missing.
func (f *Feed) Break() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range f.topics {
		t.Gap()
	}
}

// Close breaks the feed permanently.
func (f *Feed) Close() {
	f.Break()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
}

// Follow adds a follower of the scope.
func (f *Feed) Follow(s Scope) *Follower {
	if s.Family {
		s = familyScope(s.Stream)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.topics[s]
	if t == nil {
		t = &topic{Ring: fanout.New(feedLimits, func(m *Message) int { return len(m.Body) })}
		if f.topics == nil {
			f.topics = map[Scope]*topic{}
		}
		f.topics[s] = t
	}
	t.followers++
	follower := &Follower{feed: f, scope: s, topic: t, ring: t.Join()}
	if f.closed {
		t.Gap()
	}
	return follower
}

// Follower reads new messages of a scope. It belongs to one goroutine.
type Follower struct {
	feed  *Feed
	scope Scope
	topic *topic
	ring  *fanout.Reader[*Message]
}

// Leave ends the follower. Call it once.
func (f *Follower) Leave() {
	f.feed.mu.Lock()
	defer f.feed.mu.Unlock()
	f.ring.Leave()
	f.topic.followers--
	if f.topic.followers == 0 {
		delete(f.feed.topics, f.scope)
	}
}

// Next waits for a message and fills batch with the available ones. A partly filled batch means that the
// follower has caught up. ErrLagged: messages were skipped; the next call continues with later ones. ErrBroken:
// open a new follower. Otherwise it returns ctx's error.
func (f *Follower) Next(ctx context.Context, batch []*Message) (int, error) {
	for {
		n, wake, err := f.ring.Take(batch)
		if errors.Is(err, fanout.ErrGap) {
			return 0, ErrBroken
		}
		if n > 0 || err != nil {
			return n, err
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}
