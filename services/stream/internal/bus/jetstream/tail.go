package jetstream

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/chunklog"
)

// tail is the live feed of one partition: one subscription for all who follow.
type tail struct {
	live string // prefix of what is heard

	mu      sync.Mutex
	begun   bool
	feed    chunklog.Feed
	follows map[string][]*follow // by session key or family key
	lost    bool                 // Run has yet to compare the feed with the log
}

type follow struct{ sink bus.Sink }

// followPartition subscribes.
func followPartition(nc *nats.Conn, live string) (*tail, error) {
	t := &tail{live: live, follows: map[string][]*follow{}}
	if _, err := nc.Subscribe(live+">", t.hear); err != nil {
		return nil, fmt.Errorf("follow %s: %w", live, err)
	}
	return t, nil
}

// begin says what was stored before anybody followed.
func (t *tail) begin(last uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begun = true
	t.feed.Seen = max(t.feed.Seen, last)
}

// hear is called for one message after the other.
func (t *tail) hear(m *nats.Msg) {
	p := parser{header: m.Header}
	sequence := p.sequence(headerSequence)
	if p.err != nil || sequence == 0 {
		return // not from the log
	}
	key := strings.TrimPrefix(m.Subject, t.live)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch t.feed.Arrive(sequence) {
	case chunklog.Again:
		return
	case chunklog.AfterGap:
		if t.begun {
			t.gap()
		}
	case chunklog.InOrder:
	}
	t.deliver(m, key, sequence)
}

func (t *tail) deliver(m *nats.Msg, key string, sequence uint64) {
	session := t.follows[key]
	family := t.follows[key[:strings.LastIndexByte(key, '.')+1]]
	if len(session)+len(family) == 0 {
		return
	}
	record, err := decode(m.Header, key, sequence, m.Data)
	for _, follows := range [][]*follow{session, family} {
		for _, f := range follows {
			if err != nil {
				f.sink.Gap() // whoever reads what is stored gets to know the error
				continue
			}
			f.sink.Deliver(record)
		}
	}
}

// gap tells all who follow.
func (t *tail) gap() {
	for _, follows := range t.follows {
		for _, f := range follows {
			f.sink.Gap()
		}
	}
}

// Follow implements bus.Live.
func (b *Bus) Follow(s bus.Scope, sink bus.Sink) func() {
	key := sessionKey(s.Stream)
	if s.Family {
		key = familyKey(s.Stream)
	}
	t := b.partitionOf(s.Stream).tail
	f := &follow{sink}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.follows[key] = append(t.follows[key], f)
	return func() { t.unfollow(key, f) }
}

func (t *tail) unfollow(key string, f *follow) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(t.follows[key], f)
	t.follows[key] = slices.Delete(t.follows[key], i, i+1)
	if len(t.follows[key]) == 0 {
		delete(t.follows, key)
	}
}

// Run implements bus.Bus. It compares the live feeds with the log: from time
// to time, because the last message before an outage has no successor that
// reveals its loss, and as soon as the connection was lost.
func (b *Bus) Run(ctx context.Context) error {
	ticker := time.NewTicker(max(b.options.Check/2, time.Millisecond)) // a loss shows at the second look
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-b.resync:
			for _, p := range b.partitions {
				p.tail.setLost(true)
			}
		}
		for _, p := range b.partitions {
			b.compare(ctx, p)
		}
	}
}

func (b *Bus) compare(ctx context.Context, p *partition) {
	if p.tail.idle() {
		return
	}
	ctx, cancel := b.link.request(ctx)
	defer cancel()
	state, err := b.look(ctx, p.number, "")
	if err != nil {
		return // the next look finds the same
	}
	p.tail.check(state.Last)
}

// idle reports whether nobody would miss anything.
func (t *tail) idle() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.follows) == 0
}

func (t *tail) setLost(lost bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lost = lost
}

func (t *tail) check(last uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	lost := t.feed.Check(last)
	if t.lost && t.feed.Seen < last {
		t.feed.Seen = last
		lost = true
	}
	t.lost = false
	if lost {
		t.gap()
	}
}
