// Package stream is the hall of the stream service: the only door to the chunk
// log, which says what readers of sessions are told, in order, and again from
// any position.
//
//	server ──▶ chunklog (the rules)
//	   │
//	   ├─▶ bus: memory or jetstream (embedded server or cluster)
//	   └─▶ hub ◀── bus (one feed, many readers)
//
// What an acknowledged chunk survives depends on the bus; the comment of
// internal/bus/jetstream says it for each form.
package stream

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc"

	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus/jetstream"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus/memory"
	"github.com/holdfast-run/holdfast/services/stream/internal/hub"
	"github.com/holdfast-run/holdfast/services/stream/internal/server"
)

// Peers is what the service is given by its process.
type Peers struct {
	Log *slog.Logger     // nil is slog.Default
	Now func() time.Time // nil is time.Now
}

// Service is the stream service.
type Service struct {
	bus    bus.Bus
	hub    *hub.Hub
	server *server.Server
	nats   *jetstream.Server // nil unless embedded
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
	s.server = server.New(s.bus, s.hub, c.ChunkBytes)
	return s, nil
}

// open opens the log that the configuration names.
func (s *Service) open(ctx context.Context, c Config, p Peers) error {
	endpoint := jetstream.Endpoint{URL: c.NATSURL, CredsFile: c.NATSCreds}
	switch c.Bus {
	case BusMemory:
		s.bus = memory.New(memory.Options{
			MaxAge: c.TTL, MaxBytes: c.PartitionBytes * int64(c.Partitions), Now: p.Now,
		})
		return nil
	case BusEmbedded:
		nats, err := jetstream.StartServer(c.DataDir, c.BootTimeout, p.Log)
		if err != nil {
			return err
		}
		s.nats, endpoint = nats, nats.Endpoint()
	}
	log, err := jetstream.Open(ctx, endpoint, jetstream.Options{
		Namespace:      c.Namespace,
		Partitions:     c.Partitions,
		Replicas:       c.Replicas,
		MaxAge:         c.TTL,
		PartitionBytes: c.PartitionBytes,
		RecordBytes:    c.ChunkBytes,
		Check:          c.Check,
		Boot:           c.BootTimeout,
		Log:            p.Log,
		Now:            p.Now,
	})
	if err != nil {
		s.closeServer()
		return err
	}
	s.bus = log
	return nil
}

// Register adds the service to a gRPC server.
func (s *Service) Register(r grpc.ServiceRegistrar) {
	streamv1.RegisterStreamServiceServer(r, s.server)
}

// Run does the background work until ctx ends, then sends the open readers
// away and returns nil.
func (s *Service) Run(ctx context.Context) error {
	defer s.hub.Close()
	return s.bus.Run(ctx)
}

// Close lets go of the log. Call it when Run has returned and no call is open.
func (s *Service) Close() error {
	s.hub.Close()
	err := s.bus.Close()
	s.closeServer()
	return err
}

func (s *Service) closeServer() {
	if s.nats != nil {
		s.nats.Close()
	}
}
