package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/pkg/process"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor"
	"github.com/holdfast-run/holdfast/services/gateway"
	"github.com/holdfast-run/holdfast/services/state"
	"github.com/holdfast-run/holdfast/services/stream"
)

// tenant is the tenant of a gateway without keys.
const tenant = "default"

// awaitPause is the pause between two checks of a condition.
const awaitPause = 10 * time.Millisecond

// The addresses in a bubble; the public one is for HTTP.
const (
	stateAddress  = "state"
	streamAddress = "stream"
	publicAddress = "public"
)

// bubble is the whole system under fake time: the four services on an in-memory network with in-memory stores,
// in one synctest bubble. Executors come and go.
type bubble struct {
	*testing.T
	network  *rpc.Memory
	log      *slog.Logger
	calls    statev1.CallServiceClient
	runs     statev1.RunServiceClient
	sessions statev1.SessionServiceClient
	http     *http.Client
	members  []*member
	stop     func()
	ended    sync.WaitGroup
}

// openBubble opens state, stream and gateway. Call sink before the bubble ends.
func openBubble(t *testing.T, environ ...string) *bubble {
	t.Helper()
	b := &bubble{T: t, network: rpc.NewMemory(), log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))}
	var c struct {
		State   state.Config
		Stream  stream.Config
		Gateway gateway.Config
	}
	b.must(config.Load(&c, append([]string{
		"HOLDFAST_STATE_STORE=memory", "HOLDFAST_STREAM_BUS=memory", "HOLDFAST_GATEWAY_INSECURE_NO_AUTH=true",
		// Frequent ticks would only slow down hours of fake time.
		"HOLDFAST_STATE_SILENT_AFTER=2m", "HOLDFAST_STATE_SWEEP_EVERY=1m", "HOLDFAST_STATE_CLAIM_POLL=1m",
		"HOLDFAST_STATE_STOP_POLL=1m", "HOLDFAST_STATE_EXPIRE_EVERY=1h", "HOLDFAST_STREAM_CHECK=1m",
		"HOLDFAST_GATEWAY_STATE_ADDRESS=" + stateAddress, "HOLDFAST_GATEWAY_STREAM_ADDRESS=" + streamAddress,
	}, environ...)))
	base, stopBase := context.WithCancel(t.Context())
	front, stopFront := context.WithCancel(t.Context())
	keeper, err := state.New(base, c.State, state.Peers{Log: b.log})
	b.must(err)
	log, err := stream.New(base, c.Stream, stream.Peers{Log: b.log})
	b.must(err)
	door, err := gateway.New(base, c.Gateway, gateway.Peers{Network: b.network, Log: b.log})
	b.must(err)
	public, err := b.network.Listen(base, publicAddress)
	b.must(err)
	conn, err := rpc.Dial(b.network, stateAddress, rpc.ClientConfig{})
	b.must(err)
	b.calls, b.runs, b.sessions = statev1.NewCallServiceClient(conn), statev1.NewRunServiceClient(conn), statev1.NewSessionServiceClient(conn)
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return b.network.DialContext(ctx, publicAddress)
	}}
	b.http = &http.Client{Transport: transport}
	b.work(base, "state", b.serve(stateAddress, keeper), keeper.Run)
	b.work(base, "stream", b.serve(streamAddress, log), log.Run)
	b.work(front, "gateway", door.Run, func(ctx context.Context) error { return door.Serve(ctx, public, time.Second) })
	b.stop = sync.OnceFunc(func() {
		for _, m := range b.members {
			m.stop()
			<-m.ended
		}
		transport.CloseIdleConnections()
		stopFront()
		b.must(errors.Join(door.Close(), conn.Close()))
		stopBase()
		b.ended.Wait()
		b.must(errors.Join(log.Close(), keeper.Close()))
	})
	return b
}

// inBubble runs the test with the system in a bubble.
func inBubble(t *testing.T, test func(t *testing.T, b *bubble), environ ...string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := openBubble(t, environ...)
		defer b.close()
		test(t, b)
	})
}

// close ends everything.
func (b *bubble) close() { b.stop() }

func (b *bubble) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatalf("got %v, want no error", err)
	}
}

// work runs the tasks of a service until ctx ends.
func (b *bubble) work(ctx context.Context, name string, tasks ...func(context.Context) error) {
	list := make([]process.Task, len(tasks))
	for i, run := range tasks {
		list[i] = process.Task{Name: name, Run: run}
	}
	b.ended.Go(func() {
		if err := process.Run(ctx, time.Minute, list...); err != nil && !errors.Is(err, context.Canceled) {
			b.Errorf("%s ended with %v", name, err)
		}
	})
}

func (b *bubble) serve(address string, hall interface{ Register(grpc.ServiceRegistrar) }) func(context.Context) error {
	return func(ctx context.Context) error {
		server, err := rpc.NewServer(rpc.ServerConfig{Log: b.log})
		if err != nil {
			return err
		}
		hall.Register(server)
		listener, err := b.network.Listen(ctx, address)
		if err != nil {
			return err
		}
		return rpc.Serve(ctx, server, listener, time.Second)
	}
}

// cuttableNetwork is an executor's connection to the other services. Cutting it permanently simulates a vanished machine.
type cuttableNetwork struct {
	rpc.Network

	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

func (l *cuttableNetwork) DialContext(ctx context.Context, address string) (net.Conn, error) {
	conn, err := l.Network.DialContext(ctx, address)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut {
		return nil, errors.Join(errors.New("the line is cut"), conn.Close())
	}
	l.conns = append(l.conns, conn)
	return conn, nil
}

func (l *cuttableNetwork) sever() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
	for _, conn := range slices.Concat(l.conns) {
		_ = conn.Close()
	}
}

// member is an executor in a bubble.
type member struct {
	line  *cuttableNetwork
	stop  context.CancelFunc
	ended chan struct{}
}

// vanish cuts off the executor.
func (m *member) vanish() {
	m.line.sever()
	m.stop()
}

// join starts an executor.
func (b *bubble) join(p executor.Peers, environ ...string) *member {
	b.Helper()
	var c executor.Config
	b.must(config.Load(&c, append([]string{
		"HOLDFAST_EXECUTOR_HEARTBEAT_INTERVAL=30s", "HOLDFAST_EXECUTOR_MODEL_TIMEOUT=24h",
		"HOLDFAST_EXECUTOR_STATE_ADDRESS=" + stateAddress, "HOLDFAST_EXECUTOR_STREAM_ADDRESS=" + streamAddress,
	}, environ...)))
	ctx, stop := context.WithCancel(b.Context())
	m := &member{line: &cuttableNetwork{Network: b.network}, stop: stop, ended: make(chan struct{})}
	p.Network, p.Log = m.line, b.log
	service, err := executor.New(ctx, c, p)
	b.must(err)
	b.members = append(b.members, m)
	b.ended.Go(func() {
		defer close(m.ended)
		if err := service.Run(ctx); err != nil {
			b.Errorf("an executor ended with %v", err)
		}
		_ = service.Close() // its connections may be cut
	})
	return m
}

// start starts a run of the agent with a message.
func (b *bubble) start(sessionID, agentType, text string) *statev1.Run {
	b.Helper()
	answer, err := b.runs.StartRun(b.Context(), &statev1.StartRunRequest{
		Tenant: tenant, SessionId: sessionID, AgentType: agentType, Messages: []*eventv1.Message{says(text)},
	})
	b.must(err)
	return answer.GetRun()
}

func says(text string) *eventv1.Message {
	return &eventv1.Message{Role: eventv1.Role_ROLE_USER, Parts: []*eventv1.Part{
		{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{Text: text}}},
	}}
}

// await waits until the session's newest run has the status. Its reads are a second apart, and half a minute after
// the first two minutes, because hours of reads take long under the race detector.
func (b *bubble) await(sessionID string, status statev1.RunStatus) *statev1.GetSessionResponse {
	b.Helper()
	begun := time.Now() // fake
	for {
		answer, err := b.sessions.GetSession(b.Context(), &statev1.GetSessionRequest{Tenant: tenant, SessionId: sessionID})
		b.must(err)
		run, waited := answer.GetCurrentRun(), time.Since(begun)
		if run.GetStatus() == status {
			return answer
		}
		if run.GetCompletedAt() > 0 && len(answer.GetWaiting()) == 0 || waited > 24*time.Hour {
			b.Fatalf("session %s: the run is %v (%v), want %v", sessionID, run.GetStatus(), run.GetFailure(), status)
		}
		pause := time.Second
		if waited > 2*time.Minute {
			pause = 30 * time.Second
		}
		time.Sleep(pause) // fake
	}
}

// conversation returns the messages of the session as role and text.
func (b *bubble) conversation(sessionID string) []string {
	b.Helper()
	answer, err := b.sessions.ListMessages(b.Context(), &statev1.ListMessagesRequest{Tenant: tenant, SessionId: sessionID, Limit: 200})
	b.must(err)
	var lines []string
	for _, m := range answer.GetMessages() {
		for _, p := range m.GetMessage().GetParts() {
			lines = append(lines, spoken(m.GetMessage().GetRole(), p))
		}
	}
	return lines
}

func spoken(role eventv1.Role, p *eventv1.Part) string {
	switch part := p.GetPart().(type) {
	case *eventv1.Part_Text:
		if role == eventv1.Role_ROLE_USER {
			return "user: " + part.Text.GetText()
		}
		return "agent: " + part.Text.GetText()
	case *eventv1.Part_ToolCall:
		return "call: " + part.ToolCall.GetToolName()
	case *eventv1.Part_ToolResult:
		if !part.ToolResult.GetSuccess() {
			return "failed: " + part.ToolResult.GetError()
		}
		return "result: " + part.ToolResult.GetResult()
	}
	return "?"
}

// current returns the id of the session's newest run.
func (b *bubble) current(sessionID string) string {
	b.Helper()
	answer, err := b.sessions.GetSession(b.Context(), &statev1.GetSessionRequest{Tenant: tenant, SessionId: sessionID})
	b.must(err)
	return answer.GetCurrentRun().GetRunId()
}
