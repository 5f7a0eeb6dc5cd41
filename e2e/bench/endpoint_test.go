package bench_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/endpointapp"
	"github.com/holdfast-run/holdfast/e2e/harness"
	"github.com/holdfast-run/holdfast/pkg/client"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
)

// The load of BenchmarkEndpoint.
const (
	callsOfRun    = 20
	endpointRuns  = 8 // at a time
	endpointBatch = 6 * time.Second
)

// BenchmarkEndpoint measures what a call of a tool costs at an endpoint, beside the same tool in Go: processor time of the
// executor, and the time from the model's reply to its next request. The tool returns at once. The application and the model are
// in the process of the benchmark.
func BenchmarkEndpoint(b *testing.B) {
	for b.Loop() {
		fmt.Printf("\nCalls of a tool, %d in each run, %d runs at a time:\n", callsOfRun, endpointRuns)
		m := startCaller(b)
		for _, where := range []struct {
			name  string
			start func(*harness.Served) *harness.Process
		}{
			{"in Go", func(s *harness.Served) *harness.Process {
				return s.Join("goapp", harness.Program(b, "e2e/endpoint/testdata/goapp"), nil, "MODEL_URL="+m.URL+"/v1")
			}},
			{"at an endpoint", func(s *harness.Served) *harness.Process {
				return s.Join("executor", harness.Binary(b, "holdfast"), []string{"serve", "--services", "executor"},
					"HOLDFAST_EXECUTOR_AGENTS="+modelsFile(b, m.URL), "HOLDFAST_EXECUTOR_ENDPOINTS="+startBareApp(b))
			}},
		} {
			s := harness.Serve(b, []string{"state", "stream", "gateway"}, "HOLDFAST_LOG_LEVEL=warn")
			p := where.start(s)
			p.Start()
			s.WaitAgent(b, "bare")
			m.measure(b, where.name, client.New(client.Config{URL: s.URL, Key: harness.Key}), p)
			p.Stop(harness.StopLimit)
			s.Stop(harness.StopLimit)
		}
	}
}

// caller is a model that calls the tool act in each of its first replies.
type caller struct {
	*harness.Provider

	mu      sync.Mutex
	replied map[string]time.Time // the last reply, by session
	took    []time.Duration
}

func startCaller(b *testing.B) *caller {
	m := &caller{replied: map[string]time.Time{}}
	m.Provider = harness.StartProvider(b, func(s *harness.Speech) {
		session, replies := s.LastUser(), 0
		messages, _ := s.Body["messages"].([]any)
		for _, message := range messages {
			if one, _ := message.(map[string]any); one["role"] == "assistant" {
				replies++
			}
		}
		m.mu.Lock()
		if before, ok := m.replied[session]; ok {
			m.took = append(m.took, time.Since(before))
		}
		m.mu.Unlock()
		if replies == callsOfRun {
			s.Text("done")
		} else {
			s.Call(fmt.Sprint("call_", replies), "act", `{"do": []}`)
		}
		s.End()
		m.mu.Lock()
		m.replied[session] = time.Now()
		m.mu.Unlock()
	})
	return m
}

// measure prints the cost of a call.
func (m *caller) measure(b *testing.B, name string, agents *client.Client, p *harness.Process) {
	b.Helper()
	batch := 0
	run := func(window time.Duration) (calls int) {
		for begin := time.Now(); time.Since(begin) < window; batch++ {
			err := each(endpointRuns, func(i int) error {
				session := fmt.Sprintf("%s %d %d", name, batch, i)
				_, err := agents.Ask(b.Context(), &agentv1.StartRequest{SessionId: session, AgentType: "bare", Message: session})
				return err
			})
			if err != nil {
				b.Fatal(err)
			}
			calls += endpointRuns * callsOfRun
		}
		return calls
	}
	run(warmUp)
	m.mu.Lock()
	m.took = nil
	m.mu.Unlock()
	before := p.CPU()
	calls := run(endpointBatch)
	used := p.CPU() - before
	m.mu.Lock()
	defer m.mu.Unlock()
	slices.Sort(m.took)
	fmt.Printf("%-15s %6d calls; executor %.3f ms of processor time a call; from reply to reply p50 %v, p99 %v\n",
		name+":", calls, ms(used)/float64(calls), quantile(m.took, 0.5), quantile(m.took, 0.99))
}

// modelsFile names the model in the process of the benchmark.
func modelsFile(b *testing.B, url string) string {
	b.Helper()
	file := filepath.Join(b.TempDir(), "models.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, "models:\n  suite: {provider: openai, baseURL: %q}\n", url+"/v1"), 0o600); err != nil {
		b.Fatal(err)
	}
	return file
}

// startBareApp starts an application whose tool does nothing, and returns its URL.
func startBareApp(b *testing.B) string {
	b.Helper()
	app := &endpointapp.App{Unsigned: true}
	app.Handle("tool/act", func(context.Context, *endpointapp.Call) (any, error) { return "done", nil })
	app.Describe(`{"endpoint": 1, "agents": [{"name": "bare", "model": "suite/model", "tools": [{
		"name": "act", "description": "Does what it is told.", "callbacks": ["execute"], "inputSchema": {
			"type": "object",
			"properties": {"do": {"type": "array", "items": {"type": "object"}}, "amount": {"type": "number"}},
			"required": ["do"],
			"additionalProperties": false
		}
	}]}]}`)
	server := httptest.NewServer(app)
	b.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}
