package executor_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// The limits of the provider in limitsFile.
const (
	limitedCalls    = 3
	limitedRequests = 14
)

func limitsFile(url string) string {
	return fmt.Sprintf(`
models:
  openai:
    baseURL: %s/v1
    apiKeyEnv: FAKE_KEY
    limits: {requestsPerMinute: %d}
    modelLimits: {fake: {concurrency: %d}}
agents:
  - {name: openai, model: openai/fake}
`, url, limitedRequests, limitedCalls)
}

// inProgress counts the calls in progress at a provider.
type inProgress struct {
	mu        sync.Mutex
	now, most int
	begins    []time.Time
}

func (c *inProgress) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now += n
	c.most = max(c.most, c.now)
	if n > 0 {
		c.begins = append(c.begins, time.Now())
	}
}

func (c *inProgress) current() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// check checks that the calls have kept the limits. Clocks of the provider and of the services are the same.
func (c *inProgress) check(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.most > limitedCalls {
		t.Errorf("%d calls were in progress at once, want at most %d", c.most, limitedCalls)
	}
	for i, begin := range c.begins {
		minute := slices.IndexFunc(c.begins[i:], func(at time.Time) bool { return at.Sub(begin) >= time.Minute })
		if minute < 0 {
			minute = len(c.begins) - i
		}
		if minute > limitedRequests {
			t.Errorf("a minute has %d calls, want at most %d", minute, limitedRequests)
		}
	}
	t.Logf("%d calls, at most %d at once", len(c.begins), c.most)
}

// startLimited starts two executors, each with its own state replica.
func startLimited(t *testing.T, agents string, env ...string) (s *harness.System, executors []*harness.Process) {
	t.Helper()
	s = harness.Start(t, harness.Options{Agents: agents, States: 2, StateEnv: env, ExecutorEnv: []string{fakeKey}})
	file := filepath.Join(t.TempDir(), "agents.yaml")
	if err := os.WriteFile(file, []byte(agents), 0o600); err != nil {
		t.Fatal(err)
	}
	other := s.Executor(t, "executor-2", harness.Binary(t, "executor"), "HOLDFAST_EXECUTOR_AGENTS="+file, "HOLDFAST_EXECUTOR_STATE_ADDRESS="+s.States[1].Address)
	other.Start()
	return s, append(s.Executors, other)
}

// awaitStep waits until the first step has begun: the next act of the run is its model call.
func awaitStep(s *harness.UIStream) {
	s.Until("the step begins", func(m harness.UIMessage) bool { return len(m.Parts) > 0 })
}

func TestTheLeasesOfKilledExecutorsComeBack(t *testing.T) {
	t.Parallel()
	var calls inProgress
	var p *harness.Provider
	p = harness.StartProvider(t, func(s *harness.Speech) {
		calls.add(1)
		defer calls.add(-1)
		if len(p.Requests(s.LastUser())) == 1 && strings.HasPrefix(s.LastUser(), "hang") {
			s.Hang(hangLimit)
			return
		}
		s.Text("done")
		s.End()
	})
	s, executors := startLimited(t, limitsFile(p.URL))
	var sessions []string
	begin := func(kind string, n int) {
		for i := range n {
			session := fmt.Sprint(kind, i)
			sessions = append(sessions, session)
			awaitStep(s.Chat(t, session, "openai", session))
		}
	}
	begin("hang", limitedCalls)
	harness.WaitFor(t, hangLimit, "the calls that hang", func() (bool, string) { return calls.current() == limitedCalls, fmt.Sprint(calls.current()) })
	begin("wait", 3)
	for _, e := range executors {
		e.Kill()
		e.Start()
	}
	for _, session := range sessions {
		s.WaitStatus(t, session, "completed")
	}
	calls.check(t)
}

func TestARunThatWaitsForALimitIsStoppedAtOnce(t *testing.T) {
	t.Parallel()
	var calls inProgress
	p := harness.StartProvider(t, func(s *harness.Speech) {
		calls.add(1)
		defer calls.add(-1)
		s.Text("done")
		s.End()
	})
	s, _ := startLimited(t, limitsFile(p.URL), harness.PatientState)
	for i := range limitedRequests {
		session := fmt.Sprint("s", i)
		if got := s.Chat(t, session, "openai", session).ReadAll().Text(); got != "done" {
			t.Fatalf("the answer is %q, want \"done\"", got)
		}
	}
	began := time.Now()
	for i := range 4 {
		session := fmt.Sprint("waits", i)
		awaitStep(s.Chat(t, session, "openai", session))
		stop(t, s.Client, session, "interrupt")
		s.WaitStatus(t, session, "interrupted")
	}
	t.Logf("the stops took %v", time.Since(began))
	calls.check(t)
}
