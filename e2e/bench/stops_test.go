package bench_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
)

const (
	stops      = 60
	recoveries = 24
	benchLimit = 60 * time.Second
)

// BenchmarkStopLatency measures the time from an interrupt request, through either of two gateways and state
// replicas, to the end of the provider's connection.
func BenchmarkStopLatency(b *testing.B) {
	for b.Loop() {
		closed := make(chan time.Time, 1)
		p := harness.StartProvider(b, func(s *harness.Speech) {
			s.Text("one two three")
			if s.Hang(benchLimit) {
				closed <- time.Now()
			}
		})
		s := harness.Start(b, harness.Options{
			States: 2, Gateways: 2, LogLevel: "warn", ExecutorEnv: []string{"FAKE_KEY=a-key"},
			Agents: "models:\n  openai: {baseURL: " + p.URL + "/v1, apiKeyEnv: FAKE_KEY}\nagents:\n  - {name: slow, model: openai/fake}\n",
		})
		var times []time.Duration
		for i := range stops {
			session := fmt.Sprint("stop-", i)
			asking := s.Chat(b, session, "slow", "Go on.")
			asking.UntilText(len("one two three"))
			service := s.At(i % 2).AgentService(b)
			begin := time.Now()
			if _, err := service.Interrupt(b.Context(), &agentv1.InterruptRequest{SessionId: session}); err != nil {
				b.Fatal(err)
			}
			select {
			case at := <-closed:
				times = append(times, at.Sub(begin))
			case <-time.After(benchLimit):
				b.Fatalf("the connection of %s is still open", session)
			}
			asking.Close()
		}
		print99(b, "interrupt at any of two gateways and state replicas to the provider's socket closed", "stop", times)
	}
}

// BenchmarkRecovery measures the time from an executor's death in the middle of a text to a reader's next chunk
// from another executor.
func BenchmarkRecovery(b *testing.B) {
	for b.Loop() {
		s := harness.Start(b, harness.Options{Agents: talkingAgents, Executors: 2, LogLevel: "warn"})
		var times []time.Duration
		for i := range recoveries {
			session := fmt.Sprint("recovery-", i)
			ctx, cancel := context.WithTimeout(b.Context(), benchLimit)
			if err := s.Ask(ctx, session, "talker", "Go on."); err != nil {
				b.Fatal(err)
			}
			reader := s.Native(b, session, 0)
			reader.Until("some text", func(n *harness.NativeStream) bool { return n.Count("text_delta") > 5 })
			victim := s.Busy()
			begin := time.Now()
			victim.Kill()
			reader.Until("the next chunk", func(n *harness.NativeStream) bool { return n.Rewinds > 0 && n.Count("text_delta") > 0 })
			times = append(times, time.Since(begin))
			reader.Close()
			victim.Start()
			s.WaitStatus(b, session, "completed")
			cancel()
		}
		print99(b, "kill -9 of an executor to the next chunk of its run", "recovery", times)
	}
}

const talkingAgents = `
models:
  scripted:
    script: |
      models:
        talker:
          rules:
            - reply: [{text: 'word ', repeat: 100, chunk: 1 word, delay: 20ms}]
agents:
  - {name: talker, model: scripted/talker}
`

func print99(b *testing.B, what, unit string, times []time.Duration) {
	b.Helper()
	slices.Sort(times)
	fmt.Printf("\n%s: p50 %s, p99 %s, max %s (n=%d)\n", what, quantile(times, 0.50), quantile(times, 0.99), times[len(times)-1].Round(time.Millisecond), len(times))
	b.ReportMetric(ms(quantile(times, 0.50)), "ms-"+unit+"-p50")
	b.ReportMetric(ms(quantile(times, 0.99)), "ms-"+unit+"-p99")
}
