package jetstream

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-run/holdfast/services/stream/internal/log"
)

// duplicates is JetStream's window for message ids, which messages do not have: as short as
// the server allows.
const duplicates = 100 * time.Millisecond

// partition is one stream and its feed.
type partition struct {
	number     int
	name       string // of the stream
	feed       log.Feed
	generation atomic.Uint64

	mu     sync.Mutex
	heard  uint64 // the last offset that was heard
	stored uint64 // the last offset in the log, at the last comparison

	making sync.Mutex // held by the request that makes the stream
}

// breakFeed is called when messages may be missing in the feed, or the log has lost some.
func (p *partition) breakFeed() {
	p.generation.Add(1)
	p.feed.Break()
}

// hear takes one message after the other as the server has stored them.
func (p *partition) hear(m *nats.Msg) {
	offset := number(m.Header, headerSequence)
	if offset == 0 {
		return // not from the log
	}
	p.mu.Lock()
	next := offset == p.heard+1
	p.heard = offset
	p.mu.Unlock()
	if !next {
		p.breakFeed()
	}
	stream, err := streamOf(m.Subject)
	if err != nil || !p.feed.Follows(stream) {
		return
	}
	message, err := decode(stream.Session, offset, m.Data)
	if err != nil {
		p.breakFeed() // a follower that reads what is stored gets to know the error
		return
	}
	p.feed.Deliver(stream, message)
}

// reset takes the last offset in the log as heard.
func (p *partition) reset(last uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard, p.stored = last, last
}

// learn takes what a comparison found: the last offset that was heard before it, and the
// last one in the log. It reports whether the feed has lost something, or the log has.
func (p *partition) learn(heardBefore, last uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	lost := last < heardBefore || p.heard < p.stored
	p.stored = last
	if lost {
		p.heard = last
	}
	return lost
}

func (p *partition) lastHeard() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.heard
}

// compare compares what was heard with the log, and makes a stream that is gone.
func (l *Log) compare(ctx context.Context, p *partition) {
	heard := p.lastHeard()
	last, err := l.lastStored(ctx, p)
	switch {
	case gone(err):
		l.restore(ctx, p)
	case err == nil && p.learn(heard, last):
		l.log.Warn("the live log and its feed differ; readers begin anew", "partition", p.name, "heard", heard, "stored", last)
		p.breakFeed()
	}
}

// gone reports whether an error may mean that a partition does not exist.
func gone(err error) bool { return isCode(err, apiNoStream) || errors.Is(err, nats.ErrNoResponders) }

// restore makes a stream that is gone, and reports whether there is one now. While another
// request does it, the answer is false.
func (l *Log) restore(ctx context.Context, p *partition) bool {
	if !p.making.TryLock() {
		return false
	}
	defer p.making.Unlock()
	ctx, cancel := l.link.request(ctx)
	defer cancel()
	last, err := l.lastStored(ctx, p)
	if err == nil {
		return true // another process was faster
	}
	if err = l.ensure(ctx, p); err == nil {
		last, err = l.lastStored(ctx, p)
	}
	if err != nil {
		l.log.Warn("a partition of the live log is gone and cannot be made", "partition", p.name, "error", err)
		return false
	}
	l.log.Warn("a partition of the live log was gone and is made again", "partition", p.name)
	p.reset(last)
	p.breakFeed()
	return true
}

// open makes the stream or brings it up to date, and subscribes to it; it tries until ctx
// ends.
func (l *Log) open(ctx context.Context, p *partition) error {
	var subscribed bool
	for {
		err := l.openOnce(ctx, p, &subscribed)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return log.Unavailable("open "+p.name, err)
		case <-time.After(reconnectPause):
		}
	}
}

func (l *Log) openOnce(ctx context.Context, p *partition, subscribed *bool) error {
	ctx, cancel := l.link.request(ctx)
	defer cancel()
	if err := l.ensure(ctx, p); err != nil {
		return err
	}
	if !*subscribed {
		if _, err := l.nc.Subscribe(l.names.stored(p.number)+">", p.hear); err != nil {
			return err
		}
		*subscribed = true
	}
	if err := l.nc.FlushWithContext(ctx); err != nil {
		return err
	}
	last, err := l.lastStored(ctx, p)
	if err == nil {
		p.reset(last)
	}
	return err
}

// ensure makes the stream, or gives it the configuration that is wanted now. Of several
// processes that make it at once one wins, and the others find it.
//
// A server that finds a damaged configuration file in the folder of a new stream does not
// write it again, and does not find the stream at its next start. An update writes the file.
func (l *Log) ensure(ctx context.Context, p *partition) error {
	want := l.streamConfig(p)
	stream, err := l.js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if _, err = l.js.CreateStream(ctx, want); err == nil {
			_, err = l.js.UpdateStream(ctx, want)
			return err
		}
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			stream, err = l.js.Stream(ctx, want.Name)
		}
	}
	if err != nil {
		return err
	}
	have := stream.CachedInfo().Config
	want.FirstSeq = have.FirstSeq // set when it was made
	if same(have, want) {
		return nil
	}
	_, err = l.js.UpdateStream(ctx, want)
	return err
}

func (l *Log) streamConfig(p *partition) jetstream.StreamConfig {
	published := l.names.append(p.number) + ">"
	return jetstream.StreamConfig{
		Name:        p.name,
		Description: "holdfast: the live log of sessions",
		Subjects:    []string{published},
		Retention:   jetstream.LimitsPolicy,
		Discard:     jetstream.DiscardOld,
		Storage:     jetstream.FileStorage,
		MaxAge:      l.options.MaxAge,
		MaxBytes:    l.options.PartitionBytes,
		Replicas:    l.options.Replicas,
		Duplicates:  duplicates,
		AllowDirect: true,
		FirstSeq:    uint64(l.options.Now().UnixMicro()), //nolint:gosec // after 1970
		RePublish:   &jetstream.RePublish{Source: published, Destination: l.names.stored(p.number) + ">"},
	}
}

// same reports whether have is what is wanted, in the fields that we set.
func same(have, want jetstream.StreamConfig) bool {
	return slices.Equal(have.Subjects, want.Subjects) &&
		have.Description == want.Description &&
		have.Retention == want.Retention &&
		have.Discard == want.Discard &&
		have.MaxAge == want.MaxAge &&
		have.MaxBytes == want.MaxBytes &&
		have.Replicas == want.Replicas &&
		have.Duplicates == want.Duplicates &&
		have.AllowDirect == want.AllowDirect &&
		have.RePublish != nil && *have.RePublish == *want.RePublish
}
