package bench_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// The noisy tenant queues longRuns, more than an executor has slots. Each holds one for 15 seconds.
const longRuns = 300

const longRunAgents = `
models:
  scripted:
    script: |
      models:
        text: {chunk: whole, delay: 0s, rules: [{reply: "Five words are enough here."}]}
        long: {rules: [{reply: [{text: "Now.", chunk: whole, delay: 0s}, {wait: 15s}]}]}
agents:
  - {name: text, model: scripted/text}
  - {name: long, model: scripted/long}
`

// BenchmarkLongRuns measures how long a calm tenant waits for the first chunk of its turns while another one has more long runs
// than an executor has slots. Nothing is configured for either.
func BenchmarkLongRuns(b *testing.B) {
	for b.Loop() {
		s := harness.Start(b, harness.Options{Agents: longRunAgents, LogLevel: "warn"})
		calmStarts(b, s.Client, calmRuns/8)
		alone := calmStarts(b, s.Client, calmRuns/4)
		client := newHTTPClient()
		if err := some(longRuns, func(int) error {
			if status, err := startRun(b.Context(), client, s.Other(), "long"); err != nil || status != http.StatusOK {
				return fmt.Errorf("got %d, %w", status, err)
			}
			return nil
		}); err != nil {
			b.Fatal(err)
		}
		beside := calmStarts(b, s.Client, calmRuns/4)
		client.CloseIdleConnections()
		end(s)
		ratio := float64(quantile(beside, 1)) / float64(quantile(alone, 1))
		fmt.Printf("\nFirst chunk of a calm tenant alone: p50 %s, longest %s; beside %d long runs of another: p50 %s, longest %s = %.1fx\n",
			quantile(alone, 0.5), quantile(alone, 1), longRuns, quantile(beside, 0.5), quantile(beside, 1), ratio)
		b.ReportMetric(ratio, "x-longest")
	}
}
