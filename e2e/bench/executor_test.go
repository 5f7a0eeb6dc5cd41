package bench_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/e2e/harness"
	"github.com/holdfast-run/holdfast/e2e/pgtest"
	"github.com/holdfast-run/holdfast/pkg/grant"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

const (
	// stepsOfRun is the number of model calls in a run. Each but the last has a tool call.
	stepsOfRun = 20
	stepWindow = 6 * time.Second
	// heldRuns wait for a slow model at the same time.
	heldRuns   = 10_000
	heldLimit  = 3 * time.Minute
	statusPoll = 5 * time.Millisecond
	// firstTenant is the tenant of harness.Key.
	firstTenant = "first"
)

// stepSessions are the numbers of concurrent runs.
var stepSessions = []int{1, 16, 64}

// stepAgents answer at once and call a tool without cost; the patient agent answers slowly.
var stepAgents = strings.ReplaceAll(`
models:
  scripted:
    script: |
      models:
        steps:
          chunk: whole
          delay: 0s
          rules:
            - when: {step: STEPS}
              reply: 'That is all.'
            - reply: [{call: {name: calculate, arguments: {expression: '6 * 7'}}}]
        patient:
          rules:
            - reply: [{text: 'Let me think.'}, {wait: 1h}, {text: 'I give up.'}]
agents:
  - {name: steps, model: scripted/steps, tools: [calculate]}
  - {name: patient, model: scripted/patient}
`, "STEPS", fmt.Sprint(stepsOfRun))

// BenchmarkExecutorSteps measures the cost of a step with a free model, beside the raw database and the raw log, and
// the cost with signed grants beside that without.
func BenchmarkExecutorSteps(b *testing.B) {
	for b.Loop() {
		commits := rawStepCommits(b, pgtest.URL(b))
		publishes := rawPublishes(b)
		fmt.Printf("\nSteps of runs with %d steps, a model without delay and a tool without cost, nobody reading:\n", stepsOfRun)
		fmt.Printf("raw SQL, one transaction a step commit, %d connections: %7.0f commits/s\n", rawWriters, commits)
		fmt.Printf("raw JetStream, fenced publish, %d writers:              %7.0f publishes/s\n", rawWriters, publishes)
		plain := measureSteps(b, "steps", commits)
		secret := "HOLDFAST_GRANT_SECRET=" + strings.Repeat("s", grant.MinSecret)
		granted := measureSteps(b, "granted", commits, secret)
		for i, n := range stepSessions {
			ratio := float64(granted[i]) / float64(plain[i])
			fmt.Printf("%3d runs at a time: processor time of a step with grants = %.2fx that without\n", n, ratio)
			b.ReportMetric(ratio, fmt.Sprintf("x-grants-%d", n))
		}
	}
}

// measureSteps measures a system whose state and stream have the variables, at each of stepSessions. It returns the
// processor times of a step, with the database's.
func measureSteps(b *testing.B, name string, commits float64, env ...string) []time.Duration {
	b.Helper()
	s := harness.Start(b, harness.Options{Agents: stepAgents, LogLevel: "warn", StateEnv: env, StreamEnv: env})
	defer end(s)
	direct := newDirect(b, s.State)
	direct.steps(b, 16, "warm", warmUp)
	processes := []*harness.Process{s.Executors[0], s.State, s.Stream}
	var costs []time.Duration
	for _, n := range stepSessions {
		before, database := cpu(processes), databaseCPU(b)
		begin := time.Now()
		rate := direct.steps(b, n, fmt.Sprint("steps-", n), stepWindow)
		steps := rate * time.Since(begin).Seconds()
		perStep := float64(n) / rate * 1000
		fmt.Printf("%s, %3d runs at a time: %7.0f steps/s, %6.2f ms a step of a run = %.2fx raw commits/s; processor time a step:", name, n, rate, perStep, rate/commits)
		total := databaseCPU(b) - database
		fmt.Printf(" database %.2f ms", ms(total)/steps)
		for i, used := range cpu(processes) {
			fmt.Printf(", %s %.2f ms", processes[i].Name, ms(used-before[i])/steps)
			total += used - before[i]
		}
		fmt.Printf(", together %.2f ms\n", ms(total)/steps)
		costs = append(costs, time.Duration(float64(total)/steps))
		b.ReportMetric(rate, fmt.Sprintf("%s/s-%d", name, n))
		b.ReportMetric(perStep, fmt.Sprintf("ms/%s-%d", name, n))
	}
	return costs
}

// BenchmarkLiveRuns measures the memory of runs that wait for a slow model.
func BenchmarkLiveRuns(b *testing.B) {
	for b.Loop() {
		s := harness.Start(b, harness.Options{
			Agents: stepAgents, LogLevel: "warn",
			ExecutorEnv: []string{fmt.Sprintf("HOLDFAST_EXECUTOR_SLOTS=%d", heldRuns)},
		})
		direct := newDirect(b, s.State)
		processes := []*harness.Process{s.Executors[0], s.State, s.Stream}
		var before, after []int64
		for _, p := range processes {
			before = append(before, p.Resident())
		}
		begin := time.Now()
		if err := each(heldRuns, func(i int) error {
			return direct.start(b.Context(), fmt.Sprint("patient-", i), "patient")
		}); err != nil {
			b.Fatal(err)
		}
		harness.WaitFor(b, heldLimit, "all runs to wait on the model", func() (bool, string) {
			live := s.Live(s.Executors[0])
			return live == heldRuns, fmt.Sprint(live)
		})
		took := time.Since(begin)
		fmt.Printf("\n%d runs that wait on a slow model, begun within %.1fs:\n", heldRuns, took.Seconds())
		steady(b, s.Executors[0])
		for i, p := range processes {
			after = append(after, p.Resident())
			fmt.Printf("%-10s %6.0f MiB before, %6.0f MiB with the runs: %5.1f KiB a run\n",
				p.Name, mib(before[i]), mib(after[i]), float64(after[i]-before[i])/heldRuns/1024)
		}
		perGiB := heldRuns / (float64(after[0]) / (1 << 30))
		fmt.Printf("the executor holds %.0f such runs a GiB\n", perGiB)
		b.ReportMetric(perGiB, "runs/GiB")
		b.ReportMetric(mib(after[0]), "MiB-executor")
	}
}

func cpu(processes []*harness.Process) []time.Duration {
	var used []time.Duration
	for _, p := range processes {
		used = append(used, p.CPU())
	}
	return used
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// steady waits until the memory of a process no longer changes.
func steady(b *testing.B, p *harness.Process) {
	b.Helper()
	last, since := p.Resident(), time.Now()
	harness.WaitFor(b, heldLimit, "the memory to be steady", func() (bool, string) {
		now := p.Resident()
		if diff := now - last; max(diff, -diff) > last/50 {
			last, since = now, time.Now()
		}
		return time.Since(since) > 2*time.Second, fmt.Sprint(now)
	})
}

// direct calls the state service itself.
type direct struct{ conns []*grpc.ClientConn }

func newDirect(b testing.TB, state *harness.Process) *direct {
	d := &direct{}
	for range commitConns {
		d.conns = append(d.conns, harness.DialInternal(b, state.Address))
	}
	return d
}

func (d *direct) start(ctx context.Context, session, agent string) error {
	conn := d.conns[len(session)%len(d.conns)]
	_, err := statev1.NewRunServiceClient(conn).StartRun(ctx, &statev1.StartRunRequest{
		Tenant: firstTenant, SessionId: session, AgentType: agent, Messages: userMessage("u"),
	})
	return err
}

// await waits for the end of a run.
func (d *direct) await(ctx context.Context, session string) error {
	sessions := statev1.NewSessionServiceClient(d.conns[0])
	for {
		got, err := sessions.GetSession(ctx, &statev1.GetSessionRequest{Tenant: firstTenant, SessionId: session})
		switch {
		case err != nil:
			return err
		case got.GetSession().GetStatus() == statev1.SessionStatus_SESSION_STATUS_COMPLETED:
			if n := got.GetSession().GetStepCount(); n != stepsOfRun {
				return fmt.Errorf("the run had %d steps, want %d", n, stepsOfRun)
			}
			return nil
		case got.GetSession().GetStatus() == statev1.SessionStatus_SESSION_STATUS_FAILED:
			return fmt.Errorf("the run failed: %v", got.GetSession().GetFailure())
		}
		time.Sleep(statusPoll)
	}
}

// steps repeats batches of n concurrent runs and returns steps per second. It polls one run at a time, because
// polling adds to the measured cost.
func (d *direct) steps(b *testing.B, n int, name string, window time.Duration) float64 {
	b.Helper()
	begin, rounds := time.Now(), 0
	for ; time.Since(begin) < window; rounds++ {
		session := func(i int) string { return fmt.Sprintf("%s-%d-%d", name, rounds, i) }
		err := each(n, func(i int) error { return d.start(b.Context(), session(i), "steps") })
		for i := 0; i < n && err == nil; i++ {
			err = d.await(b.Context(), session(i))
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	return float64(rounds*n*stepsOfRun) / time.Since(begin).Seconds()
}
