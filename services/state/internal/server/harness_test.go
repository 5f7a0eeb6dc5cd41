package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/e2e/pgtest"
	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/grant"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/group"
	"github.com/holdfast-run/holdfast/services/state/internal/store/postgres"
	"github.com/holdfast-run/holdfast/services/state/internal/store/sqlite"
	"github.com/holdfast-run/holdfast/services/state/internal/store/sqlite/sqlitetest"
)

// bench is a server and its clients.
type bench struct {
	*testing.T
	server   *Server
	store    store.Store
	config   Config
	keys     grant.Keys
	runs     statev1.RunServiceClient
	sessions statev1.SessionServiceClient
	work     statev1.WorkServiceClient
	points   statev1.CheckpointServiceClient
	calls    statev1.CallServiceClient
	usage    statev1.UsageServiceClient
	memories statev1.MemoryServiceClient
	stored   statev1.StoredAgentServiceClient
	files    statev1.FileServiceClient
	operator statev1.OperatorServiceClient
	audit    statev1.AuditServiceClient
	erasure  statev1.ErasureServiceClient
	outbox   statev1.OutboxServiceClient
	conn     *grpc.ClientConn
	log      *slog.Logger
	ids      atomic.Int64
	ahead    atomic.Int64 // offset of the service's clock
}

// now is the service's clock.
func (b *bench) now() time.Time { return time.Now().Add(time.Duration(b.ahead.Load())) }

func (b *bench) millis() session.Millis { return session.Millis(b.now().UnixMilli()) }

// newID is the service's source of ids.
func (b *bench) newID() string { return fmt.Sprint("id", b.ids.Add(1)) }

// advance moves the service's clock.
func (b *bench) advance(d time.Duration) { b.ahead.Add(int64(d)) }

// newBench serves with the default configuration, changed by the given functions. It polls so
// rarely that no test passes by the poll.
func newBench(t *testing.T, changes ...func(*Config)) *bench {
	t.Helper()
	return newBenchOn(t, sqlitetest.Open(t), changes...)
}

// databaseURL is the URL of a database that tolerates long pauses of a test process.
func databaseURL(t *testing.T) string {
	t.Helper()
	return pgtest.With(t, pgtest.URL(t), "idle_in_transaction_session_timeout", "60000")
}

// onEveryStore runs a test on each store. open returns a bench. On stores with row locks it
// polls often: a claim skips locked sessions, and finds them with the poll.
func onEveryStore(t *testing.T, test func(t *testing.T, open func(...func(*Config)) *bench)) {
	t.Helper()
	wrappingEveryStore(t, unsignaled, test)
}

// unsignaled returns the store without its Signaler.
func unsignaled(s store.Store) store.Store {
	s.Signals = nil
	return s
}

// wrappingEveryStore is onEveryStore with wrapped stores.
func wrappingEveryStore(t *testing.T, wrap func(store.Store) store.Store, test func(t *testing.T, open func(...func(*Config)) *bench)) {
	t.Helper()
	var commits group.Config
	if err := config.Load(&commits, nil); err != nil {
		t.Fatal(err)
	}
	for name, open := range map[string]func(t *testing.T) (store.Store, error){
		"sqlite": func(t *testing.T) (store.Store, error) {
			s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "state.db"), commits, nil)
			if err != nil {
				return store.Store{}, err
			}
			return s.Parts(), nil
		},
		"postgres": func(t *testing.T) (store.Store, error) {
			s, err := postgres.Open(t.Context(), databaseURL(t), 4, commits, nil)
			if err != nil {
				return store.Store{}, err
			}
			return s.Parts(), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, func(changes ...func(*Config)) *bench {
				s, err := open(t)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := s.Close(); err != nil {
						t.Error(err)
					}
				})
				changes = append([]func(*Config){func(c *Config) { c.Scheduler.Poll = 5 * time.Millisecond }}, changes...)
				return newBenchOn(t, wrap(s), changes...)
			})
		})
	}
}

func newBenchOn(t *testing.T, on store.Store, changes ...func(*Config)) *bench {
	t.Helper()
	return newBenchWith(t, on, grant.Keys{}, changes...)
}

// newBenchWith serves with the keys of grants.
func newBenchWith(t *testing.T, on store.Store, keys grant.Keys, changes ...func(*Config)) *bench {
	t.Helper()
	b := &bench{T: t, store: on, keys: keys, log: slog.New(slog.DiscardHandler)}
	if err := config.Load(&b.config, nil); err != nil {
		t.Fatal(err)
	}
	b.config.Scheduler.Poll = time.Hour
	for _, change := range changes {
		change(&b.config)
	}
	b.server = b.replica()
	network := rpc.NewMemory()
	g, err := rpc.NewServer(rpc.ServerConfig{Log: b.log})
	b.must(err)
	b.server.Register(g)
	listener, err := network.Listen(t.Context(), "state")
	b.must(err)
	b.serve(g, listener)
	conn, err := rpc.Dial(network, "state", rpc.ClientConfig{})
	b.must(err)
	t.Cleanup(func() { _ = conn.Close() })
	b.conn = conn
	b.runs, b.sessions, b.work = statev1.NewRunServiceClient(conn), statev1.NewSessionServiceClient(conn), statev1.NewWorkServiceClient(conn)
	b.points, b.calls, b.usage = statev1.NewCheckpointServiceClient(conn), statev1.NewCallServiceClient(conn), statev1.NewUsageServiceClient(conn)
	b.stored = statev1.NewStoredAgentServiceClient(conn)
	b.memories, b.operator = statev1.NewMemoryServiceClient(conn), statev1.NewOperatorServiceClient(conn)
	b.files = statev1.NewFileServiceClient(conn)
	b.audit, b.erasure = statev1.NewAuditServiceClient(conn), statev1.NewErasureServiceClient(conn)
	b.outbox = statev1.NewOutboxServiceClient(conn)
	return b
}

// serve serves until the test ends, and checks that everything stops.
func (b *bench) serve(g *rpc.Server, listener net.Listener) {
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	var background sync.WaitGroup
	background.Go(func() { b.server.Run(ctx) })
	go func() { served <- rpc.Serve(ctx, g, listener, time.Second) }()
	b.Cleanup(func() {
		cancel()
		b.server.Stop()
		background.Wait()
		if err := <-served; err != nil {
			b.Error(err)
		}
	})
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatalf("got %v, want no error", err)
	}
}

func (b *bench) refuses(err error, kind fault.Kind, reason string) *fault.Fault {
	b.Helper()
	f, ok := fault.From(err)
	if !ok || f.Kind != kind || f.Reason != reason {
		b.Fatalf("got %v, want %v (%s)", err, kind, reason)
	}
	return f
}

func userMessage(text string) *eventv1.Message {
	return &eventv1.Message{Role: eventv1.Role_ROLE_USER, Parts: []*eventv1.Part{{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{Text: text}}}}}
}

// resumeOf sets the intent of the request to Resume, and returns it.
func resumeOf(r *statev1.StartRunRequest) *statev1.Resume {
	if r.GetResume() == nil {
		r.Intent = &statev1.StartRunRequest_Resume{Resume: &statev1.Resume{}}
	}
	return r.GetResume()
}

func startOf(sessionID string) *statev1.StartRunRequest {
	return &statev1.StartRunRequest{Tenant: "acme", SessionId: sessionID, AgentType: "support", Messages: []*eventv1.Message{userMessage("hello")}}
}

func (b *bench) start(sessionID string) *statev1.StartRunResponse {
	b.Helper()
	started, err := b.runs.StartRun(b.Context(), startOf(sessionID))
	b.must(err)
	return started
}

// queue starts a run through another replica, and signals it to this one.
func (b *bench) queue(sessionID string) *statev1.StartRunResponse {
	b.Helper()
	started, err := b.replica().runs.StartRun(b.Context(), startOf(sessionID))
	b.must(err)
	b.server.Wake("support")
	return started
}

// replica returns another server on the same store.
func (b *bench) replica() *Server { return New(b.config, b.store, b.keys, b.now, b.newID, b.log) }

// announce registers the agent, by an executor without credits.
func (b *bench) announce() {
	b.Helper()
	b.open("announcer", 0).cancel()
}

// stream is an open claim stream.
type stream struct {
	*bench
	grpc.BidiStreamingClient[statev1.ClaimRunsRequest, statev1.ClaimRunsResponse]
	cancel context.CancelFunc
	got    chan *statev1.ClaimRunsResponse
	stops  chan *statev1.StoppedRun
	end    chan error
}

// open opens a claim stream and waits until the executor is registered.
func (b *bench) open(executorID string, credits int32, held ...string) *stream {
	b.Helper()
	return b.announcing(&statev1.ClaimRunsRequest{
		ExecutorId: executorID, Agents: []*statev1.Agent{{AgentType: "support", Description: "helps"}}, HeldRunIds: held, Credits: credits,
	})
}

func (b *bench) announcing(hello *statev1.ClaimRunsRequest) *stream {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	client, err := b.work.ClaimRuns(ctx)
	b.must(err)
	s := &stream{b, client, cancel, make(chan *statev1.ClaimRunsResponse, 100), make(chan *statev1.StoppedRun, 1000), make(chan error, 1)}
	b.must(client.Send(hello))
	go func() {
		for {
			answer, err := client.Recv()
			if err != nil {
				s.end <- err
				return
			}
			if stop := answer.GetStop(); stop != nil {
				s.stops <- stop
				continue
			}
			s.got <- answer
		}
	}()
	b.eventually("the executor is registered", func() bool {
		beat, err := b.work.Heartbeat(b.Context(), &statev1.HeartbeatRequest{ExecutorId: hello.GetExecutorId()})
		b.must(err)
		return !beat.GetForgotten()
	})
	return s
}

// testTimeout is how long a test waits for an expected event. Many tests may share few
// processors.
const testTimeout = 90 * time.Second

// eventually fails the test if the condition does not become true.
func (b *bench) eventually(what string, holds func() bool) {
	b.Helper()
	deadline := time.After(testTimeout)
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for !holds() {
		select {
		case <-look.C:
		case <-deadline:
			b.Fatalf("timeout: %s", what)
		}
	}
}

// execute returns the next claim.
func (s *stream) execute() *statev1.Claim {
	s.Helper()
	claim := s.next().GetExecute()
	if claim == nil {
		s.Fatal("got no run to execute")
	}
	return claim
}

func (s *stream) next() *statev1.ClaimRunsResponse {
	s.Helper()
	select {
	case answer := <-s.got:
		return answer
	case err := <-s.end:
		s.Fatalf("the stream ended with %v", err)
	case <-time.After(testTimeout):
		s.Fatal("no claim came")
	}
	return nil
}

func refTo(c *statev1.Claim) *statev1.RunRef {
	return &statev1.RunRef{Tenant: c.GetSession().GetTenant(), SessionId: c.GetSession().GetSessionId(), RunId: c.GetRun().GetRunId(), Epoch: c.GetEpoch(), Grant: c.GetGrant()}
}

func (b *bench) finish(ref *statev1.RunRef) {
	b.Helper()
	_, err := b.work.FinishRun(b.Context(), &statev1.FinishRunRequest{Run: ref, Outcome: &statev1.Outcome{Status: statev1.RunStatus_RUN_STATUS_COMPLETED}})
	b.must(err)
}
