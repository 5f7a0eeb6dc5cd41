package jetstream

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
)

// syncInterval is how often the embedded server has the disk keep what it was
// given; see the package comment for what that means.
const syncInterval = 5 * time.Second

// maxPayload is the size of the largest message that the embedded server takes.
const maxPayload = 8 << 20

// Server is a NATS server in this process, without a port.
type Server struct {
	server  *server.Server
	release func()
}

// StartServer starts a server that keeps its data in the directory, and waits
// until it is ready, at most so long. One process at a time may use the
// directory.
//
// Invalid (CONFIG_INVALID): the directory cannot be used, or another process
// uses it. Unavailable (LOG_UNAVAILABLE): it was not ready in time.
func StartServer(directory string, wait time.Duration, log *slog.Logger) (*Server, error) {
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return nil, fault.New(fault.Invalid, "CONFIG_INVALID", "the data directory of the stream cannot be made: %v", err)
	}
	release, err := lock(directory)
	if err != nil {
		return nil, err
	}
	ns, err := server.NewServer(&server.Options{
		ServerName:         "holdfast",
		DontListen:         true,
		JetStream:          true,
		StoreDir:           directory,
		JetStreamMaxStore:  math.MaxInt64, // the partitions' limits bound it
		JetStreamMaxMemory: 1 << 20,       // no stream is kept in memory
		SyncInterval:       syncInterval,
		MaxPayload:         maxPayload,
		NoSigs:             true,
	})
	if err != nil {
		release()
		return nil, fmt.Errorf("make the embedded NATS server: %w", err)
	}
	ns.SetLoggerV2(serverLog{log}, false, false, false)
	ns.Start()
	s := &Server{ns, release}
	if !ns.ReadyForConnections(wait) {
		s.Close()
		return nil, bus.Unavailable("start the embedded NATS server", fmt.Errorf("not ready within %v", wait))
	}
	return s, nil
}

// Endpoint says how to connect to the server.
func (s *Server) Endpoint() Endpoint {
	return Endpoint{InProcess: s.server}
}

var _ nats.InProcessConnProvider = (*server.Server)(nil)

// Close stops the server and waits until its files are closed.
func (s *Server) Close() {
	s.server.Shutdown()
	s.server.WaitForShutdown()
	s.release()
}

// serverLog hands on what the server has to say when something is wrong.
type serverLog struct{ log *slog.Logger }

func (l serverLog) write(level slog.Level, format string, values []any) {
	l.log.Log(context.Background(), level, fmt.Sprintf(format, values...), "from", "nats-server")
}

func (serverLog) Noticef(string, ...any)                {}
func (serverLog) Debugf(string, ...any)                 {}
func (serverLog) Tracef(string, ...any)                 {}
func (l serverLog) Warnf(format string, values ...any)  { l.write(slog.LevelWarn, format, values) }
func (l serverLog) Errorf(format string, values ...any) { l.write(slog.LevelError, format, values) }
func (l serverLog) Fatalf(format string, values ...any) { l.write(slog.LevelError, format, values) }
