package server

import (
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/sweep"
)

// Server implements the services of the contract. Its methods may be called by
// many goroutines at once.
type Server struct {
	statev1.UnimplementedRunServiceServer
	statev1.UnimplementedSessionServiceServer
	statev1.UnimplementedWorkServiceServer
	statev1.UnimplementedCheckpointServiceServer
	statev1.UnimplementedCallServiceServer
	statev1.UnimplementedUsageServiceServer
	statev1.UnimplementedMemoryServiceServer
	statev1.UnimplementedOperatorServiceServer

	config Config
	store  store.Store
	now    func() time.Time
	newID  func() string
	log    *slog.Logger
	hub    *hub
	stops  *stops
	others *others

	suspects *sweep.Suspects

	mu       sync.Mutex // guards stopped, and streams against Stop
	stopped  bool
	stopping chan struct{} // closed by Stop
	streams  sync.WaitGroup
}

// New returns a server on the store. It starts nothing.
func New(config Config, s store.Store, now func() time.Time, newID func() string, log *slog.Logger) *Server {
	return &Server{config: config, store: s, now: now, newID: newID, log: log, hub: newHub(now), stops: newStops(), others: newOthers(s),
		suspects: sweep.NewSuspects(), stopping: make(chan struct{})}
}

// Register offers the services.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	statev1.RegisterRunServiceServer(r, s)
	statev1.RegisterSessionServiceServer(r, s)
	statev1.RegisterWorkServiceServer(r, s)
	statev1.RegisterCheckpointServiceServer(r, s)
	statev1.RegisterCallServiceServer(r, s)
	statev1.RegisterUsageServiceServer(r, s)
	statev1.RegisterMemoryServiceServer(r, s)
	statev1.RegisterOperatorServiceServer(r, s)
}

// Wake tells claim streams that there may be work for an agent.
func (s *Server) Wake(agentType string) { s.signal(agentType) }

// Suspects are the executors whose claim stream has broken.
func (s *Server) Suspects() *sweep.Suspects { return s.suspects }

// Stop ends all claim streams with Unavailable (STOPPING), refuses new ones
// the same way, and waits for their goroutines. A stream whose client takes
// nothing ends when the gRPC server is stopped, not before. Other calls go on.
func (s *Server) Stop() {
	s.mu.Lock()
	if !s.stopped {
		s.stopped = true
		close(s.stopping)
	}
	s.mu.Unlock()
	s.streams.Wait()
}

func (s *Server) millis() session.Millis { return session.Millis(s.now().UnixMilli()) }
