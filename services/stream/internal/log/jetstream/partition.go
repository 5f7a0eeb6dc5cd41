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

// compare compares what was heard with the log, and makes a stream that is gone.
func (l *Log) compare(ctx context.Context, p *partition) {
	p.mu.Lock()
	heard := p.heard
	p.mu.Unlock()
	last, err := l.lastStored(ctx, p)
	switch {
	case gone(err):
		l.restore(ctx, p)
	case err == nil && p.learn(heard, last):
		l.log.Warn("the live log and its feed differ; readers begin anew", "partition", p.name, "heard", heard, "stored", last)
		p.breakFeed()
	}
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

// lastStored returns the sequence of the last message of a partition.
func (l *Log) lastStored(ctx context.Context, p *partition) (uint64, error) {
	ctx, cancel := l.request(ctx)
	defer cancel()
	info, err := l.ask(ctx, "STREAM.INFO."+p.name, nil)
	return info.State.Last, err
}

// gone reports whether an error may mean that a partition does not exist.
func gone(err error) bool {
	return isCode(err, jetstream.JSErrCodeStreamNotFound) || errors.Is(err, nats.ErrNoResponders)
}

// restore makes a stream that is gone, and reports whether there is one now. While another
// request does it, the answer is false.
func (l *Log) restore(ctx context.Context, p *partition) bool {
	if !p.making.TryLock() {
		return false
	}
	defer p.making.Unlock()
	if _, err := l.lastStored(ctx, p); err == nil {
		return true // another process was faster
	}
	if err := l.ensure(ctx, p); err != nil {
		l.log.Warn("a partition of the live log is gone and cannot be made", "partition", p.name, "error", err)
		return false
	}
	l.log.Warn("a partition of the live log was gone and is made again", "partition", p.name)
	p.breakFeed()
	return true
}

// open makes the stream or brings it up to date; it tries until ctx ends. Of several
// processes that make it at once one wins, and the others find it at their next attempt.
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

// ensure makes the stream or gives it the configuration that is wanted now, and takes its
// last message as heard.
//
// A server that finds a damaged configuration file in the folder of a new stream does not
// write it again, and does not find the stream at its next start. The update writes the file.
func (l *Log) ensure(ctx context.Context, p *partition) error {
	ctx, cancel := l.request(ctx)
	defer cancel()
	want := l.streamConfig(p)
	stream, err := l.js.Stream(ctx, p.name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		stream, err = l.js.CreateStream(ctx, want)
	}
	if err != nil {
		return err
	}
	want.FirstSeq = stream.CachedInfo().Config.FirstSeq // set when it was made
	if stream, err = l.js.UpdateStream(ctx, want); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stored = stream.CachedInfo().State.LastSeq
	p.heard = p.stored
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
