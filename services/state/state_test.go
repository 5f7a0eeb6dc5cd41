package state_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/e2e/pgtest"
	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/process"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state"
)

// house is a running state service and its clients.
type house struct {
	*testing.T
	runs statev1.RunServiceClient
	work statev1.WorkServiceClient
	all  *grpc.ClientConn
	stop func()
}

func defaults(t *testing.T, environ ...string) state.Config {
	t.Helper()
	var c state.ProcessConfig
	if err := config.Load(&c, environ); err != nil {
		t.Fatal(err)
	}
	return c.Config
}

// run runs the service until stop is called, or the test ends.
func run(t *testing.T, c state.Config) *house {
	t.Helper()
	return runWith(t, c, state.Peers{})
}

// runWith is run with peers.
func runWith(t *testing.T, c state.Config, p state.Peers) *house {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	p.Log = log
	service, err := state.New(t.Context(), c, p)
	must(t, err)
	g, err := rpc.NewServer(rpc.ServerConfig{Log: log})
	must(t, err)
	service.Register(g)
	network := rpc.NewMemory()
	listener, err := network.Listen(t.Context(), "state")
	must(t, err)
	conn, err := rpc.Dial(network, "state", rpc.ClientConfig{})
	must(t, err)

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- process.Run(ctx, 10*time.Second,
			process.Task{Name: "serve", Run: func(ctx context.Context) error { return rpc.Serve(ctx, g, listener, time.Second) }},
			process.Task{Name: "work", Run: service.Run})
	}()
	stopped := false
	h := &house{T: t, runs: statev1.NewRunServiceClient(conn), work: statev1.NewWorkServiceClient(conn), all: conn}
	h.stop = func() {
		if stopped {
			return
		}
		stopped = true
		_ = conn.Close()
		cancel()
		must(t, <-ended)
		must(t, service.Close())
	}
	t.Cleanup(h.stop)
	return h
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("got %v, want no error", err)
	}
}

func (h *house) start(sessionID string) *statev1.StartRunResponse {
	h.Helper()
	started, err := h.runs.StartRun(h.Context(), &statev1.StartRunRequest{
		Tenant: "acme", SessionId: sessionID, AgentType: "support",
		Messages: []*eventv1.Message{{Role: eventv1.Role_ROLE_USER, Parts: []*eventv1.Part{{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{Text: "hi"}}}}}},
	})
	must(h.T, err)
	return started
}

// executor opens a claim stream and returns its claims.
func (h *house) executor(ctx context.Context, id string) <-chan *statev1.ClaimRunsResponse {
	h.Helper()
	stream, err := h.work.ClaimRuns(ctx)
	must(h.T, err)
	must(h.T, stream.Send(&statev1.ClaimRunsRequest{ExecutorId: id, Agents: []*statev1.Agent{{AgentType: "support"}}, Credits: 10}))
	claims := make(chan *statev1.ClaimRunsResponse, 10)
	go func() {
		defer close(claims)
		for {
			claim, err := stream.Recv()
			if err != nil {
				return
			}
			claims <- claim
		}
	}()
	return claims
}

// beat sends heartbeats until ctx ends.
func (h *house) beat(ctx context.Context, id string) {
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if beat, err := h.work.Heartbeat(ctx, &statev1.HeartbeatRequest{ExecutorId: id}); err == nil && beat.GetForgotten() {
				h.Errorf("executor %s was forgotten although it beats", id)
			}
		case <-ctx.Done():
			return
		}
	}
}

func TestARunOfASilentExecutorContinuesElsewhereWithinThreeSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := run(t, defaults(t, "HOLDFAST_STATE_STORE=memory"))
		defer h.stop()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		time.Sleep(time.Minute) // fake time: the service has been up for long
		silent := h.executor(ctx, "silent")
		synctest.Wait()
		h.start("s")
		first := (<-silent).GetExecute()
		began := time.Now()
		other := h.executor(ctx, "other")
		go h.beat(ctx, "other")
		second := (<-other).GetExecute()
		if took := time.Since(began); took > 3300*time.Millisecond || took < 2500*time.Millisecond {
			t.Errorf("took %v, want the 2.5 s of silence and at most a sweep more", took)
		}
		if second.GetRun().GetRunId() != first.GetRun().GetRunId() || second.GetEpoch() <= first.GetEpoch() {
			t.Errorf("got run %s with epoch %d", second.GetRun().GetRunId(), second.GetEpoch())
		}
		beat, err := h.work.Heartbeat(ctx, &statev1.HeartbeatRequest{ExecutorId: "silent"})
		if err != nil || !beat.GetForgotten() {
			t.Errorf("got %v, %v; want the silent one forgotten", beat, err)
		}
	})
}

func TestAnExecutorWithHeartbeatsKeepsItsRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := run(t, defaults(t, "HOLDFAST_STATE_STORE=memory"))
		defer h.stop()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		claims := h.executor(ctx, "steady")
		go h.beat(ctx, "steady")
		synctest.Wait()
		started := h.start("s")
		<-claims
		time.Sleep(time.Minute) // fake time
		got, err := h.runs.GetRun(ctx, &statev1.GetRunRequest{Tenant: "acme", SessionId: "s", RunId: started.GetRun().GetRunId()})
		if err != nil || got.GetRun().GetAttempt() != 1 || got.GetRun().GetStatus() != statev1.RunStatus_RUN_STATUS_RUNNING {
			t.Errorf("got %v, %v; want it running in the first attempt", got, err)
		}
	})
}

// suspend starts a run and suspends it on a client tool.
func (h *house) suspend(claims <-chan *statev1.ClaimRunsResponse, sessionID string, deadline time.Time) {
	h.Helper()
	h.start(sessionID)
	claim := (<-claims).GetExecute()
	ref := &statev1.RunRef{Tenant: "acme", SessionId: sessionID, RunId: claim.GetRun().GetRunId(), Epoch: claim.GetEpoch()}
	call := &statev1.Call{ToolCallId: "c1", ToolName: "ask", Kind: statev1.CallKind_CALL_KIND_CLIENT_TOOL}
	if !deadline.IsZero() {
		call.DeadlineAt = deadline.UnixMilli()
	}
	_, err := h.work.CommitStep(h.Context(), &statev1.CommitStepRequest{
		Run: ref, Step: 1, Messages: []*eventv1.Message{{Id: "m1", Role: eventv1.Role_ROLE_ASSISTANT}},
		Outcome: &statev1.Outcome{Status: statev1.RunStatus_RUN_STATUS_SUSPENDED_CLIENT_TOOL}, Calls: []*statev1.Call{call},
	})
	must(h.T, err)
}

func TestAnUnansweredCallContinuesItsSessionAtItsDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := run(t, defaults(t, "HOLDFAST_STATE_STORE=memory"))
		defer h.stop()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		claims := h.executor(ctx, "e1")
		go h.beat(ctx, "e1")
		synctest.Wait()
		deadline := time.Now().Add(2 * time.Minute)
		h.suspend(claims, "s", deadline)
		claim := (<-claims).GetExecute() // two minutes of fake time later
		if after := time.Since(deadline); after < 0 || after > time.Second {
			t.Errorf("continued %v after the deadline, want within a second", after)
		}
		if got := claim.GetCalls()[0].GetAnswer().GetSource(); got != statev1.AnswerSource_ANSWER_SOURCE_TIMEOUT {
			t.Errorf("got an answer of %v, want the timeout", got)
		}
	})
}

func TestAnAbandonedSuspendedSessionExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := run(t, defaults(t, "HOLDFAST_STATE_STORE=memory", "HOLDFAST_STATE_SUSPENDED_TTL=3m"))
		defer h.stop()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		claims := h.executor(ctx, "e1")
		synctest.Wait()
		h.suspend(claims, "s", time.Time{})
		status := func() statev1.SessionStatus {
			got, err := statev1.NewSessionServiceClient(h.all).GetSession(ctx, &statev1.GetSessionRequest{Tenant: "acme", SessionId: "s"})
			must(t, err)
			return got.GetSession().GetStatus()
		}
		time.Sleep(2 * time.Minute)
		if got := status(); got != statev1.SessionStatus_SESSION_STATUS_SUSPENDED_CLIENT_TOOL {
			t.Errorf("got %v, want it waiting", got)
		}
		time.Sleep(3 * time.Minute)
		if got := status(); got != statev1.SessionStatus_SESSION_STATUS_FAILED {
			t.Errorf("got %v, want it given up", got)
		}
	})
}

func TestAClaimOutlivesARestartOfTheService(t *testing.T) {
	t.Parallel()
	c := defaults(t, "HOLDFAST_STATE_STORE=sqlite", "HOLDFAST_STATE_SQLITE_PATH="+filepath.Join(t.TempDir(), "state.db"))
	before := run(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	claims := before.executor(ctx, "e1")
	for forgotten := true; forgotten; {
		beat, err := before.work.Heartbeat(ctx, &statev1.HeartbeatRequest{ExecutorId: "e1"})
		must(t, err)
		forgotten = beat.GetForgotten()
	}
	before.start("s")
	claim := (<-claims).GetExecute()
	before.stop()

	after := run(t, c)
	beat, err := after.work.Heartbeat(ctx, &statev1.HeartbeatRequest{ExecutorId: "e1", Held: &statev1.HeldRuns{RunIds: []string{claim.GetRun().GetRunId()}}})
	if err != nil || beat.GetForgotten() {
		t.Errorf("got %v, %v; want it remembered", beat, err)
	}
	_, err = after.work.RecordPlan(ctx, &statev1.RecordPlanRequest{
		Run:  &statev1.RunRef{Tenant: "acme", SessionId: "s", RunId: claim.GetRun().GetRunId(), Epoch: claim.GetEpoch()},
		Step: 1, Plan: &eventv1.Message{Id: "a1", Role: eventv1.Role_ROLE_ASSISTANT},
	})
	must(t, err)
}

func TestTheServiceRunsOnPostgres(t *testing.T) {
	t.Parallel()
	h := run(t, defaults(t, "HOLDFAST_STATE_STORE=postgres", "HOLDFAST_STATE_POSTGRES_URL="+pgtest.URL(t)))
	claims := h.executor(t.Context(), "e1")
	for forgotten := true; forgotten; {
		beat, err := h.work.Heartbeat(t.Context(), &statev1.HeartbeatRequest{ExecutorId: "e1"})
		must(t, err)
		forgotten = beat.GetForgotten()
	}
	started := h.start("s")
	claim := (<-claims).GetExecute()
	if claim.GetRun().GetRunId() != started.GetRun().GetRunId() || len(claim.GetMessages()) != 1 {
		t.Errorf("got %v", claim)
	}
}

func TestAStopOfOneReplicaIsReportedByAnother(t *testing.T) {
	t.Parallel()
	c := defaults(t, "HOLDFAST_STATE_STORE=postgres", "HOLDFAST_STATE_POSTGRES_URL="+pgtest.URL(t))
	here, there := run(t, c), run(t, c)
	claims := here.executor(t.Context(), "e1")
	for forgotten := true; forgotten; {
		beat, err := here.work.Heartbeat(t.Context(), &statev1.HeartbeatRequest{ExecutorId: "e1"})
		must(t, err)
		forgotten = beat.GetForgotten()
	}
	started := there.start("s")
	<-claims
	_, err := there.runs.RequestStop(t.Context(), &statev1.RequestStopRequest{Tenant: "acme", SessionId: "s", Kind: statev1.StopKind_STOP_KIND_ABORT})
	must(t, err)
	if got := (<-claims).GetStop(); got.GetRunId() != started.GetRun().GetRunId() || got.GetStop().GetKind() != statev1.StopKind_STOP_KIND_ABORT {
		t.Errorf("got %v, want the abort", got)
	}
}

func TestAWrongConfigurationIsRefused(t *testing.T) {
	t.Parallel()
	for _, environ := range [][]string{
		{"HOLDFAST_STATE_STORE=oracle"},
		{"HOLDFAST_STATE_STORE=postgres"},
		{"HOLDFAST_STATE_STORE=memory", "HOLDFAST_STATE_SILENT_AFTER=0s"},
		{"HOLDFAST_STATE_STORE=memory", "HOLDFAST_STATE_BROKEN_AFTER=-1s"},
		{"HOLDFAST_STATE_STORE=memory", "HOLDFAST_STATE_EXPIRE_EVERY=0s"},
		{"HOLDFAST_STATE_STORE=memory", "HOLDFAST_STATE_MAX_FAMILY=0"},
		{"HOLDFAST_STATE_STORE=memory", "HOLDFAST_STATE_MAX_WAITING=0"},
		{"HOLDFAST_STATE_STORE=memory", "HOLDFAST_STATE_STOP_POLL=0s"},
		{"HOLDFAST_STATE_STORE=memory", "HOLDFAST_STATE_MAX_CALLS=-1"},
		{"HOLDFAST_STATE_STORE=memory", "HOLDFAST_STATE_SUSPENDED_TTL=-1s"},
		{"HOLDFAST_STATE_STORE=memory", "HOLDFAST_STATE_BATCH=0"},
		{"HOLDFAST_STATE_STORE=memory", "HOLDFAST_STATE_FILES=floppy"},
		{"HOLDFAST_STATE_STORE=memory", "HOLDFAST_STATE_FILES=folder"},
		{"HOLDFAST_STATE_STORE=memory", "HOLDFAST_STATE_FILES=s3"},
		{"HOLDFAST_STATE_STORE=memory", "HOLDFAST_STATE_MAX_FILE_BYTES=0"},
		{"HOLDFAST_STATE_STORE=memory", "HOLDFAST_STATE_FILE_GRACE=0s"},
		{"HOLDFAST_STATE_STORE=postgres", "HOLDFAST_STATE_POSTGRES_URL=postgres://x", "HOLDFAST_STATE_POSTGRES_CONNECTIONS=0"},
	} {
		_, err := state.New(t.Context(), defaults(t, environ...), state.Peers{})
		if fault.ReasonOf(err) != "CONFIG_INVALID" {
			t.Errorf("%v: got %v, want CONFIG_INVALID", environ, err)
		}
	}
}

func TestAnUnreachableDatabaseFailsInTime(t *testing.T) {
	t.Parallel()
	c := defaults(t, "HOLDFAST_STATE_STORE=postgres", "HOLDFAST_STATE_POSTGRES_URL=postgres://nobody@127.0.0.1:1/none", "HOLDFAST_STATE_OPEN_WITHIN=150ms")
	_, err := state.New(t.Context(), c, state.Peers{Log: slog.New(slog.DiscardHandler)})
	if fault.ReasonOf(err) != "STORE_UNAVAILABLE" {
		t.Errorf("got %v, want STORE_UNAVAILABLE", err)
	}
}

func TestEveryVariableIsExplained(t *testing.T) {
	t.Parallel()
	variables := config.Variables(state.ProcessConfig{})
	if len(variables) < 10 {
		t.Errorf("got %d variables", len(variables))
	}
	for _, v := range variables {
		if v.Doc == "" {
			t.Errorf("%s has no doc", v.Name)
		}
	}
}
