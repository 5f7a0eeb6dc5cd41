// Package jetstream stores the live log in NATS JetStream: in a server inside the process (package embedded), or
// in servers at a URL.
//
// There are a few streams, the partitions, never one per session: a stream costs hundreds of kilobytes, a
// subject some hundred bytes. A family lies in one partition, and the filter <tenant>.<root>.* selects all of its
// sessions in one order. The offset of a message is its JetStream sequence.
//
//	append   publish holdfast.append.<partition>.<tenant>.<root>.<session> with the expected
//	         last sequence of the subject; the server checks and stores atomically
//	page     a batched direct get; there are no consumers, so nothing needs cleanup
//	follow   the server republishes each stored message under holdfast.stored.…; a process
//	         has one subscription per partition and distributes in memory (log.Feed)
//
// A subscription to the published subject would also receive messages that the server then refuses.
//
// # What breaks a feed
//
// Offsets of a partition rise by one with each message. A message out of order means that messages were lost on
// the way, or that the log lost its tail. A lost connection may mean both. The last message before an outage has
// no successor, so Run periodically compares the last received offset with the log. In each of these cases all
// followers of the partition receive log.ErrBroken. The generation of the partition rises, which invalidates
// known offsets.
//
// # A log that vanishes
//
// A missing partition is created when the log is opened, by Run, and by each request that does not find it. Its
// offsets begin at the microseconds since 1970, above every offset of a lost one. Nothing else is repaired: see
// package log.
package jetstream

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	"github.com/holdfast-run/holdfast/services/stream/internal/log"
)

// requestTimeout bounds every request to the server.
const requestTimeout = 5 * time.Second

// reconnectPause is the pause between two attempts to reach a server.
const reconnectPause = 250 * time.Millisecond

// headerRoom is the space for the headers of the largest message.
const headerRoom = 4 << 10

// openLimit is the number of partitions opened concurrently.
const openLimit = 4

// Options configure the log. All fields are required.
type Options struct {
	Partitions     int           // equal in all processes
	Replicas       int           // copies of each partition
	MaxAge         time.Duration // older messages are removed
	PartitionBytes int64         // above this size the oldest messages are removed
	MessageBytes   int           // the largest body
	Check          time.Duration // interval of the comparison between feed and log
	Boot           time.Duration // how long Open waits for the server
	Log            *slog.Logger
}

// Endpoint is the address of the server: in this process, or at a URL.
type Endpoint struct {
	InProcess nats.InProcessConnProvider // nil: connect to URL
	URL       string                     // one or more, separated by commas
	CredsFile string                     // "" for none
}

// Log is a log on JetStream.
type Log struct {
	options    Options
	log        *slog.Logger
	address    string // of the servers, without credentials
	nc         *nats.Conn
	js         jetstream.JetStream
	partitions []*partition
	replies    replies // to appends

	mu   sync.Mutex
	up   context.Context //nolint:containedctx // the time of one connection, not of a call
	down context.CancelFunc
}

var _ log.Log = (*Log)(nil)

// Open connects, creates or updates the partitions, and subscribes to them. It retries for Options.Boot while
// the server is unreachable. Several processes may open the log concurrently. Close must be called.
//
// Unavailable (LOG_UNAVAILABLE): the server was unreachable for too long. Invalid (CONFIG_INVALID): the server
// does not accept messages of MessageBytes.
func Open(ctx context.Context, e Endpoint, o Options) (*Log, error) {
	ctx, cancel := context.WithTimeout(ctx, o.Boot)
	defer cancel()
	l := &Log{options: o, log: o.Log, address: hosts(e.URL)}
	l.up, l.down = context.WithCancel(context.Background())
	for i := range o.Partitions {
		l.partitions = append(l.partitions, &partition{number: i, name: streamName(i)})
	}
	if err := l.connect(e); err != nil {
		return nil, err
	}
	if deadline, _ := ctx.Deadline(); !l.nc.IsConnected() && e.InProcess == nil {
		o.Log.WarnContext(ctx, "waiting for NATS, which cannot be reached yet",
			"address", l.address, "until", deadline.Format(time.TimeOnly), "patience", o.Boot)
	}
	if err := l.start(ctx); err != nil {
		l.nc.Close()
		return nil, err
	}
	return l, nil
}

// hosts returns the addresses of servers without their credentials.
func hosts(urls string) string {
	var list []string
	for text := range strings.SplitSeq(urls, ",") {
		u, err := url.Parse(strings.TrimSpace(text))
		switch {
		case err == nil && u.Host != "":
			u.User = nil
			list = append(list, u.String())
		default: // such as host:port, perhaps behind user:password@
			list = append(list, text[strings.LastIndex(text, "@")+1:])
		}
	}
	return strings.Join(list, ",")
}

func (l *Log) connect(e Endpoint) error {
	address := e.URL
	var options []nats.Option
	switch {
	case e.InProcess != nil:
		address = ""
		options = append(options, nats.InProcessServer(e.InProcess))
	case e.CredsFile != "":
		options = append(options, nats.UserCredentials(e.CredsFile), nats.SetCustomDialer(dialer{}))
	default:
		options = append(options, nats.SetCustomDialer(dialer{}))
	}
	nc, err := nats.Connect(address, append(options,
		nats.Name("holdfast-stream"),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectPause),
		nats.ReconnectBufSize(-1), // a write without a connection fails at once
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				l.log.Warn("connection to NATS lost", "error", err)
			}
			l.endRequests()
			l.breakFeeds()
		}),
		// Messages appended without a connection were not received.
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

// dialer connects to NATS servers.
type dialer struct{}

// Dial implements nats.CustomDialer.
func (dialer) Dial(network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: nats.DefaultTimeout}
	conn, err := d.Dial(network, address)
	if err != nil {
		return nil, err
	}
	return rpc.Socket(conn), nil
}

// requestContext returns the context of one request. It ends with ctx, with the connection, or after requestTimeout.
func (l *Log) requestContext(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	stop := context.AfterFunc(l.connectionContext(), cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// connectionContext returns a context for the life of the connection.
func (l *Log) connectionContext() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.up
}

// endRequests ends the requests in flight when the connection is lost: their answers will not arrive, and their
// callers may retry at once.
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
	l.replies.inbox = l.nc.NewInbox() + "."
	l.replies.waiting = map[uint64]*waiter{}
	if _, err := l.nc.Subscribe(l.replies.inbox+"*", l.replies.deliver); err != nil {
		return fmt.Errorf("subscribe to the answers to appends: %w", err)
	}
	for _, p := range l.partitions {
		if _, err := l.nc.Subscribe(storedSubject(p.number)+">", p.receive); err != nil {
			return fmt.Errorf("subscribe to %s: %w", p.name, err)
		}
		if _, err := l.nc.Subscribe(notifySubject(p.number)+">", p.receiveNotification); err != nil {
			return fmt.Errorf("subscribe to the notifications of %s: %w", p.name, err)
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

// ready waits for the connection, and until the server has the subscriptions.
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
			return log.Unavailable("connect to NATS", fmt.Errorf("not within %v at %s: %w", l.options.Boot, l.address, err))
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
