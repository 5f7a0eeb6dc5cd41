package bench_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

const (
	// parkedParents wait for one slow sub-agent each. They begin, and their sub-agents end, at wakeRate a second.
	parkedParents = 1_000
	wakeRate      = 50
	// slowness is how long each sub-agent works: all parents are parked before the first one wakes.
	slowness = parkedParents/wakeRate*time.Second + 10*time.Second
)

const parentAgents = `
models:
  scripted:
    script: |
      models:
        boss:
          chunk: whole
          delay: 0s
          rules:
            - when: {step: 2}
              reply: 'It is done.'
            - reply: [{call: {name: subagent__worker, arguments: {message: 'Work.'}}}]
agents:
  - {name: boss, model: scripted/boss, tools: [{subAgent: worker, description: Works slowly.}]}
`

const workerAgents = `
models:
  scripted:
    script: |
      models:
        worker:
          chunk: whole
          delay: 0s
          rules: [{reply: [{wait: SLOWNESS}, {text: 'Done.'}]}]
agents:
  - {name: worker, model: scripted/worker}
`

// BenchmarkParkedParents measures what parents cost their executor while they wait for sub-agents, which another
// executor runs, and the time from the commit that ends a sub-agent to the next model call of its parent.
func BenchmarkParkedParents(b *testing.B) {
	for b.Loop() {
		s := harness.Start(b, harness.Options{Agents: parentAgents, LogLevel: "warn"})
		file := filepath.Join(b.TempDir(), "workers.yaml")
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(workerAgents, "SLOWNESS", slowness.String())), 0o600); err != nil {
			b.Fatal(err)
		}
		workers := s.Executor(b, "workers", harness.Binary(b, "executor"),
			"HOLDFAST_EXECUTOR_AGENTS="+file, fmt.Sprintf("HOLDFAST_EXECUTOR_SLOTS=%d", parkedParents))
		workers.Start()
		s.WaitAgent(b, "worker")
		parents, direct := s.Executors[0], newDirect(b, s.State)
		steady(b, parents)
		memory := parents.Resident()

		tick := time.NewTicker(time.Second / wakeRate)
		defer tick.Stop()
		for i := range parkedParents {
			<-tick.C
			if err := direct.start(b.Context(), fmt.Sprint("boss-", i), "boss"); err != nil {
				b.Fatal(err)
			}
		}
		harness.WaitFor(b, slowness, "all sub-agents to work", func() (bool, string) {
			n := s.Live(workers)
			return n == parkedParents && s.Live(parents) == 0, fmt.Sprint(n)
		})
		fmt.Printf("\n%d parents that wait for a sub-agent: %d slots and %+.1f MiB of their executor\n",
			parkedParents, s.Live(parents), mib(parents.Resident()-memory))
		var times []time.Duration
		for i := range parkedParents {
			times = append(times, direct.wake(b, fmt.Sprint("boss-", i)))
		}
		print99(b, fmt.Sprintf("end of a sub-agent to its parent's next model call, %d a second", wakeRate), "wake", times)
	}
}

// wake waits for the end of a parent, and returns the time from the end of its sub-agent to its last step.
func (d *direct) wake(b *testing.B, session string) time.Duration {
	b.Helper()
	sessions := statev1.NewSessionServiceClient(d.conns[0])
	for {
		got, err := sessions.GetSession(b.Context(), &statev1.GetSessionRequest{Tenant: firstTenant, SessionId: session})
		if err != nil {
			b.Fatal(err)
		}
		if got.GetSession().GetStatus() != statev1.SessionStatus_SESSION_STATUS_COMPLETED {
			time.Sleep(statusPoll)
			continue
		}
		child, err := sessions.GetSession(b.Context(), &statev1.GetSessionRequest{Tenant: firstTenant, SessionId: got.GetSubSessions()[0].GetSessionId()})
		if err != nil {
			b.Fatal(err)
		}
		steps, err := sessions.ListSteps(b.Context(), &statev1.ListStepsRequest{Tenant: firstTenant, SessionId: session})
		if err != nil {
			b.Fatal(err)
		}
		last := steps.GetSteps()[len(steps.GetSteps())-1]
		return time.Duration(last.GetRecord().GetStartedAt()-child.GetCurrentRun().GetCompletedAt()) * time.Millisecond
	}
}
