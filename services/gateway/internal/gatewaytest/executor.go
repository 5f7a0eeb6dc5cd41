package gatewaytest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
)

// credits is the number of runs that the executor can claim, more than any test starts.
const credits = 100_000

// executor claims every run as soon as it is queued, and does nothing else by itself.
type executor struct {
	work     statev1.WorkServiceClient
	sessions statev1.SessionServiceClient
	stream   streamv2.StreamServiceClient

	announced int
	streams   []func() // end the claim streams

	mu      sync.Mutex
	claims  map[string]*statev1.Claim // the newest of each session
	changed chan struct{}             // closed and replaced at every claim
}

func newExecutor(direct *grpc.ClientConn) *executor {
	return &executor{
		work: statev1.NewWorkServiceClient(
			direct,
		), sessions: statev1.NewSessionServiceClient(direct), stream: streamv2.NewStreamServiceClient(direct),
		claims: map[string]*statev1.Claim{}, changed: make(chan struct{}),
	}
}

func sessionKey(tenant, session string) string { return tenant + "\x00" + session }

// announce replaces the claim stream by one for the agents.
func (e *executor) announce(t testing.TB, agents ...*statev1.Agent) {
	t.Helper()
	e.close()
	ctx, cancel := context.WithCancel(context.Background())
	calls, err := e.work.ClaimRuns(ctx)
	if err != nil {
		t.Fatal(err)
	}
	e.announced++
	err = calls.Send(&statev1.ClaimRunsRequest{ExecutorId: fmt.Sprint("executor-", e.announced), Agents: agents, Credits: credits})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			r, err := calls.Recv()
			if err != nil {
				return
			}
			if claim := r.GetExecute(); claim != nil {
				e.take(claim)
			}
		}
	}()
	e.streams = append(e.streams, func() {
		cancel()
		<-ended
	})
	e.known(t, agents)
}

// known waits until the service has the agents as announced.
func (e *executor) known(t testing.TB, agents []*statev1.Agent) {
	t.Helper()
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		list, err := e.sessions.ListAgents(t.Context(), &statev1.ListAgentsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		unknown := slices.ContainsFunc(agents, func(a *statev1.Agent) bool {
			return !slices.ContainsFunc(list.GetAgents(), func(b *statev1.Agent) bool { return proto.Equal(a, b) })
		})
		if !unknown {
			return
		}
	}
	t.Fatalf("the agents %v are not known", agents)
}

func (e *executor) close() {
	for _, end := range e.streams {
		end()
	}
	e.streams = nil
}

func (e *executor) take(claim *statev1.Claim) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.claims[sessionKey(claim.GetSession().GetTenant(), claim.GetSession().GetSessionId())] = claim
	close(e.changed)
	e.changed = make(chan struct{})
}

// await waits for the claim of a run of the session other than former.
func (e *executor) await(t testing.TB, tenant, session string, former *Run) *statev1.Claim {
	t.Helper()
	return e.awaitClaim(t, tenant, session, func(claim *statev1.Claim) bool {
		return former == nil || claim.GetRun().GetRunId() != former.GetRunId()
	})
}

func (e *executor) awaitClaim(t testing.TB, tenant, session string, is func(*statev1.Claim) bool) *statev1.Claim {
	t.Helper()
	deadline := time.NewTimer(Patience)
	defer deadline.Stop()
	for {
		e.mu.Lock()
		claim, changed := e.claims[sessionKey(tenant, session)], e.changed
		e.mu.Unlock()
		if claim != nil && is(claim) {
			return claim
		}
		select {
		case <-changed:
		case <-deadline.C:
			t.Fatalf("no run of %q has started", session)
		}
	}
}
