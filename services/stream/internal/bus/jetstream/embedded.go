package jetstream

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
	"github.com/holdfast-run/holdfast/services/stream/internal/bus"
)

// maxPayload is the size of the largest message that the embedded server takes.
const maxPayload = 8 << 20

// minSyncInterval is the shortest time between two syncs; who wants less wants 0.
const minSyncInterval = 10 * time.Millisecond

// ServerOptions say how the embedded server keeps its data. All fields are
// required but SyncInterval and Log.
type ServerOptions struct {
	Directory string        // made if it is not there; one process at a time may use it
	Wait      time.Duration // how long to wait until the server is ready
	// SyncInterval is how often the disk is made to keep what was written, at
	// least 10ms; 0: before each acknowledgement. See the package comment for what
	// an acknowledged record survives.
	SyncInterval time.Duration
	Log          *slog.Logger // nil is slog.Default
}

// Server is a NATS server in this process, without a port.
type Server struct {
	server    *server.Server
	log       *slog.Logger
	directory string
	note      note
	lost      bool
	release   func()
	closed    sync.Once
}

// StartServer starts a server that keeps its data in the directory, and waits
// until it is ready.
//
// Invalid (CONFIG_INVALID): the directory cannot be used, or another process
// uses it; or the sync interval is too short. Unavailable (LOG_UNAVAILABLE): it
// was not ready in time.
func StartServer(o ServerOptions) (*Server, error) {
	return startServer(o, machineBoot())
}

// startServer is StartServer on a machine whose boot has the id, "" where it has
// none.
func startServer(o ServerOptions, boot string) (*Server, error) {
	if o.SyncInterval != 0 && o.SyncInterval < minSyncInterval {
		return nil, fault.New(fault.Invalid, "CONFIG_INVALID",
			"a sync interval of %v is below %v; 0 syncs before each acknowledgement", o.SyncInterval, minSyncInterval)
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if err := os.MkdirAll(o.Directory, 0o700); err != nil {
		return nil, fault.New(fault.Invalid, "CONFIG_INVALID", "the data directory of the stream cannot be made: %v", err)
	}
	release, err := lock(o.Directory)
	if err != nil {
		return nil, err
	}
	s := &Server{log: o.Log, directory: o.Directory, release: release}
	if err := s.start(o, boot); err != nil {
		release()
		return nil, err
	}
	if !s.server.ReadyForConnections(o.Wait) {
		s.Close()
		return nil, bus.Unavailable("start the embedded NATS server", fmt.Errorf("not ready within %v", o.Wait))
	}
	return s, nil
}

// start starts the server once the directory says who uses it.
func (s *Server) start(o ServerOptions, boot string) error {
	ns, err := server.NewServer(&server.Options{
		ServerName:         "holdfast",
		DontListen:         true,
		JetStream:          true,
		StoreDir:           o.Directory,
		JetStreamMaxStore:  math.MaxInt64, // the partitions' limits bound it
		JetStreamMaxMemory: 1 << 20,       // no stream is kept in memory
		SyncInterval:       o.SyncInterval,
		SyncAlways:         o.SyncInterval == 0,
		MaxPayload:         maxPayload,
		NoSigs:             true,
	})
	if err != nil {
		return fmt.Errorf("make the embedded NATS server: %w", err)
	}
	if s.note, err = beginNote(o.Directory, boot, o.SyncInterval == 0); err != nil {
		return fault.New(fault.Invalid, "CONFIG_INVALID", "the data directory of the stream cannot be used: %v", err)
	}
	s.lost = s.note.Lost
	if s.lost {
		s.log.Warn("the machine went down while the embedded log was in use; the end of the log may be lost", "directory", o.Directory)
	}
	ns.SetLoggerV2(serverLog{s.log}, false, false, false)
	ns.Start()
	s.server = ns
	return nil
}

// PowerLost reports whether the log may have lost records that it had
// acknowledged, as StartServer found it: the machine went down, without closing
// the server, before the disk had to keep them; or it did before, and Renewed was
// not called since. Open the log with Options.Renew then. It is false where the
// machine does not tell one boot from another (systems other than Linux).
func (s *Server) PowerLost() bool { return s.lost }

// Renewed notes that the log was begun anew; until then every start says
// PowerLost. Do not call it while Close runs.
func (s *Server) Renewed() error {
	if !s.note.Lost {
		return nil
	}
	s.note.Lost = false
	if err := s.note.write(s.directory); err != nil {
		s.note.Lost = true
		return fmt.Errorf("note that the log was begun anew: %w", err)
	}
	return nil
}

// Endpoint says how to connect to the server.
func (s *Server) Endpoint() Endpoint {
	return Endpoint{InProcess: s.server}
}

var _ nats.InProcessConnProvider = (*server.Server)(nil)

// Close stops the server, waits until its files are closed, and has the disk
// keep them. Calling it again does nothing.
func (s *Server) Close() { s.closed.Do(s.close) }

func (s *Server) close() {
	defer s.release()
	s.server.Shutdown()
	s.server.WaitForShutdown()
	if err := s.note.end(s.directory); err != nil {
		s.log.Warn("the embedded log was closed, but the disk may not keep it", "error", err)
	}
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
