package bench_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

const (
	liveSessions = 1000
	liveEvery    = 50 * time.Millisecond // 20 chunks a second in each
	liveWarmUp   = 2 * time.Second
	liveWindow   = 12 * time.Second

	crowdEvery  = 250 * time.Millisecond // 4 chunks a second
	crowdWindow = 8 * time.Second
)

// crowds are the numbers of readers of one session.
var crowds = []int{1, 100, 5000}

// BenchmarkStreamLive measures the delay of a chunk from its writer to its reader with many live sessions.
func BenchmarkStreamLive(b *testing.B) {
	for b.Loop() {
		n := sized(liveSessions)
		name := func(i int) string { return fmt.Sprint("live-", i) }
		fmt.Printf("\nFrom the moment when a chunk is due at its writer, through gRPC, the embedded log and the gateway, to the reader of its\n"+
			"session by SSE: %d sessions, each with a chunk every %v; beside nats.go, the same chunks from fenced publishes\n"+
			"to core subscriptions of what the server publishes again. What a late writer has to say is merged, and timed from its first word.\n"+
			"All of it, clients included, shares the %d cores of this machine.\n", n, liveEvery, runtime.NumCPU())
		s, _, writers := startClaimed(b, harness.Options{}, n, name)
		readers := gather(b, s.Client, n, name)
		before := spent(s)
		chunks, deltas := live(b, "Holdfast", readers, n, func(ctx context.Context, i int, text string) error { return writers[i].say(ctx, text) })
		used := spent(s).since(before)
		perDelta := float64(used.services().Microseconds()) / float64(deltas)
		fmt.Printf("          processor time over state, stream and gateway: %.1f us a delta that was due, %.1f us a chunk of merged ones; in seconds, the warm-up included: %s\n",
			perDelta, float64(used.services().Microseconds())/float64(chunks), used)
		b.ReportMetric(perDelta, "us-cpu/delta")
		readers.close()
		end(s)

		raw := startRawLog(b)
		subscribers := raw.subscribe(b, n, func(i int) string { return rawSubject("live", "live", i) })
		theirs := raw.writers(n, "live")
		live(b, "raw", subscribers, n, func(ctx context.Context, i int, text string) error { return theirs[i].say(ctx, text) })
		subscribers.close()
	}
}

// live measures, and returns how many chunks were written, including the warm-up, and how many were due before
// merging.
func live(b *testing.B, who string, a *audience, n int, say func(context.Context, int, string) error) (chunks, deltas int64) {
	b.Helper()
	warm := paced(b, n, liveEvery, lasting(liveWarmUp), say)
	a.drain(warm.sent)
	a.reset()
	p := paced(b, n, liveEvery, lasting(liveWindow), say)
	d := a.delivered(p.sent, p.took)
	fmt.Printf("%-9s %6.0f chunks/s of %6.0f asked for: %v (n=%d)\n", who+":", p.rate(), p.asked, d, d.got)
	b.ReportMetric(p.rate(), who+"-chunks/s")
	b.ReportMetric(ms(d.p50), who+"-ms-p50")
	b.ReportMetric(ms(d.p99), who+"-ms-p99")
	return warm.sent + p.sent, warm.due + p.due
}

// times are the processor times of the measured processes by name.
type times map[string]time.Duration

const clients = "writers and readers"

func spent(s *harness.System) times {
	return times{"state": s.State.CPU(), "stream": s.Stream.CPU(), "gateway": s.Gateway.CPU(), clients: processorTime(os.Getpid())}
}

func (t times) since(before times) times {
	used := times{}
	for name := range t {
		used[name] = t[name] - before[name]
	}
	return used
}

// services returns the time of all services.
func (t times) services() (sum time.Duration) {
	for name, used := range t {
		if name != clients {
			sum += used
		}
	}
	return sum
}

func (t times) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(t)) {
		parts = append(parts, fmt.Sprintf("%s %.1f", name, t[name].Seconds()))
	}
	return strings.Join(parts, ", ")
}

// end ends the processes of a system before the end of the benchmark.
func end(s *harness.System) {
	for _, p := range append([]*harness.Process{s.Gateway, s.Stream, s.State}, s.Executors...) {
		p.Kill()
	}
}

// BenchmarkStreamCrowd measures throughput and cost with many readers of one session.
func BenchmarkStreamCrowd(b *testing.B) {
	for b.Loop() {
		name := func(i int) string { return fmt.Sprint("crowd-", i) } // one for each crowd
		s, _, writers := startClaimed(b, harness.Options{}, len(crowds), name)
		raw := startRawLog(b)
		theirs := raw.writers(len(crowds), "crowd")
		fmt.Print("\nReaders of one session by SSE, through one gateway, beside as many nats.go subscriptions of its subject.\n")
		for i, n := range crowds {
			n := sized(n)
			before := resident(s.Gateway.PID())
			readers := gather(b, s.Client, n, func(int) string { return name(i) })
			idle := resident(s.Gateway.PID()) - before
			got, steady := crowded(b, readers, n, writers[i].say)
			readers.close()
			subscribers := raw.subscribe(b, n, func(int) string { return rawSubject("live", "crowd", i) })
			want, rawSteady := crowded(b, subscribers, n, theirs[i].say)
			subscribers.close()
			fmt.Printf("%5d readers, as fast as they read: %8.0f deliveries/s%s | raw %8.0f/s: %.2fx\n", n, got.rate, cut(got), want.rate, got.rate/want.rate)
			fmt.Printf("%5d readers, a chunk every %v: %6.0f deliveries/s, %v | raw %v: %.2fx p50, %.2fx p99\n",
				n, crowdEvery, steady.rate, steady, rawSteady, float64(steady.p50)/float64(rawSteady.p50), float64(steady.p99)/float64(rawSteady.p99))
			if n >= 1000 && before > 0 {
				fmt.Printf("%5d idle readers: %.1f KB of the gateway's resident memory each, with what is left of their attaching\n", n, float64(idle)/float64(n)/1000)
				b.ReportMetric(float64(idle)/float64(n)/1000, "KB/idle-reader")
			}
			b.ReportMetric(got.rate, fmt.Sprintf("deliveries/s-%d", n))
			b.ReportMetric(ms(steady.p99), fmt.Sprintf("ms-p99-%d", n))
		}
	}
}

func cut(d delivered) string {
	if d.gone == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d readers cut)", d.gone)
}

// crowded measures the highest throughput of a crowd, and its delay at a steady pace.
func crowded(b *testing.B, a *audience, n int, say func(ctx context.Context, text string) error) (most, steady delivered) {
	b.Helper()
	most = chased(b, a, n, lasting(crowdWindow/2), say)
	a.reset()
	p := paced(b, 1, crowdEvery, lasting(crowdWindow), func(ctx context.Context, _ int, text string) error { return say(ctx, text) })
	return most, a.delivered(p.sent*int64(n), p.took)
}

// chased sends as fast as the readers read.
func chased(b *testing.B, a *audience, n int, window time.Duration, say func(ctx context.Context, text string) error) delivered {
	b.Helper()
	a.reset()
	begin := time.Now()
	var sent int64
	for time.Since(begin) < window && a.gone.Load() == 0 {
		if sent-a.heard.Load()/int64(n) > pacedReaders {
			<-time.After(time.Millisecond)
			continue
		}
		if err := say(b.Context(), stamp(time.Now())); err != nil {
			b.Error(err)
			break
		}
		sent++
	}
	a.drain(sent * int64(n))
	return a.delivered(sent*int64(n), time.Since(begin))
}
