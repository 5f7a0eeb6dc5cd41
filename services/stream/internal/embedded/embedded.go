// Package embedded runs a NATS server with JetStream in this process, without a port.
package embedded

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/stream/internal/log"
)

// maxPayload is the largest message in bytes.
const maxPayload = 8 << 20

// Options configure the server's storage. All fields but SyncInterval are required.
type Options struct {
	Directory string        // created if missing; for one process at a time
	Wait      time.Duration // limit on the start of the server
	// SyncInterval is the interval of fsync; 0: before each acknowledgement. A power cut loses writes since the
	// last fsync. The death of the process loses nothing.
	SyncInterval time.Duration
	Log          *slog.Logger
}

// Server is a NATS server in this process.
type Server struct {
	server  *server.Server
	release func()
	closed  sync.Once
}

// Start starts a server with its data in the directory and waits until it is ready. Close must be called.
//
// Invalid (CONFIG_INVALID): the directory is unusable, or another process uses it. Unavailable
// (LOG_UNAVAILABLE): the server was not ready in time.
func Start(o Options) (*Server, error) {
	if err := os.MkdirAll(o.Directory, 0o700); err != nil {
		return nil, fault.New(fault.Invalid, "CONFIG_INVALID", "the data directory of the stream cannot be made: %v", err)
	}
	release, err := lock(o.Directory)
	if err != nil {
		return nil, err
	}
	ns, err := server.NewServer(&server.Options{
		ServerName:         "holdfast",
		DontListen:         true,
		JetStream:          true,
		StoreDir:           o.Directory,
		JetStreamMaxStore:  math.MaxInt64, // bounded by the partitions' limits
		JetStreamMaxMemory: 1 << 20,       // no stream is in memory
		SyncInterval:       o.SyncInterval,
		SyncAlways:         o.SyncInterval == 0,
		MaxPayload:         maxPayload,
		NoSigs:             true,
	})
	if err != nil {
		release()
		return nil, fmt.Errorf("make the embedded NATS server: %w", err)
	}
	ns.SetLoggerV2(serverLog{o.Log}, false, false, false)
	ns.Start()
	s := &Server{server: ns, release: release}
	if !ns.ReadyForConnections(o.Wait) {
		s.Close()
		return nil, log.Unavailable("start the embedded NATS server", fmt.Errorf("not ready within %v", o.Wait))
	}
	return s, nil
}

// InProcess returns the connection provider for clients in this process.
func (s *Server) InProcess() nats.InProcessConnProvider { return s.server }

// Close stops the server and waits until its files are closed. Repeated calls do nothing.
func (s *Server) Close() {
	s.closed.Do(func() {
		defer s.release()
		s.server.Shutdown()
		s.server.WaitForShutdown()
	})
}

// serverLog forwards the server's warnings and errors.
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
