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
	heard   mark                 // the last record that was heard
}

// mark says which record has a sequence.
type mark struct {
	sequence uint64
	key      string // what its subject ends with
	stored   string // when, as the server says it
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
	t.heard = mark{sequence, key, p.value(headerTime)}
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
// reveals its loss, and as soon as the connection was lost. A log that has less
// than was heard has lost its end. It looks at the partitions that somebody
// follows, and at one of the others in turn, so that a renewal which was cut short
// is completed where nobody looks.
func (b *Bus) Run(ctx context.Context) error {
	ticker := time.NewTicker(max(b.options.Check/2, time.Millisecond)) // a loss shows at the second look
	defer ticker.Stop()
	for turn := 0; ; turn++ {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-b.resync:
			for _, p := range b.partitions {
				p.tail.setLost(true)
			}
		}
		for i, p := range b.partitions {
			if i == turn%len(b.partitions) || p.tail.missed() {
				b.compare(ctx, p)
			}
		}
	}
}

func (b *Bus) compare(ctx context.Context, p *partition) {
	seen, heard, lost := p.tail.stand()
	state, err := b.lookWhole(ctx, p, "")
	if err != nil {
		b.restore(ctx, p, err)
		return // the next look finds what has become of it
	}
	d := doubt{sequence: seen}
	if lost {
		d.replaced = b.replaced(ctx, p, heard)
	}
	if state.Last < seen || d.replaced {
		if _, err := b.settle(ctx, p, d); err != nil {
			b.log.Warn("the log may have lost its end, and does not say", "partition", p.number, "error", err)
		}
		return // the next look finds what has become of it
	}
	p.tail.check(state.Last)
}

// restore makes a partition again that is not there any more: the servers have lost
// their disks.
func (b *Bus) restore(ctx context.Context, p *partition, err error) {
	if !isCode(err, apiNoStream) {
		return
	}
	ctx, cancel := b.link.request(ctx)
	defer cancel()
	b.log.Warn("a partition of the log is gone and is made anew", "partition", b.names.stream(p.number))
	if err := b.ensure(ctx, p); err != nil {
		b.log.Warn("the partition could not be made anew", "partition", b.names.stream(p.number), "error", err)
	}
}

// stand returns the highest sequence that the log is known to have had, the
// last record that was heard, and whether the connection was lost since the last
// check.
func (t *tail) stand() (seen uint64, heard mark, lost bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.feed.Seen, t.heard, t.lost
}

// missed reports whether something may be missed: somebody follows, or the
// connection was lost.
func (t *tail) missed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lost || len(t.follows) > 0
}

// renewed says that the partition was begun anew at the sequence.
func (t *tail) renewed(began uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.begun && t.feed.Seen+1 < began {
		t.feed.Seen, t.heard = began-1, mark{}
		t.gap()
	}
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
