package bench_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/e2e/harness"
	"github.com/holdfast-run/holdfast/e2e/pgtest"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

const (
	commitWindow = 3 * time.Second
	commitConns  = 4       // gRPC connections of all clients together
	bodyBytes    = 400     // in each of a step's two messages
	benchTenant  = "first" // the one of harness.Key
	benchAgent   = "bench"
)

// commitClients are the numbers of concurrently committing sessions.
var commitClients = []int{1, 16, 64, 256, 1000}

func BenchmarkStateCommits(b *testing.B) {
	for b.Loop() {
		fmt.Printf("\nStep commits through gRPC, beside one transaction a commit of the same rows (two messages of %d bytes,\n", bodyBytes)
		fmt.Print("session, run, checkpoint, usage): a round trip a statement, and all statements in one round trip.\n")
		url := pgtest.URL(b)
		raw := newRawStore(b, pgtest.URL(b))
		s := startState(b, "HOLDFAST_STATE_STORE=postgres", "HOLDFAST_STATE_POSTGRES_URL="+url)
		for _, n := range commitClients {
			compare(b, "Postgres", n, s.commits(b, n), raw.commits(b, n, raw.statements), raw.commits(b, n, raw.pipelined))
		}
		dir := b.TempDir()
		lite := startState(b, "HOLDFAST_STATE_STORE=sqlite", "HOLDFAST_STATE_SQLITE_PATH="+filepath.Join(dir, "state.db"))
		rawLite := newRawLite(b, filepath.Join(dir, "raw.db"))
		for _, n := range commitClients {
			compare(b, "SQLite", n, lite.commits(b, n), rawLite.commits(b, n), nil)
		}
	}
}

// measured is the result of clients that commit as fast as they can.
type measured struct {
	rate float64 // a second
	p50  time.Duration
}

func compare(b *testing.B, store string, n int, got, raw, pipelined *measured) {
	line := fmt.Sprintf("%-8s %4d sessions: %7.0f commits/s, p50 %8s | raw %7.0f/s, p50 %8s: %.2fx rate, %.2fx latency",
		store, n, got.rate, got.p50, raw.rate, raw.p50, got.rate/raw.rate, float64(got.p50)/float64(raw.p50))
	if pipelined != nil {
		line += fmt.Sprintf(" | one round trip %7.0f/s, p50 %7s: %.2fx, %.2fx", pipelined.rate, pipelined.p50, got.rate/pipelined.rate, float64(got.p50)/float64(pipelined.p50))
	}
	fmt.Println(line)
	b.ReportMetric(got.rate/raw.rate, fmt.Sprintf("x-raw-%s-%d", strings.ToLower(store), n))
}

// stateUnderTest is a state service in its own process, with clients.
type stateUnderTest struct {
	*harness.Process
	conns []*grpc.ClientConn
	claim statev1.WorkService_ClaimRunsClient
	round int
}

func startState(b *testing.B, env ...string) *stateUnderTest {
	b.Helper()
	// No executor is declared dead in a benchmark.
	p := harness.StartStates(b, 1, append(env, "HOLDFAST_STATE_SILENT_AFTER=1h", "HOLDFAST_STATE_CLAIM_POLL=20ms")...)[0]
	s := &stateUnderTest{Process: p}
	for range commitConns {
		s.conns = append(s.conns, harness.DialInternal(b, p.Address))
	}
	var err error
	if s.claim, err = s.work(0).ClaimRuns(b.Context()); err != nil {
		b.Fatal(err)
	}
	if err := s.claim.Send(&statev1.ClaimRunsRequest{ExecutorId: "bench", Agents: []*statev1.Agent{{AgentType: benchAgent}}}); err != nil {
		b.Fatal(err)
	}
	harness.WaitFor(b, 10*time.Second, "the agent to be known", func() (bool, string) {
		answer, err := s.sessions(0).ListAgents(b.Context(), &statev1.ListAgentsRequest{})
		return len(answer.GetAgents()) > 0, fmt.Sprint(err)
	})
	return s
}

func (s *stateUnderTest) work(i int) statev1.WorkServiceClient {
	return statev1.NewWorkServiceClient(s.conns[i%len(s.conns)])
}

func (s *stateUnderTest) sessions(i int) statev1.SessionServiceClient {
	return statev1.NewSessionServiceClient(s.conns[i%len(s.conns)])
}

func (s *stateUnderTest) runs(i int) statev1.RunServiceClient {
	return statev1.NewRunServiceClient(s.conns[i%len(s.conns)])
}

func userMessage(id string) []*eventv1.Message {
	return []*eventv1.Message{{Id: id, Role: eventv1.Role_ROLE_USER, Parts: []*eventv1.Part{textPart("Go on.")}}}
}

func textPart(text string) *eventv1.Part {
	return &eventv1.Part{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{Text: text}}}
}

// live starts and claims n runs, each in its own session.
func (s *stateUnderTest) live(b *testing.B, n int, state string) []*statev1.RunRef {
	b.Helper()
	s.round++
	var wg sync.WaitGroup
	for worker := range min(n, 32) {
		wg.Go(func() {
			for i := worker; i < n; i += 32 {
				_, err := s.runs(i).StartRun(b.Context(), &statev1.StartRunRequest{
					Tenant: benchTenant, SessionId: fmt.Sprintf("live-%d-%d", s.round, i), AgentType: benchAgent,
					Messages: userMessage("u"), CustomState: state, UserId: fmt.Sprint("user-", i%100), Tags: []string{"bench"},
				})
				if err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if err := s.claim.Send(&statev1.ClaimRunsRequest{Credits: int32(n)}); err != nil {
		b.Fatal(err)
	}
	refs := make([]*statev1.RunRef, n)
	for i := range refs {
		work, err := s.claim.Recv()
		if err != nil {
			b.Fatal(err)
		}
		c := work.GetExecute()
		refs[i] = &statev1.RunRef{Tenant: benchTenant, SessionId: c.GetSession().GetSessionId(), RunId: c.GetRun().GetRunId(), Epoch: c.GetEpoch()}
	}
	return refs
}

var body = strings.Repeat("x", bodyBytes)

// step is the commit of an ordinary step: a reply and a tool result.
func step(ref *statev1.RunRef, n int32) *statev1.CommitStepRequest {
	return &statev1.CommitStepRequest{
		Run: ref, Step: n,
		Messages: []*eventv1.Message{
			{Id: fmt.Sprint("a", n), Role: eventv1.Role_ROLE_ASSISTANT, Parts: []*eventv1.Part{textPart(body)}},
			{Id: fmt.Sprint("t", n), Role: eventv1.Role_ROLE_TOOL, Parts: []*eventv1.Part{textPart(body)}},
		},
		Usage: []*eventv1.UsageEntry{{Entry: &eventv1.UsageEntry_Tokens{Tokens: &eventv1.TokenUsage{Model: "m", PromptTokens: 10, CompletionTokens: 5, TotalTokens: 15}}}},
	}
}

func (s *stateUnderTest) commits(b *testing.B, n int) *measured {
	b.Helper()
	refs := s.live(b, n, "")
	steps := make([]int32, n)
	return measure(b, n, func(ctx context.Context, client int) error {
		steps[client]++
		_, err := s.work(client).CommitStep(ctx, step(refs[client], steps[client]))
		return err
	})
}

// measure lets n clients call do in sequence until the window closes.
func measure(b *testing.B, n int, do func(ctx context.Context, client int) error) *measured {
	b.Helper()
	const sampled = 1 << 16 // retained times of a window
	times := make([]time.Duration, sampled)
	var calls atomic.Int64
	var wg sync.WaitGroup
	begin := time.Now()
	for client := range n {
		wg.Go(func() {
			for time.Since(begin) < commitWindow {
				at := time.Now()
				if err := do(b.Context(), client); err != nil {
					b.Error(err)
					return
				}
				times[(calls.Add(1)-1)%sampled] = time.Since(at)
			}
		})
	}
	wg.Wait()
	kept := times[:min(calls.Load(), sampled)]
	slices.Sort(kept)
	return &measured{float64(calls.Load()) / time.Since(begin).Seconds(), quantile(kept, 0.5)}
}
