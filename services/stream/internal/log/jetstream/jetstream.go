// Package jetstream keeps the live log in NATS JetStream: in a server inside the process
// (package embedded), or in servers at a URL.
//
// There are a few streams, the partitions, never one per session: a stream costs hundreds
// of kilobytes, a subject some hundred bytes. A family lives in one partition, and the
// filter <tenant>.<root>.* is the whole family in one order. The offset of a message is
// its JetStream sequence.
//
//	append   publish holdfast.append.<partition>.<tenant>.<root>.<session>, which names the
//	         expected last sequence of the subject; the server checks and stores in one step
//	page     a batched direct get; there are no consumers, so nothing has to be cleaned up
//	follow   the server republishes each message that it has stored under holdfast.stored.…;
//	         a process has one subscription per partition and hands on in memory (log.Feed)
//
// A subscription to the published subject would hear messages that the server then refuses.
//
// # What breaks a feed
//
// Offsets of a partition rise by one with each message. A message that is not the next one
// means that some were lost on the way, or that the log has lost its tail. The connection's
// end may mean both. The last message before an outage has no successor, so Run compares
// what was heard with the log from time to time. In each of these cases all followers of
// the partition get log.ErrBroken, and its generation rises, so that an offset that was
// learned before is not trusted.
//
// # A log that vanishes
//
// A partition that is not there is made when the log is opened, by Run, and by each request
// that does not find it. It begins at the microseconds since 1970, above every offset that a
// lost one had. Nothing else is done: see package log.
package jetstream

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/stream/internal/log"
)

// requestTimeout bounds every request to the server.
const requestTimeout = 5 * time.Second

// reconnectPause lies between two attempts to reach a server.
const reconnectPause = 250 * time.Millisecond

// headerRoom is what the largest message needs beside its body.
const headerRoom = 4 << 10

// openLimit is how many partitions are opened at once.
const openLimit = 4

// Options say how the log is kept. All fields are required.
type Options struct {
	Partitions     int           // the same in all processes
	Replicas       int           // copies of each partition
	MaxAge         time.Duration // messages older than this are removed
	PartitionBytes int64         // the oldest messages go when there are more
	MessageBytes   int           // the largest body
	Check          time.Duration // how often what was heard is compared with the log
	Boot           time.Duration // how long Open waits for the server
	Log            *slog.Logger
}

// Endpoint says where the server is: in this process, or at a URL.
type Endpoint struct {
	InProcess nats.InProcessConnProvider // nil: connect to URL
	URL       string                     // one or more, with commas
	CredsFile string                     // "" for none
}

func (e Endpoint) options() (string, []nats.Option) {
	if e.InProcess != nil {
		return "", []nats.Option{nats.InProcessServer(e.InProcess)}
	}
	if e.CredsFile != "" {
		return e.URL, []nats.Option{nats.UserCredentials(e.CredsFile)}
	}
	return e.URL, nil
}

// Log is a log on JetStream.
type Log struct {
	options    Options
	log        *slog.Logger
	nc         *nats.Conn
	js         jetstream.JetStream
	partitions []*partition
	replies    replies // to appends

	mu   sync.Mutex
	up   context.Context //nolint:containedctx // the time of one connection, not of a call
	down context.CancelFunc
}

var _ log.Log = (*Log)(nil)

// Open connects, makes the partitions or brings them up to date, and subscribes to them. It
// tries for Options.Boot when the server cannot be reached; several processes may do it at
// once. Close must be called.
//
// Unavailable (LOG_UNAVAILABLE): the server could not be reached in time. Invalid
// (CONFIG_INVALID): it takes no messages of MessageBytes.
func Open(ctx context.Context, e Endpoint, o Options) (*Log, error) {
	ctx, cancel := context.WithTimeout(ctx, o.Boot)
	defer cancel()
	l := &Log{options: o, log: o.Log}
	l.up, l.down = context.WithCancel(context.Background())
	for i := range o.Partitions {
		l.partitions = append(l.partitions, &partition{number: i, name: streamName(i)})
	}
	if err := l.connect(e); err != nil {
		return nil, err
	}
	if err := l.start(ctx); err != nil {
		l.nc.Close()
		return nil, err
	}
	return l, nil
}

func (l *Log) connect(e Endpoint) error {
	url, options := e.options()
	nc, err := nats.Connect(url, append(options,
		nats.Name("holdfast-stream"),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectPause),
		nats.ReconnectBufSize(-1), // a write while there is no connection fails at once
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				l.log.Warn("connection to NATS lost", "error", err)
			}
			l.endRequests()
			l.breakFeeds()
		}),
		// No process heard what was appended while there was no connection.
		nats.ReconnectHandler(func(*nats.Conn) { l.breakFeeds() }),
		nats.ErrorHandler(func(_ *nats.Conn, s *nats.Subscription, err error) {
			l.log.Warn("NATS reports an error", "error", err)
			if s != nil {
				l.breakFeeds()
			}
		}),
	)...)
	if err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	if l.js, err = jetstream.New(nc); err != nil {
		nc.Close()
		return fmt.Errorf("connect to NATS: %w", err)
	}
	l.nc = nc
	return nil
}

// request returns the context of one request: it ends with ctx, with the connection, or
// after requestTimeout.
func (l *Log) request(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	stop := context.AfterFunc(l.connection(), cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// connection returns a context that ends with the connection.
func (l *Log) connection() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.up
}

// endRequests ends the requests under way when the connection is lost: their answers will
// not come, and their callers may look or repeat at once.
func (l *Log) endRequests() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down()
	l.up, l.down = context.WithCancel(context.Background())
}

func (l *Log) breakFeeds() {
	for _, p := range l.partitions {
		p.breakFeed()
	}
}

func (l *Log) start(ctx context.Context) error {
	if err := l.replies.listen(l.nc); err != nil {
		return fmt.Errorf("subscribe to the answers to appends: %w", err)
	}
	for _, p := range l.partitions {
		if _, err := l.nc.Subscribe(storedSubject(p.number)+">", p.hear); err != nil {
			return fmt.Errorf("subscribe to %s: %w", p.name, err)
		}
	}
	if err := l.ready(ctx); err != nil {
		return err
	}
	if room := l.nc.MaxPayload(); room < int64(l.options.MessageBytes+headerRoom) {
		return fault.New(fault.Invalid, "CONFIG_INVALID",
			"the NATS server takes messages of %d bytes, too few for records of %d: raise its max_payload or lower the chunk limit",
			room, l.options.MessageBytes)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(openLimit)
	for _, p := range l.partitions {
		group.Go(func() error { return l.open(ctx, p) })
	}
	return group.Wait()
}

// ready waits for the connection, and until the server knows the subscriptions.
func (l *Log) ready(ctx context.Context) error {
	for {
		if err := l.nc.FlushWithContext(ctx); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			err := l.nc.LastError()
			if err == nil {
				err = nats.ErrTimeout
			}
			return log.Unavailable("connect to NATS", fmt.Errorf("not within %v: %w", l.options.Boot, err))
		case <-time.After(reconnectPause):
		}
	}
}

// Run implements log.Log.
func (l *Log) Run(ctx context.Context) error {
	ticker := time.NewTicker(l.options.Check)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			l.closeFeeds()
			return nil
		case <-ticker.C:
			for _, p := range l.partitions {
				l.compare(ctx, p)
			}
		}
	}
}

func (l *Log) closeFeeds() {
	for _, p := range l.partitions {
		p.feed.Close()
	}
}

// Close implements log.Log.
func (l *Log) Close() error {
	l.closeFeeds()
	l.nc.Close()
	return nil
}

func (l *Log) partitionOf(s log.Stream) *partition {
	return l.partitions[log.Partition(s, len(l.partitions))]
}

// Follow implements log.Reader.
func (l *Log) Follow(s log.Scope) *log.Follower { return l.partitionOf(s.Stream).feed.Follow(s) }

// Generation implements log.Log.
func (l *Log) Generation(s log.Stream) uint64 { return l.partitionOf(s).generation.Load() }
