package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

func TestAClaimTakesACredit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.open("e1", 1)
	for _, id := range []string{"a", "b", "c"} {
		b.start(id)
	}
	s.execute()
	b.must(s.Send(&statev1.ClaimRunsRequest{Credits: 1}))
	s.execute()
	for _, id := range []string{"a", "b", "c"} {
		if got, err := b.sessions.GetSession(t.Context(), &statev1.GetSessionRequest{Tenant: "acme", SessionId: id}); err != nil {
			t.Fatal(err)
		} else if queued := got.GetCurrentRun().GetStatus() == statev1.RunStatus_RUN_STATUS_QUEUED; queued != (id == "c") {
			t.Errorf("run of session %s: got queued %v; two credits are for a and b", id, queued)
		}
	}
	b.must(s.Send(&statev1.ClaimRunsRequest{Credits: 5}))
	s.execute()
}

func TestAStartWakesAWaitingStreamWithoutThePoll(t *testing.T) {
	t.Parallel()
	b := newBench(t) // polls once an hour
	s := b.open("e1", 10)
	for _, id := range []string{"a", "b", "c"} {
		started := b.start(id)
		claim := s.execute()
		if claim.GetRun().GetRunId() != started.GetRun().GetRunId() || claim.GetEpoch() != 1 {
			t.Errorf("got run %s with epoch %d, want %s with 1", claim.GetRun().GetRunId(), claim.GetEpoch(), started.GetRun().GetRunId())
		}
	}
}

func TestThePollFindsUnsignaledRuns(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.Scheduler.Poll = time.Millisecond })
	other := b.replica()
	s := b.open("e1", 1)
	if _, err := other.runs.StartRun(t.Context(), startOf("a")); err != nil {
		t.Fatal(err)
	}
	s.execute()
}

func TestWorkSpreadsOverWaitingExecutors(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first, second := b.open("e1", 10), b.open("e2", 10)
	b.waitUntilIdle("e1", "e2")
	for _, id := range []string{"a", "b", "c", "d"} {
		b.start(id)
		b.eventually("the run is claimed", func() bool {
			got, err := b.sessions.GetSession(t.Context(), &statev1.GetSessionRequest{Tenant: "acme", SessionId: id})
			b.must(err)
			return got.GetCurrentRun().GetStatus() == statev1.RunStatus_RUN_STATUS_RUNNING
		})
	}
	first.execute()
	second.execute()
}

func TestAReleaseWakesAnotherExecutor(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	first := b.open("e1", 1)
	b.start("a")
	claim := first.execute()
	second := b.open("e2", 1)
	_, err := b.work.ReleaseRun(t.Context(), &statev1.ReleaseRunRequest{Run: refTo(claim)})
	b.must(err)
	if again := second.execute(); again.GetRun().GetRunId() != claim.GetRun().GetRunId() || again.GetEpoch() != 2 || again.GetRun().GetAttempt() != 2 {
		t.Errorf("got %v, want the released run with epoch 2", again)
	}
}

func TestAStreamThatBreaksLosesNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.open("e1", 10)
	b.start("received")
	kept := s.execute().GetRun().GetRunId()
	b.start("lost")
	lost := s.execute().GetRun().GetRunId() // the client drops it, as if it had not arrived
	s.cancel()
	b.eventually("the stream has ended", func() bool { return len(b.server.scheduler.Connected()) == 0 })
	again := b.open("e1", 10, kept)
	claim := again.execute()
	if claim.GetRun().GetRunId() != lost || claim.GetEpoch() != 2 {
		t.Errorf("got run %s with epoch %d, want the lost one, %s, with 2", claim.GetRun().GetRunId(), claim.GetEpoch(), lost)
	}
	held, err := b.runs.GetRun(t.Context(), &statev1.GetRunRequest{Tenant: "acme", SessionId: "received", RunId: kept})
	if err != nil || held.GetRun().GetAttempt() != 1 {
		t.Errorf("the run that is held was claimed %d times, %v; want once", held.GetRun().GetAttempt(), err)
	}
}

// unwritableStream is a claim stream with one request. Sending on it fails.
type unwritableStream struct {
	grpc.BidiStreamingServer[statev1.ClaimRunsRequest, statev1.ClaimRunsResponse]
	*bench
	hello chan *statev1.ClaimRunsRequest
	sends int
}

func (b *bench) unwritable(executorID string, credits int32) *unwritableStream {
	d := &unwritableStream{bench: b, hello: make(chan *statev1.ClaimRunsRequest, 1)}
	d.hello <- &statev1.ClaimRunsRequest{ExecutorId: executorID, Agents: []*statev1.Agent{{AgentType: "support"}}, Credits: credits}
	return d
}

// Context implements grpc.ServerStream.
func (d *unwritableStream) Context() context.Context { return d.bench.Context() }

func (d *unwritableStream) Recv() (*statev1.ClaimRunsRequest, error) {
	select {
	case r := <-d.hello:
		return r, nil
	case <-d.Context().Done():
		return nil, io.EOF
	}
}

func (d *unwritableStream) Send(*statev1.ClaimRunsResponse) error {
	d.sends++
	return errors.New("broken pipe")
}

func TestAClaimThatCannotBeSentIsReleased(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.announce()
	for _, id := range []string{"a", "b"} {
		b.start(id)
	}
	d := b.unwritable("announcer", 5)
	if err := b.server.work.ClaimRuns(d); err == nil || err.Error() != "broken pipe" || d.sends != 1 {
		t.Errorf("got %v after %d sends, want the stream's error after 1", err, d.sends)
	}
	s := b.open("e2", 5)
	for range 2 {
		if claim := s.execute(); claim.GetEpoch() != 2 {
			t.Errorf("got epoch %d, want 2", claim.GetEpoch())
		}
	}
}

func TestAHeartbeatRequeuesClaimsNeitherHeldNorFresh(t *testing.T) {
	t.Parallel()
	for fresh, wantBack := range map[time.Duration]bool{time.Hour: false, -time.Hour: true} {
		b := newBench(t, func(c *Config) { c.Scheduler.Fresh = fresh })
		s := b.open("e1", 1)
		b.start("a")
		claim := s.execute()
		for _, held := range [][]string{{claim.GetRun().GetRunId(), "another"}, nil} {
			_, err := b.work.Heartbeat(t.Context(), &statev1.HeartbeatRequest{ExecutorId: "e1", Held: &statev1.HeldRuns{RunIds: held}})
			b.must(err)
			run, err := b.runs.GetRun(t.Context(), &statev1.GetRunRequest{Tenant: "acme", SessionId: "a", RunId: claim.GetRun().GetRunId()})
			b.must(err)
			want := wantBack && held == nil
			if back := run.GetRun().GetStatus() == statev1.RunStatus_RUN_STATUS_QUEUED; back != want {
				t.Errorf("fresh for %v, held %v: got queued %v, want %v", fresh, held, back, want)
			}
		}
	}
}

func TestAHeartbeatOfAnUnknownExecutorSaysForgotten(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	beat, err := b.work.Heartbeat(t.Context(), &statev1.HeartbeatRequest{ExecutorId: "stranger", Held: &statev1.HeldRuns{}})
	if err != nil || !beat.GetForgotten() {
		t.Errorf("got %v, %v; want forgotten", beat, err)
	}
}

func TestAClaimCarriesEverything(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(c *Config) { c.Scheduler.TailMessages = 2 })
	s := b.open("e1", 1)
	r := startOf("a")
	r.Messages = append(r.Messages, userMessage("second"), userMessage("third"))
	r.CustomState, r.Traceparent, r.Tracestate = `{"n": 1}`, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "a=b"
	_, err := b.runs.StartRun(t.Context(), r)
	b.must(err)
	claim := s.execute()
	if len(claim.GetMessages()) != 2 || claim.GetMessages()[0].GetOrdinal() != 1 {
		t.Errorf("got messages %v, want the last two", claim.GetMessages())
	}
	if claim.GetSession().GetCustomState() != r.CustomState || claim.GetRun().GetTraceparent() != r.Traceparent || claim.GetRun().GetTracestate() != r.Tracestate {
		t.Errorf("got session %v, run %v", claim.GetSession(), claim.GetRun())
	}
	if claim.GetJournal().GetStep() != 0 || claim.GetSession().GetEpoch() != claim.GetEpoch() {
		t.Errorf("got journal %v, epoch %d", claim.GetJournal(), claim.GetEpoch())
	}
}

func TestAFirstRequestWithoutExecutorOrAgentsIsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, hello := range []*statev1.ClaimRunsRequest{
		{Agents: []*statev1.Agent{{AgentType: "support"}}},
		{ExecutorId: "e1"},
		{ExecutorId: "e1", Agents: []*statev1.Agent{{}}},
		{ExecutorId: "e1\n", Agents: []*statev1.Agent{{AgentType: "support"}}},
		{ExecutorId: "e1", Agents: []*statev1.Agent{{AgentType: "support", Description: "\x00"}}},
		{ExecutorId: "e1", Problems: []*statev1.Problem{{Kind: "tool", Text: strings.Repeat("x", 4097)}}},
		{ExecutorId: "e1", Problems: make([]*statev1.Problem, 1001)},
	} {
		client, err := b.work.ClaimRuns(t.Context())
		b.must(err)
		b.must(client.Send(hello))
		_, err = client.Recv()
		b.refuses(err, fault.Invalid, "EXECUTOR_INVALID")
	}
}

func TestTheProblemsOfExecutorsAreListedOnceForAll(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	down := &statev1.Problem{Kind: "mcpServer", Name: "s", Text: "refused"}
	odd := &statev1.Problem{Kind: "tool", Name: "s/odd", AgentType: "clerk", Text: "no type"}
	for id, problems := range map[string][]*statev1.Problem{"e1": {odd, down}, "e2": {down}} {
		client, err := b.work.ClaimRuns(t.Context())
		b.must(err)
		b.must(client.Send(&statev1.ClaimRunsRequest{ExecutorId: id, Problems: problems})) // an executor may have no agent
	}
	want := []*statev1.Problem{
		{Kind: "mcpServer", Name: "s", Text: "refused", Executors: 2},
		{Kind: "tool", Name: "s/odd", AgentType: "clerk", Text: "no type", Executors: 1},
	}
	for t.Context().Err() == nil {
		got, err := b.sessions.ListAgents(t.Context(), &statev1.ListAgentsRequest{})
		b.must(err)
		if slices.EqualFunc(got.GetProblems(), want, func(a, b *statev1.Problem) bool { return proto.Equal(a, b) }) {
			return
		}
		if len(got.GetProblems()) == 2 && got.GetProblems()[0].GetExecutors() == 2 {
			t.Fatalf("got %v, want %v", got.GetProblems(), want)
		}
	}
}

func TestStoppingEndsClaimStreams(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	waiting, idle := b.open("e1", 1), b.open("e2", 0)
	b.server.Stop()
	late := b.open("e3", 1)
	for _, s := range []*stream{waiting, idle, late} {
		b.refuses(<-s.end, fault.Unavailable, "STOPPING")
	}
}

func TestAClientThatClosesItsSideEndsTheStream(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	s := b.open("e1", 1)
	b.must(s.CloseSend())
	if err := <-s.end; !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want EOF", err)
	}
}

// The hooks of an agent may be for its sub-agents. An executor learns of the agents above from the claim: the grant of a claim
// does not reach the sessions above.
func TestAClaimNamesTheAgentsAbove(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		s := b.open("e1", 10)
		_, err := b.runs.StartRun(t.Context(), startOf("root"))
		b.must(err)
		claim := s.execute()
		for depth, want := range [][]string{nil, {"support"}, {"support", "support"}} {
			if got := claim.GetAgentsAbove(); !slices.Equal(got, want) {
				t.Errorf("at depth %d: got the agents %q above, want %q", depth, got, want)
			}
			below, call := fmt.Sprint("child", depth), fmt.Sprint("ask", depth)
			step := endingStep(refTo(claim), 1, statev1.RunStatus_RUN_STATUS_SUSPENDED_AWAITING_CHILDREN)
			step.Suspension = &statev1.Suspension{StepId: "the-step"}
			step.Calls = []*statev1.Call{{ToolCallId: call, ToolName: "agent", Kind: statev1.CallKind_CALL_KIND_SUB_AGENT, StepId: "the-step"}}
			step.NewSubSessions = []*statev1.NewSubSession{
				{SessionId: below, AgentType: "support", ToolCallId: call, Messages: startOf(below).GetMessages()},
			}
			b.commit(step)
			claim = s.execute()
		}
	})
}
