package bench_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/e2e/harness"
	"github.com/holdfast-run/holdfast/e2e/pgtest"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// The calm tenant starts calmRate runs a second, and the noisy one a hundred times as many. The executor has
// noisySlots, and a run of the noisy tenant holds one for noisyDelay.
const (
	calmRate    = 2
	calmRuns    = 120
	noisyRate   = 100 * calmRate
	noisySlots  = 16
	noisyDelay  = 300 * time.Millisecond
	noisyStarts = 32 // clients
)

const noisyAgents = `
models:
  scripted:
    script: |
      models:
        text: {chunk: whole, delay: 0s, rules: [{reply: "Five words are enough here."}]}
        endless: {rules: [{reply: [{text: "Now.", chunk: whole, delay: 0s}, {wait: 1h}]}]}
        slow: {chunk: whole, delay: 0s, rules: [{reply: [{wait: 300ms}, {text: "At last."}]}]}
agents:
  - {name: text, model: scripted/text}
  - {name: slow, model: scripted/slow}
  - {name: endless, model: scripted/endless}
`

// BenchmarkNoisyNeighbour measures how long a calm tenant waits for the first chunk of its runs, alone and beside a
// tenant with a hundred times its load, by the quotas of that tenant. Each row has a system of its own, without the
// backlog of the one before.
func BenchmarkNoisyNeighbour(b *testing.B) {
	for b.Loop() {
		fmt.Printf("\nA calm tenant, %d starts/s, from POST /chat to the first chunk; %d slots, a noisy run holds one for %v:\n", calmRate, noisySlots, noisyDelay)
		s := startWithQuotas(b, "{}\n")
		alone := calmStarts(b, s.Client, calmRuns)
		end(s)
		fmt.Printf("  %-64s p50 %8s, p99 %8s\n", "alone", quantile(alone, 0.50), quantile(alone, 0.99))
		for _, c := range []struct{ name, metric, quotas string }{
			{"without quotas", "none", "{}\n"},
			{"in flight 8", "flight", "tenants: {other: {tenant: {inFlight: 8}}}\n"},
			{"in flight 8, queued 100", "queued", "tenants: {other: {tenant: {inFlight: 8, queued: 100}}}\n"},
			{"in flight 8, queued 100, 20 starts/s", "all", "tenants: {other: {tenant: {inFlight: 8, queued: 100, startsPerSecond: 20}}}\n"},
		} {
			s := startWithQuotas(b, c.quotas)
			ctx, stop := context.WithCancel(b.Context())
			noise := makeNoise(ctx, s.Other())
			time.Sleep(warmUp)
			beside := calmStarts(b, s.Client, calmRuns)
			stop()
			accepted, refused := noise()
			end(s)
			ratio := float64(quantile(beside, 0.99)) / float64(quantile(alone, 0.99))
			fmt.Printf("  beside 100 times the load, %-37s p50 %8s, p99 %8s = %5.2fx; %d noisy starts, and %d refused\n",
				c.name, quantile(beside, 0.50), quantile(beside, 0.99), ratio, accepted, refused)
			b.ReportMetric(ratio, "x-p99-"+c.metric)
		}
	}
}

// startWithQuotas starts a system with these quotas, and warms it up.
func startWithQuotas(b *testing.B, quotas string) *harness.System {
	b.Helper()
	file := filepath.Join(b.TempDir(), "quotas.yaml")
	if err := os.WriteFile(file, []byte(quotas), 0o600); err != nil {
		b.Fatal(err)
	}
	s := harness.Start(b, harness.Options{
		Agents: noisyAgents, LogLevel: "warn", StateEnv: []string{"HOLDFAST_STATE_QUOTAS=" + file},
		ExecutorEnv: []string{fmt.Sprint("HOLDFAST_EXECUTOR_SLOTS=", noisySlots)},
	})
	calmStarts(b, s.Client, calmRuns/4)
	return s
}

// calmStarts starts runs at calmRate, and returns the sorted times to their first chunks.
func calmStarts(b *testing.B, c harness.Client, n int) []time.Duration {
	b.Helper()
	client := newHTTPClient()
	defer client.CloseIdleConnections()
	prefix := fmt.Sprint("calm-", time.Now().UnixNano())
	tick := time.NewTicker(time.Second / calmRate)
	defer tick.Stop()
	var times []time.Duration
	for i := range sized(n) {
		<-tick.C
		d, err := turn(b.Context(), client, c, fmt.Sprint(prefix, "-", i), "text")
		if err != nil {
			b.Fatal(err)
		}
		times = append(times, d)
	}
	slices.Sort(times)
	return times
}

// makeNoise starts runs at noisyRate until ctx ends. The returned function then waits, and returns how many starts were
// accepted and refused.
func makeNoise(ctx context.Context, c harness.Client) (wait func() (accepted, refused int64)) {
	var clients sync.WaitGroup
	var accepted, refused atomic.Int64
	client := newHTTPClient()
	for range noisyStarts {
		clients.Go(func() {
			tick := time.NewTicker(noisyStarts * time.Second / noisyRate)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
				case <-ctx.Done():
					return
				}
				switch status, _ := startRun(ctx, client, c, "slow"); status {
				case http.StatusOK:
					accepted.Add(1)
				case http.StatusTooManyRequests:
					refused.Add(1)
				}
			}
		})
	}
	return func() (int64, int64) {
		clients.Wait()
		client.CloseIdleConnections()
		return accepted.Load(), refused.Load()
	}
}

// startRun starts a run in a new session, and returns the status of the answer.
func startRun(ctx context.Context, client *http.Client, c harness.Client, agent string) (int, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL+"/start", bytes.NewReader(fmt.Appendf(nil, `{"agentType":%q,"message":"Go on."}`, agent)))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer "+c.Key)
	r.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, err
}

// The tenants of BenchmarkFairShares, and how many runs each queues: more than are executed while it measures.
const (
	equalTenants = 10
	equalRuns    = 400
	equalWindow  = 6 * time.Second
)

// BenchmarkFairShares measures Jain's index of the completed runs of equal tenants that all have more work than slots.
func BenchmarkFairShares(b *testing.B) {
	for b.Loop() {
		for _, c := range []struct{ name, quotas string }{
			{"without quotas", "{}\n"},
			{"with a cap of 8 in flight", "tenant: {inFlight: 8}\n"},
		} {
			shares, rate := equalShares(b, c.quotas)
			index := jain(shares)
			fmt.Printf("\nCompleted runs of %d equal tenants, %s: Jain's index %.4f, %4.0f runs/s, by tenant %v\n", equalTenants, c.name, index, rate, shares)
			b.ReportMetric(index, "jain")
		}
	}
}

// equalShares returns how many runs each tenant completed in the window, and all together in a second.
func equalShares(b *testing.B, quotas string) (shares []int64, rate float64) {
	b.Helper()
	file := filepath.Join(b.TempDir(), "quotas.yaml")
	if err := os.WriteFile(file, []byte(quotas), 0o600); err != nil {
		b.Fatal(err)
	}
	url := pgtest.URL(b)
	s := harness.Start(b, harness.Options{
		Agents: noisyAgents, LogLevel: "warn", PostgresURL: url, StateEnv: []string{"HOLDFAST_STATE_QUOTAS=" + file},
		ExecutorEnv: []string{fmt.Sprint("HOLDFAST_EXECUTOR_SLOTS=", noisySlots)},
	})
	d := newDirect(b, s.State)
	err := some(equalTenants*equalRuns, func(i int) error { // the first tenants queue all their runs first
		_, err := statev1.NewRunServiceClient(d.conns[i%len(d.conns)]).StartRun(b.Context(), &statev1.StartRunRequest{
			Tenant: fmt.Sprint("equal", i/equalRuns), SessionId: fmt.Sprint("s", i), AgentType: "slow", Messages: userMessage("u"),
		})
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	db, err := pgx.Connect(b.Context(), url)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = db.Close(b.Context()) }()
	before := completedRuns(b, db)
	time.Sleep(equalWindow)
	after := completedRuns(b, db)
	var sum int64
	for i := range after {
		shares = append(shares, after[i]-before[i])
		sum += shares[i]
	}
	end(s)
	return shares, float64(sum) / equalWindow.Seconds()
}

// completedRuns counts the completed runs by tenant.
func completedRuns(b *testing.B, db *pgx.Conn) []int64 {
	b.Helper()
	rows, err := db.Query(b.Context(), `SELECT (SELECT count(*) FROM runs WHERE tenant = 'equal' || i AND status = 'completed') FROM generate_series(0, $1 - 1) i ORDER BY i`, equalTenants)
	if err != nil {
		b.Fatal(err)
	}
	counts, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		b.Fatal(err)
	}
	return counts
}

// jain returns Jain's fairness index: 1 for equal shares, 1/n for one share of n.
func jain(shares []int64) float64 {
	var sum, squares float64
	for _, n := range shares {
		sum += float64(n)
		squares += math.Pow(float64(n), 2)
	}
	return sum * sum / (float64(len(shares)) * squares)
}

// The noisy tenant opens noisyStreams, and has cappedStreams.
const (
	cappedStreams = 1000
	noisyStreams  = 1500
)

// BenchmarkStreamCap measures the memory of gateway and state while a tenant is at its cap of streams, and the calm
// tenant beside it.
func BenchmarkStreamCap(b *testing.B) {
	for b.Loop() {
		needFiles(b, 2*noisyStreams)
		s := harness.Start(b, harness.Options{
			Agents: noisyAgents, LogLevel: "warn", GatewayEnv: []string{fmt.Sprint("HOLDFAST_GATEWAY_MAX_TENANT_STREAMS=", cappedStreams)},
		})
		calmStarts(b, s.Client, calmRuns/4)
		alone := calmStarts(b, s.Client, calmRuns/2)
		if answer := s.Other().Do(b, http.MethodPost, "/start", []byte(`{"sessionId":"watched","agentType":"endless","message":"hi"}`)); answer.Code != http.StatusOK {
			b.Fatalf("got %d %s", answer.Code, answer.Body)
		}
		gateway, state := resident(s.Gateway.PID()), resident(s.State.PID())
		ctx, stop := context.WithCancel(b.Context())
		var opened, refused atomic.Int64
		var readers sync.WaitGroup
		client := newHTTPClient()
		client.Timeout = 0
		err := some(noisyStreams, func(int) error { return watchCapped(ctx, client, s.Other(), &readers, &opened, &refused) })
		if err != nil {
			b.Fatal(err)
		}
		beside := calmStarts(b, s.Client, calmRuns/2)
		fmt.Printf("\nA tenant that opens %d streams with a cap of %d: %d opened, %d refused; gateway %+.1f MiB to %.1f, state %+.1f MiB to %.1f\n",
			noisyStreams, cappedStreams, opened.Load(), refused.Load(),
			mib(resident(s.Gateway.PID())-gateway), mib(resident(s.Gateway.PID())), mib(resident(s.State.PID())-state), mib(resident(s.State.PID())))
		fmt.Printf("  a calm tenant alone: p99 %s; beside it: p99 %s\n", quantile(alone, 0.99), quantile(beside, 0.99))
		stop()
		readers.Wait()
		client.CloseIdleConnections()
		end(s)
	}
}

// watchCapped opens a stream of a session, and reads it until ctx ends.
func watchCapped(ctx context.Context, client *http.Client, c harness.Client, readers *sync.WaitGroup, opened, refused *atomic.Int64) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL+"/sse?sessionId=watched", nil)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+c.Key)
	answer, err := client.Do(r)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		refused.Add(1)
		return answer.Body.Close()
	}
	opened.Add(1)
	readers.Go(func() {
		_, _ = io.Copy(io.Discard, answer.Body) // until ctx ends
		_ = answer.Body.Close()
	})
	return nil
}
