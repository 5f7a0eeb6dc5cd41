package crashmatrix_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/e2e/harness"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

const (
	// tenant is the tenant of harness.Key.
	tenant = "first"
	// caseLimit bounds one case: an executor starts, is killed and declared lost, and another one finishes.
	caseLimit = 4 * time.Minute
)

// world is shared by all cases: the surviving services, the executor that takes over, and the external system.
type world struct {
	*harness.System
	ledger  *harness.Ledger
	conn    *grpc.ClientConn
	control string // address of the executor that takes over
}

// newWorld starts everything except the victims.
func newWorld(t *testing.T, lag func() time.Duration, stateEnv []string, env ...string) *world {
	t.Helper()
	w := &world{ledger: harness.StartLedger(t, lag)}
	w.System = harness.Start(t, harness.Options{
		Executors: harness.NoExecutors, LogLevel: "warn",
		StateEnv:    append([]string{"HOLDFAST_STATE_SWEEP_EVERY=200ms"}, stateEnv...),
		ExecutorEnv: append([]string{"FAULT_LEDGER=" + w.ledger.URL, "HOLDFAST_EXECUTOR_HEARTBEAT_INTERVAL=250ms"}, env...),
	})
	w.conn = harness.DialInternal(t, w.State.Address)
	w.control = harness.FreeAddress(t)
	w.executor(t, "rescuer", "FAULT_CONTROL="+w.control, "FAULT_AGENT=text@nobody").Start()
	return w
}

// executor returns an executor for the caller to start.
func (w *world) executor(t *testing.T, name string, env ...string) *harness.Process {
	t.Helper()
	return w.Executor(t, name, harness.Binary(t, "faultexec"), env...)
}

// rescue lets the executor that takes over serve another agent.
func (w *world) rescue(ctx context.Context, agent string) error {
	address := "http://" + w.control + "/serve?agent=" + url.QueryEscape(agent)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	if err := answer.Body.Close(); err != nil || answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the executor that takes over says %s, %w", answer.Status, err)
	}
	return nil
}

// talk is one session with its victim, the executor that dies.
type talk struct {
	*testing.T
	*world
	ctx     context.Context //nolint:containedctx // a talk is one test: it ends when everything has to be over
	script  script
	session string
	victim  *harness.Process
}

// play runs the script in a session of its own, on an executor that dies as env configures, and returns the
// final snapshot.
func (w *world) play(t *testing.T, s script, session string, env ...string) (left snapshot, died bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), caseLimit)
	defer cancel()
	p := &talk{T: t, world: w, ctx: ctx, script: s, session: session}
	p.victim = w.executor(t, "victim", append(env, "FAULT_AGENT="+p.agent())...)
	p.victim.Start()
	p.victim.AllowExit()
	p.awaitAgent()
	if s.timeout == 0 {
		if err := w.Ask(ctx, session, p.agent(), session); err != nil {
			t.Fatalf("ask: %v", err)
		}
	} else {
		p.startWithin(s.timeout)
	}
	watching := harness.Reader{Client: w.Client, Session: session, Wire: harness.SSE}
	watched := make(chan error, 1)
	go func() { watched <- watching.Read(ctx) }() // received below
	rescued := make(chan error, 1)
	go func() { rescued <- p.succeed() }() // received below
	if s.drive != nil {
		s.drive(p)
	}
	left = p.await()
	if err := <-watched; err != nil {
		t.Errorf("who was there from the beginning: %v", err)
	} else if seen := p.describeStream(watching.Content.Chunks); !s.pauses && seen != left.Stream {
		t.Errorf("who was there from the beginning was told\n%sand who comes late\n%s\n%s", seen, left.Stream, watching.Dump())
	}
	cancel()
	if err := <-rescued; err != nil {
		t.Errorf("take over: %v", err)
	}
	select {
	case <-p.victim.Ended():
		died = true
	default:
	}
	return left, died
}

// succeed lets another executor take over after the victim's death.
func (p *talk) succeed() error {
	select {
	case <-p.victim.Ended():
		return p.rescue(p.ctx, p.agent())
	case <-p.ctx.Done():
		return nil
	}
}

func (p *talk) agent() string { return p.script.agent + "@" + p.session }

func (p *talk) sessions() statev1.SessionServiceClient {
	return statev1.NewSessionServiceClient(p.conn)
}

// awaitAgent waits until the victim has announced itself.
func (p *talk) awaitAgent() {
	p.Helper()
	harness.WaitFor(p, caseLimit, "the agent "+p.agent(), func() (bool, string) {
		answer, err := p.sessions().ListAgents(p.ctx, &statev1.ListAgentsRequest{})
		if err != nil {
			return false, err.Error()
		}
		for _, a := range answer.GetAgents() {
			if a.GetAgentType() == p.agent() {
				return true, ""
			}
		}
		return false, fmt.Sprint(len(answer.GetAgents()), " others")
	})
}

// look returns the session.
func (p *talk) look() *statev1.GetSessionResponse {
	p.Helper()
	got, err := p.sessions().GetSession(p.ctx, &statev1.GetSessionRequest{Tenant: tenant, SessionId: p.session})
	if err != nil {
		p.Fatalf("get the session: %v", err)
	}
	return got
}

// awaitStatus waits until the session has the status.
func (p *talk) awaitStatus(want statev1.SessionStatus) *statev1.GetSessionResponse {
	p.Helper()
	var got *statev1.GetSessionResponse
	harness.WaitFor(p, caseLimit, fmt.Sprintf("the session %s to be %v", p.session, want), func() (bool, string) {
		got = p.look()
		return got.GetSession().GetStatus() == want, got.GetSession().GetStatus().String() + " " + got.GetCurrentRun().String()
	})
	return got
}

// trace returns a file for the points that an executor passes.
func trace(t *testing.T) string { return filepath.Join(t.TempDir(), "points") }
