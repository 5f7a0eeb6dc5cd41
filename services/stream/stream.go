// Package stream is the hall of the stream service: the only door to the chunk
// log, which says what readers of sessions are told, in order, and again from
// any position.
//
//	server ──▶ chunklog (the rules)
//	   │
//	   ├─▶ bus: memory, or jetstream (embedded server, servers, or several systems of servers)
//	   └─▶ hub ◀── bus (one feed, many readers)
//
// What an acknowledged chunk survives depends on the bus; the comment of
// internal/bus/jetstream says it for each form.
//
// Beside it stands the live log of v2, which carries the step in flight and nothing else:
//
//	liveserver ──▶ livelog (the rules)
//	   │
//	   └─▶ log: memory, or jetstream (on the same servers, in streams of its own)
package stream

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus/jetstream"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus/memory"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus/sharded"
	"github.com/holdfast-run/holdfast/services/stream/internal/hub"
	"github.com/holdfast-run/holdfast/services/stream/internal/liveserver"
	"github.com/holdfast-run/holdfast/services/stream/internal/log"
	livejetstream "github.com/holdfast-run/holdfast/services/stream/internal/log/jetstream"
	livememory "github.com/holdfast-run/holdfast/services/stream/internal/log/memory"
	"github.com/holdfast-run/holdfast/services/stream/internal/server"
)

// Peers is what the service is given by its process.
type Peers struct {
	Log   *slog.Logger     // nil is slog.Default
	Now   func() time.Time // nil is time.Now
	Meter metric.Meter     // nil measures nothing
}

// Service is the stream service.
type Service struct {
	bus    bus.Bus
	hub    *hub.Hub
	server *server.Server
	nats   *jetstream.Server // nil unless embedded

	live       log.Log
	liveServer *liveserver.Server
}

// New opens the log. It waits for a log that cannot be reached for
// Config.BootTimeout at most. Close must be called.
//
// Invalid (CONFIG_INVALID): the detail names the variable. Unavailable
// (LOG_UNAVAILABLE): the log could not be opened in time.
func New(ctx context.Context, c Config, p Peers) (*Service, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if p.Log == nil {
		p.Log = slog.Default()
	}
	if p.Now == nil {
		p.Now = time.Now
	}
	s := &Service{}
	if err := s.open(ctx, c, p); err != nil {
		return nil, err
	}
	s.hub = hub.New(s.bus, hub.Limits{Records: c.ReaderChunks, Bytes: c.ReaderBytes})
	var err error
	if s.server, err = server.New(s.bus, s.hub, server.Options{ChunkBytes: c.ChunkBytes, Meter: p.Meter, Now: p.Now}); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if err := s.openLive(ctx, c, p); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.liveServer, err = liveserver.New(s.live, liveserver.Options{RecordBytes: c.ChunkBytes + recordRoom, Meter: p.Meter, Now: p.Now})
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// recordRoom is what a record of the live log may take beside its largest chunk.
const recordRoom = 8 << 10

// openLive opens the live log that the configuration names: on each system of servers, if
// there are several.
func (s *Service) openLive(ctx context.Context, c Config, p Peers) error {
	var endpoints []livejetstream.Endpoint
	switch c.Bus {
	case BusMemory:
		s.live = livememory.New(livememory.Options{MaxAge: c.LiveTTL, MaxBytes: c.PartitionBytes * int64(c.Partitions), Now: p.Now})
		return nil
	case BusEmbedded:
		endpoints = []livejetstream.Endpoint{{InProcess: s.nats.Endpoint().InProcess}}
	default:
		for _, url := range c.systems() {
			endpoints = append(endpoints, livejetstream.Endpoint{URL: url, CredsFile: c.NATSCreds})
		}
	}
	logs := make([]log.Log, len(endpoints))
	group, ctx := errgroup.WithContext(ctx)
	for i, endpoint := range endpoints {
		group.Go(func() error {
			opened, err := livejetstream.Open(ctx, endpoint, liveOptions(c, p))
			if err == nil { // a nil *jetstream.Log is no nil log.Log
				logs[i] = opened
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		for _, opened := range logs {
			if opened != nil {
				err = errors.Join(err, opened.Close())
			}
		}
		return err
	}
	s.live = log.Spread(logs)
	return nil
}

func liveOptions(c Config, p Peers) livejetstream.Options {
	return livejetstream.Options{
		Namespace:      c.Namespace,
		Partitions:     c.Partitions,
		Replicas:       c.Replicas,
		MaxAge:         c.LiveTTL,
		PartitionBytes: c.PartitionBytes,
		MessageBytes:   c.ChunkBytes + recordRoom,
		Check:          c.Check,
		Boot:           c.BootTimeout,
		Log:            p.Log,
		Now:            p.Now,
	}
}

// open opens the log that the configuration names.
func (s *Service) open(ctx context.Context, c Config, p Peers) error {
	switch c.Bus {
	case BusMemory:
		s.bus = memory.New(memory.Options{
			MaxAge: c.TTL, MaxBytes: c.PartitionBytes * int64(c.Partitions), SessionRecords: int64(c.SessionChunks), Now: p.Now,
		})
		return nil
	case BusEmbedded:
		return s.openEmbedded(ctx, c, p)
	}
	return s.openNATS(ctx, c, p)
}

// openEmbedded starts the server in this process. Where the machine went down
// while it ran, the end of the log may be lost, and it begins anew.
func (s *Service) openEmbedded(ctx context.Context, c Config, p Peers) error {
	nats, err := jetstream.StartServer(jetstream.ServerOptions{
		Directory: c.DataDir, Wait: c.BootTimeout, SyncInterval: c.Sync, Log: p.Log,
	})
	if err != nil {
		return err
	}
	options := logOptions(c, p)
	options.Renew = nats.PowerLost()
	log, err := jetstream.Open(ctx, nats.Endpoint(), options)
	if err != nil {
		nats.Close()
		return err
	}
	s.nats, s.bus = nats, log
	if err := nats.Renewed(); err != nil {
		return errors.Join(err, s.Close())
	}
	return nil
}

// openNATS opens a log on each system of servers. A family is on one of them.
func (s *Service) openNATS(ctx context.Context, c Config, p Peers) error {
	systems := c.systems()
	logs := make([]bus.Bus, len(systems))
	group, ctx := errgroup.WithContext(ctx)
	for i, url := range systems {
		group.Go(func() error {
			options := logOptions(c, p)
			options.Shards, options.Shard = len(systems), i
			log, err := jetstream.Open(ctx, jetstream.Endpoint{URL: url, CredsFile: c.NATSCreds}, options)
			if err == nil { // a nil *jetstream.Bus is no nil bus.Bus
				logs[i] = log
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		for _, log := range logs {
			if log != nil {
				err = errors.Join(err, log.Close())
			}
		}
		return err
	}
	if s.bus = logs[0]; len(logs) > 1 {
		s.bus = sharded.New(logs)
	}
	return nil
}

func logOptions(c Config, p Peers) jetstream.Options {
	return jetstream.Options{
		Namespace:      c.Namespace,
		Partitions:     c.Partitions,
		Replicas:       c.Replicas,
		MaxAge:         c.TTL,
		PartitionBytes: c.PartitionBytes,
		SessionRecords: int64(c.SessionChunks),
		RecordBytes:    c.ChunkBytes,
		Check:          c.Check,
		Boot:           c.BootTimeout,
		Log:            p.Log,
		Now:            p.Now,
	}
}

// Register adds the service to a gRPC server.
func (s *Service) Register(r grpc.ServiceRegistrar) {
	streamv1.RegisterStreamServiceServer(r, s.server)
	streamv2.RegisterStreamServiceServer(r, s.liveServer)
}

// Run does the background work until ctx ends, then sends the open readers
// away and returns nil.
func (s *Service) Run(ctx context.Context) error {
	defer s.hub.Close()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.bus.Run(ctx) })
	group.Go(func() error { return s.live.Run(ctx) })
	return group.Wait()
}

// Close lets go of the log. Call it when Run has returned and no call is open.
func (s *Service) Close() error {
	if s.hub != nil {
		s.hub.Close()
	}
	err := s.bus.Close()
	if s.live != nil {
		err = errors.Join(err, s.live.Close())
	}
	if s.nats != nil {
		s.nats.Close()
	}
	return err
}
