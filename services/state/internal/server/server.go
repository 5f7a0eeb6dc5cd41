package server

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// Config says how work is handed out and what is too large.
type Config struct {
	Poll   time.Duration `env:"HOLDFAST_STATE_CLAIM_POLL" envDefault:"200ms" doc:"how often a claim stream looks for work that no signal announced; jittered by half"`
	Fresh  time.Duration `env:"HOLDFAST_STATE_CLAIM_FRESH" envDefault:"10s" doc:"a claim that a heartbeat does not list is taken back only when it is older than this"`
	Limits Limits
}

// Limits bound what a request may bring and an answer may carry. All sizes are
// in bytes. A claim travels in one message of at most 16 MiB: two StepBytes, the
// state and TailBytes have to fit into it.
type Limits struct {
	MessageBytes  int `env:"HOLDFAST_STATE_MAX_MESSAGE_BYTES" envDefault:"1048576" doc:"largest user message and largest plan"`
	ResultBytes   int `env:"HOLDFAST_STATE_MAX_RESULT_BYTES" envDefault:"1000000" doc:"largest result of one call, with its error text"`
	StepBytes     int `env:"HOLDFAST_STATE_MAX_STEP_BYTES" envDefault:"6291456" doc:"largest journal of a step (plan, results and state writes), and largest message that a step commits"`
	StateBytes    int `env:"HOLDFAST_STATE_MAX_STATE_BYTES" envDefault:"1887436" doc:"largest custom state, as JSON"`
	ErrorBytes    int `env:"HOLDFAST_STATE_MAX_ERROR_BYTES" envDefault:"8192" doc:"longest error text of a failed run; longer ones are cut"`
	Tags          int `env:"HOLDFAST_STATE_MAX_TAGS" envDefault:"64" doc:"most tags of a session"`
	TagBytes      int `env:"HOLDFAST_STATE_MAX_TAG_BYTES" envDefault:"256" doc:"longest tag"`
	Metadata      int `env:"HOLDFAST_STATE_MAX_METADATA" envDefault:"64" doc:"most metadata pairs of a session or a message"`
	MetadataBytes int `env:"HOLDFAST_STATE_MAX_METADATA_BYTES" envDefault:"4096" doc:"longest metadata value"`
	PageBytes     int `env:"HOLDFAST_STATE_MAX_PAGE_BYTES" envDefault:"4194304" doc:"messages in one page of ListMessages; a single larger one still comes"`
	TailMessages  int `env:"HOLDFAST_STATE_TAIL_MESSAGES" envDefault:"200" doc:"most messages that a claim carries"`
	TailBytes     int `env:"HOLDFAST_STATE_TAIL_BYTES" envDefault:"1048576" doc:"most bytes of messages that a claim carries; the last message always comes"`
}

func (l Limits) heart() session.Limits {
	return session.Limits{State: l.StateBytes, Journal: l.StepBytes}
}

// Server implements the three services of the contract. Its methods may be
// called by many goroutines at once.
type Server struct {
	statev1.UnimplementedRunServiceServer
	statev1.UnimplementedSessionServiceServer
	statev1.UnimplementedWorkServiceServer

	config Config
	store  store.Store
	now    func() time.Time
	newID  func() string
	log    *slog.Logger
	hub    *hub

	mu       sync.Mutex // guards stopped, and streams against Stop
	stopped  bool
	stopping chan struct{} // closed by Stop
	streams  sync.WaitGroup
}

// New returns a server on the store. It starts nothing.
func New(config Config, s store.Store, now func() time.Time, newID func() string, log *slog.Logger) *Server {
	return &Server{config: config, store: s, now: now, newID: newID, log: log, hub: newHub(), stopping: make(chan struct{})}
}

// Register offers the services.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	statev1.RegisterRunServiceServer(r, s)
	statev1.RegisterSessionServiceServer(r, s)
	statev1.RegisterWorkServiceServer(r, s)
}

// Wake tells claim streams that there may be work for an agent.
func (s *Server) Wake(agentType string) { s.hub.signal(agentType) }

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

// update runs a command that has an answer. Of several calls of decide the
// last one counts.
func update[A any](ctx context.Context, u store.Updater, key session.Key, need session.Need,
	decide func(*session.View) (*session.Change, A, error)) (A, error) {
	var answer A
	err := u.Update(ctx, key, need, func(v *session.View) (*session.Change, error) {
		change, a, err := decide(v)
		answer = a
		return change, err
	})
	return answer, err
}
