package bench_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
	"github.com/holdfast-run/holdfast/e2e/pgtest"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	"github.com/holdfast-run/holdfast/proto/holdfast/agent/v1/agentv1connect"
)

// apiPoll is long enough to make polling cheap beside a run.
const apiPoll = 25 * time.Millisecond

// BenchmarkOneProcess measures the cost of a step with all services in one process, on Postgres and on SQLite,
// beside four processes with the same client.
func BenchmarkOneProcess(b *testing.B) {
	for b.Loop() {
		fmt.Printf("\nSteps of runs with %d steps, begun and watched over the gateway, nobody reading:\n", stepsOfRun)
		for _, house := range []struct {
			name  string
			start func() (harness.Client, []*harness.Process)
		}{
			{"four processes, Postgres", func() (harness.Client, []*harness.Process) {
				s := harness.Start(b, harness.Options{Agents: stepAgents, LogLevel: "warn"})
				return s.Client, []*harness.Process{s.Gateway, s.State, s.Stream, s.Executors[0]}
			}},
			{"one process, Postgres", func() (harness.Client, []*harness.Process) {
				d := harness.StartDev(b, stepAgents, "HOLDFAST_LOG_LEVEL=warn",
					"HOLDFAST_STATE_STORE=postgres", "HOLDFAST_STATE_POSTGRES_URL="+pgtest.URL(b))
				return d.Client, []*harness.Process{d.Process}
			}},
			{"one process, SQLite", func() (harness.Client, []*harness.Process) {
				d := harness.StartDev(b, stepAgents, "HOLDFAST_LOG_LEVEL=warn")
				return d.Client, []*harness.Process{d.Process}
			}},
		} {
			client, processes := house.start()
			measureHouse(b, house.name, watcher{client.AgentService(b)}, processes)
			for _, p := range processes {
				p.Stop(harness.StopLimit)
			}
		}
	}
}

func measureHouse(b *testing.B, name string, w watcher, processes []*harness.Process) {
	b.Helper()
	w.steps(b, 16, "warm", warmUp)
	for _, n := range stepSessions {
		before, database := cpu(processes), databaseCPU(b)
		begin := time.Now()
		rate := w.steps(b, n, fmt.Sprint("steps-", n), stepWindow)
		steps := rate * time.Since(begin).Seconds()
		var used time.Duration
		for i, now := range cpu(processes) {
			used += now - before[i]
		}
		fmt.Printf("%-25s %3d runs at a time: %7.0f steps/s; processor time a step: services %.2f ms, database %.2f ms\n",
			name+",", n, rate, ms(used)/steps, ms(databaseCPU(b)-database)/steps)
	}
}

// watcher starts runs through the gateway and waits for their ends.
type watcher struct {
	agentv1connect.AgentServiceClient
}

func (w watcher) start(ctx context.Context, session string) error {
	_, err := w.Start(ctx, &agentv1.StartRequest{SessionId: session, AgentType: "steps", Message: "go"})
	return err
}

func (w watcher) await(ctx context.Context, session string) error {
	for {
		got, err := w.Get(ctx, &agentv1.GetRequest{SessionId: session})
		switch {
		case err != nil:
			return err
		case got.GetRunStatus() == "completed" && got.GetStepCount() == stepsOfRun:
			return nil
		case got.GetRunStatus() != "running":
			return fmt.Errorf("the run is %s after %d steps: %s", got.GetRunStatus(), got.GetStepCount(), got.GetError())
		}
		time.Sleep(apiPoll)
	}
}

// steps repeats batches of n concurrent runs and returns steps per second.
func (w watcher) steps(b *testing.B, n int, name string, window time.Duration) float64 {
	b.Helper()
	begin, rounds := time.Now(), 0
	for ; time.Since(begin) < window; rounds++ {
		session := func(i int) string { return fmt.Sprintf("%s-%d-%d", name, rounds, i) }
		err := each(n, func(i int) error { return w.start(b.Context(), session(i)) })
		for i := 0; i < n && err == nil; i++ {
			err = w.await(b.Context(), session(i))
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	return float64(rounds*n*stepsOfRun) / time.Since(begin).Seconds()
}
