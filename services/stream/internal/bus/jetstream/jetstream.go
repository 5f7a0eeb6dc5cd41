package jetstream

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
)

// requestTimeout bounds every request to the server.
const requestTimeout = 5 * time.Second

// reconnectPause lies between two attempts to reach a server.
const reconnectPause = 250 * time.Millisecond

// headerRoom is what the largest message needs beside its payload.
const headerRoom = 4 << 10

// Options say how the log is kept. All fields are required but SessionRecords,
// Shards, Shard, Renew, Log and Now.
type Options struct {
	Namespace      string        // first word of subjects and streams
	Partitions     int           // 1 to 64; must not change while there is data
	Replicas       int           // copies of each partition
	MaxAge         time.Duration // records older than this are removed
	PartitionBytes int64         // the oldest records go when there are more
	SessionRecords int64         // the oldest of a session go when it has more; 0: no limit
	RecordBytes    int           // the largest payload
	Check          time.Duration // within this time a lost tail is noticed
	Boot           time.Duration // how long Open waits for the server
	Shards         int           // how many systems share the families; 0 is 1; must not change while there is data
	Shard          int           // which of them this one is, from 0
	Renew          bool          // begin every partition anew: it may have lost its end
	Log            *slog.Logger  // nil is slog.Default
	Now            func() time.Time
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

// Bus is a log on JetStream.
type Bus struct {
	options    Options
	names      names
	log        *slog.Logger
	nc         *nats.Conn
	js         jetstream.JetStream
	partitions []*partition
	inbox      *inbox
	link       *link
	resync     chan struct{} // room for one: the connection was lost
}

var _ bus.Bus = (*Bus)(nil)

// Open connects, makes the partition streams or brings them up to date, and
// listens to what they tell. It tries for Options.Boot when the server cannot
// be reached; several processes may do it at once.
//
// Unavailable (LOG_UNAVAILABLE): the server could not be reached in time.
// Invalid (CONFIG_INVALID): the streams were made with another number of
// partitions or shards, or as another shard; or the server takes no messages of
// RecordBytes.
func Open(ctx context.Context, e Endpoint, o Options) (*Bus, error) {
	ctx, cancel := context.WithTimeout(ctx, o.Boot)
	defer cancel()
	b := &Bus{options: o, names: names{o.Namespace}, log: o.Log, link: newLink(), resync: make(chan struct{}, 1)}
	if b.log == nil {
		b.log = slog.Default()
	}
	if b.options.Now == nil {
		b.options.Now = time.Now
	}
	b.options.Shards = max(b.options.Shards, 1)
	if err := b.connect(e); err != nil {
		return nil, err
	}
	if err := b.start(ctx); err != nil {
		b.nc.Close()
		return nil, err
	}
	return b, nil
}

func (b *Bus) connect(e Endpoint) error {
	url, options := e.options()
	nc, err := nats.Connect(url, append(options,
		nats.Name("holdfast-stream"),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectPause),
		nats.ReconnectBufSize(-1), // a write while there is no connection fails at once
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			b.link.lost()
			if err != nil {
				b.log.Warn("connection to NATS lost", "error", err)
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) { b.lostFeed() }),
		nats.ErrorHandler(func(_ *nats.Conn, s *nats.Subscription, err error) {
			b.log.Warn("NATS reports an error", "error", err)
			if s != nil {
				b.lostFeed()
			}
		}),
	)...)
	if err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	if b.js, err = jetstream.New(nc); err != nil {
		nc.Close()
		return fmt.Errorf("connect to NATS: %w", err)
	}
	b.nc = nc
	return nil
}

// lostFeed has Run compare the live feed with the log soon.
func (b *Bus) lostFeed() {
	select {
	case b.resync <- struct{}{}:
	default: // it was told already
	}
}

func (b *Bus) start(ctx context.Context) error {
	if err := b.ready(ctx); err != nil {
		return err
	}
	if room := b.nc.MaxPayload(); room < int64(b.options.RecordBytes+headerRoom) {
		return fault.New(fault.Invalid, "CONFIG_INVALID",
			"the NATS server takes messages of %d bytes, too few for chunks of %d: raise its max_payload or lower the chunk limit",
			room, b.options.RecordBytes)
	}
	inbox, err := openInbox(b.nc)
	if err != nil {
		return err
	}
	b.inbox = inbox
	return b.openPartitions(ctx)
}

// ready waits for the connection.
func (b *Bus) ready(ctx context.Context) error {
	for {
		if err := b.nc.FlushWithContext(ctx); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return bus.Unavailable("connect to NATS", fmt.Errorf("not within %v: %w", b.options.Boot, lastError(b.nc)))
		case <-time.After(reconnectPause):
		}
	}
}

func lastError(nc *nats.Conn) error {
	if err := nc.LastError(); err != nil {
		return err
	}
	return nats.ErrTimeout
}

// Close implements bus.Bus.
func (b *Bus) Close() error {
	b.nc.Close()
	return nil
}

// partitionOf returns the partition of a family.
func (b *Bus) partitionOf(s bus.Stream) *partition {
	return b.partitions[bus.Partition(s, len(b.partitions))]
}
