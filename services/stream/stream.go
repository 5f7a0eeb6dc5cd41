// Package stream is the stream service. It owns the live log, which holds the step in flight of every session.
//
//	server ──▶ livelog (the rules)
//	   │
//	   └─▶ log: memory, or jetstream (embedded server, or servers)
package stream

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/pkg/rpc"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/stream/internal/embedded"
	"github.com/holdfast-run/holdfast/services/stream/internal/log"
	"github.com/holdfast-run/holdfast/services/stream/internal/log/jetstream"
	"github.com/holdfast-run/holdfast/services/stream/internal/log/memory"
	"github.com/holdfast-run/holdfast/services/stream/internal/server"
)

// Peers are the dependencies of the service.
type Peers struct {
	Log   *slog.Logger // nil is slog.Default
	Meter metric.Meter // nil measures nothing
}

// Service is the stream service.
type Service struct {
	log    log.Log
	server *server.Server
	nats   *embedded.Server // nil unless embedded
}

// New opens the log. It waits up to Config.BootTimeout for an unreachable log. Close must be called.
//
// Invalid (CONFIG_INVALID): the detail names the variable. Unavailable (LOG_UNAVAILABLE): the log could not be
// opened in time.
func New(ctx context.Context, c Config, p Peers) (*Service, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if p.Log == nil {
		p.Log = slog.Default()
	}
	if p.Meter == nil {
		p.Meter = noop.Meter{}
	}
	keys, err := c.Grants.Keys()
	if err != nil {
		return nil, err
	}
	s := &Service{}
	if err = s.open(ctx, c, p.Log); err == nil {
		s.server, err = server.New(s.log, keys, c.ChunkBytes+recordRoom, p.Meter)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// isOpenToAll reports whether a server on another machine is to be reached without credentials.
func isOpenToAll(urls, creds string) bool {
	if creds != "" {
		return false
	}
	return slices.ContainsFunc(strings.Split(urls, ","), func(text string) bool {
		text = strings.TrimSpace(text)
		if !strings.Contains(text, "://") { // the client of NATS adds the scheme as well
			text = "nats://" + text
		}
		u, err := url.Parse(text)
		return err == nil && u.User == nil && !rpc.Loopback(net.JoinHostPort(u.Hostname(), u.Port()))
	})
}

// recordRoom is the size limit of a record beside its largest chunk.
const recordRoom = 8 << 10

// open opens the configured log.
func (s *Service) open(ctx context.Context, c Config, logger *slog.Logger) (err error) {
	endpoint := jetstream.Endpoint{URL: c.NATSURL, CredsFile: c.NATSCreds}
	if c.Bus == BusNATS && isOpenToAll(c.NATSURL, c.NATSCreds) {
		logger.WarnContext(ctx, "the NATS servers are reached without credentials: anyone who can reach them can read and write "+
			"the live logs of all tenants; give the servers an account for Holdfast, and set HOLDFAST_STREAM_NATS_CREDS",
			"url", "HOLDFAST_STREAM_NATS_URL")
	}
	switch c.Bus {
	case BusMemory:
		s.log = memory.New(memory.Options{MaxAge: c.TTL, MaxBytes: c.PartitionBytes * int64(c.Partitions)})
		return nil
	case BusEmbedded:
		s.nats, err = embedded.Start(embedded.Options{
			Directory: c.DataDir, Wait: c.BootTimeout, SyncInterval: c.Sync, Log: logger,
		})
		if err != nil {
			return err
		}
		endpoint = jetstream.Endpoint{InProcess: s.nats.InProcess()}
	}
	opened, err := jetstream.Open(ctx, endpoint, jetstream.Options{
		Partitions:     c.Partitions,
		Replicas:       c.Replicas,
		MaxAge:         c.TTL,
		PartitionBytes: c.PartitionBytes,
		MessageBytes:   c.ChunkBytes + recordRoom,
		Check:          c.Check,
		Boot:           c.BootTimeout,
		Log:            logger,
	})
	if err != nil {
		return err // a nil *jetstream.Log would be a non-nil log.Log
	}
	s.log = opened
	return nil
}

// Register adds the service to a gRPC server.
func (s *Service) Register(r grpc.ServiceRegistrar) {
	streamv2.RegisterStreamServiceServer(r, s.server)
}

// Run does the background work until ctx ends. It then ends the open reads and returns nil.
func (s *Service) Run(ctx context.Context) error { return s.log.Run(ctx) }

// Close closes the log. Call it after Run has returned and all calls have ended.
func (s *Service) Close() error {
	var err error
	if s.log != nil {
		err = s.log.Close()
	}
	if s.nats != nil {
		s.nats.Close()
	}
	return err
}
