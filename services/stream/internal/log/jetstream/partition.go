package jetstream

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-run/holdfast/services/stream/internal/log"
)

// duplicates is JetStream's window for message ids, which we do not use: as short as the server permits.
const duplicates = 100 * time.Millisecond

// partition is one stream and its feed.
type partition struct {
	number     int
	name       string // of the stream
	feed       log.Feed
	generation atomic.Uint64

	mu       sync.Mutex
	received uint64 // the last received offset
	stored   uint64 // the last offset in the log, at the last comparison

	creating sync.Mutex // held while the stream is created
}

// breakFeed reports that messages may be missing in the feed or the log.
func (p *partition) breakFeed() {
	p.generation.Add(1)
	p.feed.Break()
}

// compare compares the last received offset with the log, and creates a missing stream.
func (l *Log) compare(ctx context.Context, p *partition) {
	p.mu.Lock()
	received := p.received
	p.mu.Unlock()
	last, err := l.lastStored(ctx, p)
	switch {
	case isMissing(err):
		l.restore(ctx, p)
	case err == nil && p.update(received, last):
		l.log.Warn("the live log and its feed differ; readers start again", "partition", p.name, "received", received, "stored", last)
		p.breakFeed()
	}
}

// update records the result of a comparison: the last offset received before it, and the last offset in the log.
// It reports whether the feed or the log has lost messages.
func (p *partition) update(receivedBefore, last uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	lost := last < receivedBefore || p.received < p.stored
	p.stored = last
	if lost {
		p.received = last
	}
	return lost
}

// lastStored returns the sequence of the last message of a partition.
func (l *Log) lastStored(ctx context.Context, p *partition) (uint64, error) {
	ctx, cancel := l.requestContext(ctx)
	defer cancel()
	info, err := l.call(ctx, "STREAM.INFO."+p.name, nil)
	return info.State.Last, err
}

// isMissing reports whether the error may mean a missing partition.
func isMissing(err error) bool {
	return isCode(err, jetstream.JSErrCodeStreamNotFound) || errors.Is(err, nats.ErrNoResponders)
}

// restore creates a missing stream and reports whether it exists now. It returns false while another request
// creates it.
func (l *Log) restore(ctx context.Context, p *partition) bool {
	if !p.creating.TryLock() {
		return false
	}
	defer p.creating.Unlock()
	if _, err := l.lastStored(ctx, p); err == nil {
		return true // another process was faster
	}
	if err := l.ensure(ctx, p); err != nil {
		l.log.Warn("a partition of the live log is missing and cannot be created", "partition", p.name, "error", err)
		return false
	}
	l.log.Warn("created a missing partition of the live log", "partition", p.name)
	p.breakFeed()
	return true
}

// open creates or updates the stream. It retries until ctx ends. If several processes create it at once, one
// succeeds and the others find it at their next attempt.
func (l *Log) open(ctx context.Context, p *partition) error {
	for {
		err := l.ensure(ctx, p)
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

// ensure creates the stream or updates its configuration, and counts its last message as received.
//
// A server that finds a damaged configuration file in a new stream's folder does not rewrite it, and does not
// find the stream at its next start. The update rewrites the file.
func (l *Log) ensure(ctx context.Context, p *partition) error {
	ctx, cancel := l.requestContext(ctx)
	defer cancel()
	want := l.streamConfig(p)
	stream, err := l.js.Stream(ctx, p.name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		stream, err = l.js.CreateStream(ctx, want)
	}
	if err != nil {
		return err
	}
	want.FirstSeq = stream.CachedInfo().Config.FirstSeq // fixed at its creation
	if stream, err = l.js.UpdateStream(ctx, want); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stored = stream.CachedInfo().State.LastSeq
	p.received = p.stored
	return nil
}

func (l *Log) streamConfig(p *partition) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        p.name,
		Description: "holdfast: the live log of sessions",
		Subjects:    []string{appendSubject(p.number) + ">"},
		Retention:   jetstream.LimitsPolicy,
		Discard:     jetstream.DiscardOld,
		Storage:     jetstream.FileStorage,
		MaxAge:      l.options.MaxAge,
		MaxBytes:    l.options.PartitionBytes,
		Replicas:    l.options.Replicas,
		Duplicates:  duplicates,
		AllowDirect: true,
		FirstSeq:    uint64(time.Now().UnixMicro()), //nolint:gosec // after 1970
		RePublish:   &jetstream.RePublish{Source: appendSubject(p.number) + ">", Destination: storedSubject(p.number) + ">"},
	}
}
