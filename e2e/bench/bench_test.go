// Package bench_test measures a whole Holdfast: four processes, Postgres and an embedded JetStream on this
// machine, beside the raw database and the raw log in the same run. It prints figures and fails no build because
// of time.
package bench_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/e2e/harness"
	"github.com/holdfast-run/holdfast/e2e/pgtest"
)

// The load.
const (
	warmUp          = 2 * time.Second
	turnWindow      = 8 * time.Second
	turnClients     = 32
	firstChunkRate  = 100 // new runs a second
	firstChunkCount = 600
	requestLimit    = 30 * time.Second
)

// agents answer without delay, so the rest is Holdfast's.
const agents = `
models:
  scripted:
    script: |
      models:
        text:
          chunk: whole
          delay: 0s
          rules:
            - reply: "Five words are enough here."
        tool:
          chunk: whole
          delay: 0s
          rules:
            - when: {toolResult: calculate}
              reply: "It is {{.LastResult}}."
            - reply:
                - text: "Let me see."
                - call: {name: calculate, arguments: {expression: "6 * 7"}}
agents:
  - {name: text, model: scripted/text}
  - {name: tool, model: scripted/tool, tools: [calculate]}
`

func BenchmarkHoldfast(b *testing.B) {
	for b.Loop() {
		commits := rawStepCommits(b, pgtest.URL(b))
		publishes := rawPublishes(b)
		s := harness.Start(b, harness.Options{Agents: agents, LogLevel: "warn"})
		turns(b, s.Client, "text", turnClients, warmUp)

		written := transactionsOfATurn(b, s)
		first := firstChunks(b, s.Client)
		text, textCost := costOfTurns(b, s, "text", turnClients)
		tool, toolCost := costOfTurns(b, s, "tool", turnClients)

		fmt.Printf("\nraw SQL, one transaction a step commit, %d connections:  %8.0f commits/s\n", rawWriters, commits)
		fmt.Printf("raw JetStream, fenced publish, %d writers:               %8.0f publishes/s\n", rawWriters, publishes)
		fmt.Printf("POST /chat to first chunk at %d new runs/s:             p50 %s, p99 %s (n=%d)\n",
			firstChunkRate, quantile(first, 0.50), quantile(first, 0.99), len(first))
		fmt.Printf("a turn of one step, alone:                               %.2f transactions that write\n", written)
		fmt.Printf("turns of one step (text), %d clients:                    %8.0f turns/s = %.2fx raw commits, %.3fx raw publishes\n",
			turnClients, text, text/commits, text/publishes)
		fmt.Printf("  processor time a turn: %v\n", textCost)
		fmt.Printf("turns of two steps (model, tool, model), %d clients:     %8.0f turns/s = %.0f steps/s = %.2fx raw commits\n",
			turnClients, tool, 2*tool, 2*tool/commits)
		fmt.Printf("  processor time a turn: %v\n\n", toolCost)
		b.ReportMetric(written, "transactions/turn")
		b.ReportMetric(text, "turns/s")
		b.ReportMetric(2*tool, "steps/s")
		b.ReportMetric(ms(textCost.sum()), "cpu-ms/turn")
		b.ReportMetric(float64(quantile(first, 0.50).Microseconds())/1000, "ms-first-p50")
		b.ReportMetric(float64(quantile(first, 0.99).Microseconds())/1000, "ms-first-p99")
	}
}

// BenchmarkAuthenticatedTurns measures text turns whose requests carry API keys, by the number of clients.
func BenchmarkAuthenticatedTurns(b *testing.B) {
	for b.Loop() {
		s := harness.Start(b, harness.Options{Agents: agents, LogLevel: "warn"})
		turns(b, s.Client, "text", turnClients, warmUp)
		fmt.Printf("\nText turns of clients with API keys, four processes, Postgres:\n")
		for _, clients := range []int{1, 16, 64} {
			rate, cost := costOfTurns(b, s, "text", clients)
			fmt.Printf("  %2d clients: %6.0f turns/s; processor time a turn: %v\n", clients, rate, cost)
			b.ReportMetric(rate, fmt.Sprintf("turns/s-%d", clients))
		}
	}
}

// transactionsOfATurn counts the writing transactions of text turns in sequence, by the database's transaction
// ids. Heartbeats are included.
func transactionsOfATurn(b *testing.B, s *harness.System) float64 {
	b.Helper()
	const count = 50
	db, err := pgx.Connect(b.Context(), pgtest.URL(b)) // on the same server, whose ids cover all databases
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = db.Close(b.Context()) }()
	next := func() (number int64) {
		if err := db.QueryRow(b.Context(), `SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint`).Scan(&number); err != nil {
			b.Fatal(err)
		}
		return number
	}
	client := newHTTPClient()
	defer client.CloseIdleConnections()
	before := next()
	for n := range count {
		if _, err := turn(b.Context(), client, s.Client, fmt.Sprintf("alone-%d-%d", before, n), "text"); err != nil {
			b.Fatal(err)
		}
	}
	return float64(next()-before) / count
}

// costOfTurns is turns in the measurement window, with the processor time of each turn.
func costOfTurns(b *testing.B, s *harness.System, agent string, clients int) (rate float64, each spending) {
	b.Helper()
	before, begin := spendings(b, s), time.Now()
	rate = turns(b, s.Client, agent, clients, turnWindow)
	ran := rate * time.Since(begin).Seconds()
	return rate, spendings(b, s).since(before, ran)
}

// turns lets clients run turns in sequence, each in a new session, and returns turns per second.
func turns(b *testing.B, c harness.Client, agent string, clients int, window time.Duration) float64 {
	b.Helper()
	prefix := fmt.Sprintf("%s-%d", agent, time.Now().UnixNano())
	client := newHTTPClient()
	defer client.CloseIdleConnections()
	return perSecond(b, clients, window, func(ctx context.Context, writer, n int) error {
		_, err := turn(ctx, client, c, fmt.Sprintf("%s-%d-%d", prefix, writer, n), agent)
		return err
	})
}

// firstChunks starts runs at a fixed rate, regardless of their duration, and returns the time from each request
// to its first text.
func firstChunks(b *testing.B, c harness.Client) []time.Duration {
	b.Helper()
	client := newHTTPClient()
	defer client.CloseIdleConnections()
	var mu sync.Mutex
	var times []time.Duration
	var wg sync.WaitGroup
	prefix := fmt.Sprintf("first-%d", time.Now().UnixNano())
	tick := time.NewTicker(time.Second / firstChunkRate)
	defer tick.Stop()
	for n := range firstChunkCount {
		<-tick.C
		wg.Go(func() {
			d, err := turn(b.Context(), client, c, fmt.Sprintf("%s-%d", prefix, n), "text")
			if err != nil {
				b.Error(err)
				return
			}
			mu.Lock()
			times = append(times, d)
			mu.Unlock()
		})
	}
	wg.Wait()
	slices.Sort(times)
	return times
}

func newHTTPClient() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4 * turnClients}, Timeout: requestLimit}
}

// turn runs a turn to its end and returns the time to its first text.
func turn(ctx context.Context, client *http.Client, c harness.Client, session, agent string) (time.Duration, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL+"/chat", bytes.NewReader(harness.ChatBody(session, agent, "Go on.")))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer "+c.Key)
	begin := time.Now()
	answer, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(answer.Body)
		return 0, fmt.Errorf("POST /chat: %s: %s", answer.Status, text)
	}
	return listen(answer.Body, begin)
}

func listen(body io.Reader, begin time.Time) (time.Duration, error) {
	var first time.Duration
	var heard strings.Builder
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		line := lines.Text()
		heard.WriteString(line)
		if first == 0 && strings.Contains(line, `"type":"text-delta"`) {
			first = time.Since(begin)
		}
		if line == "data: [DONE]" && first > 0 && !strings.Contains(heard.String(), `"type":"error"`) {
			return first, nil
		}
	}
	return 0, fmt.Errorf("the answer was not whole: %v; heard %s", lines.Err(), heard.String())
}

// quantile returns the q-quantile of sorted times, or 0 for none.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1))].Round(10 * time.Microsecond)
}
