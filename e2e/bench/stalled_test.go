package bench_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

const (
	stalledReaders = 200
	// stalledAnswer is the size of the unread answer in bytes, and stalledSteps its number of stored steps.
	stalledAnswer = 15_000_000
	stalledSteps  = 3
	// stalledRecord is the size of one append to the live answer.
	stalledRecord = 128 << 10
	// stalledTimeout is how long the gateway waits for a client.
	stalledTimeout = 25 * time.Second
	// stalledGoal is the goal for a reader's average cost in a process. The bounds are twice as wide, because
	// resident memory includes garbage.
	stalledGoal = 300_000
	// freedLimit is how long a process may take to return memory during reads.
	freedLimit = time.Minute
	// littleGarbage makes a process's resident memory follow its use.
	littleGarbage = "GOGC=20"
)

// BenchmarkStalledReaders measures the cost of clients that request a long answer and never read it. It fails if
// they cost far too much, are not disconnected, or leave memory behind.
func BenchmarkStalledReaders(b *testing.B) {
	for b.Loop() {
		n := sized(stalledReaders)
		names := []string{"stored", "live"}
		s, c, writers := startClaimed(b, harness.Options{
			GatewayEnv: []string{"HOLDFAST_GATEWAY_WRITE_TIMEOUT=" + stalledTimeout.String(), littleGarbage}, StreamEnv: []string{littleGarbage},
		}, len(names), func(i int) string { return names[i] })
		text := strings.Repeat("0123456789abcdef", stalledAnswer/stalledSteps/16)
		if err := c.finish(b.Context(), writers[0].claim, []string{text, text, text}); err != nil {
			b.Fatal(err)
		}
		for range stalledAnswer / stalledRecord {
			if err := writers[1].say(b.Context(), text[:stalledRecord]); err != nil {
				b.Fatal(err)
			}
		}
		fmt.Printf("\n%d clients that ask for an answer of %d MB, by SSE and by GET /chat/{id}/stream, and read nothing; resident memory:\n", n, stalledAnswer/1_000_000)
		for i, name := range names {
			speak, quiet := context.WithCancel(b.Context())
			spoken := make(chan struct{})
			go func() {
				defer close(spoken)
				if name == "live" {
					appendSlowly(speak, writers[i])
				}
			}()
			stall(b, s, name, n)
			quiet()
			<-spoken
		}
	}
}

// appendSlowly appends a little from time to time.
func appendSlowly(ctx context.Context, w *appender) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil && w.say(ctx, "and so on ") == nil {
		<-tick.C
	}
}

// stall lets n clients request the session's answer without reading it.
func stall(b *testing.B, s *harness.System, name string, n int) {
	b.Helper()
	readAnswer(b, s.Client, name)
	steady(b, s.Gateway)
	processes := []*harness.Process{s.Gateway, s.Stream}
	var before, peak, during []int64
	for _, p := range processes {
		before, during = append(before, p.Resident()), append(during, 0)
	}
	peak = append(peak, before...)
	files := openFiles(b, s.Gateway)
	paths := []string{"/sse?fromSequence=0&sessionId=" + name, "/chat/" + name + "/stream"}
	began := time.Now()
	conns := make([]net.Conn, n)
	defer func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
	}()
	for i := range conns {
		conns[i] = askAndStall(b, s.Client, paths[i%len(paths)])
	}
	if open := watch(b, s, n, files, func(i int, now int64, all bool) {
		peak[i] = max(peak[i], now)
		if all {
			during[i] = now
		}
	}); open > 0 {
		b.Errorf("%s: %d of %d readers that take nothing are not cut after %v", name, open, n, time.Since(began))
		return
	}
	took := time.Since(began)
	after := freed(b, s, name, before[0]+stalledGoal*int64(n)/4)
	for i, p := range processes {
		each := float64(during[i]-before[i]) / float64(n)
		left := p.Resident()
		fmt.Printf("  %-7s %-8s %5.0f MB before, %5.0f MB at most, %5.0f MB while %d wait (%6.0f KB each), %5.0f MB when they were cut and %v had passed\n",
			name, p.Name, mb(before[i]), mb(peak[i]), mb(during[i]), n, each/1000, mb(left), after.Round(time.Second))
		b.ReportMetric(each/1000, fmt.Sprintf("KB/%s-%s", name, p.Name))
	}
	fmt.Printf("          the last was cut after %v\n", took.Round(time.Second))
	// With few readers, decoded pages dominate the gateway's memory.
	if each := float64(during[0]-before[0]) / float64(n); each > 2*stalledGoal && !testing.Short() {
		b.Errorf("%s: a reader that takes nothing costs %.0f bytes of the gateway, want at most %d", name, each, 2*stalledGoal)
	}
	if left := s.Gateway.Resident() - before[0]; left > stalledGoal*int64(n) {
		b.Errorf("%s: %d bytes are left of readers that were cut", name, left)
	}
}

// watch samples the memory of the gateway and the stream service until nearly all of the n connections beyond
// the files are closed, or a limit passes, and returns the number of open ones. all means that none is closed
// yet.
func watch(b *testing.B, s *harness.System, n, files int, look func(i int, now int64, all bool)) (open int) {
	b.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < 4*stalledTimeout; {
		<-tick.C
		open = openFiles(b, s.Gateway) - files
		for i, p := range []*harness.Process{s.Gateway, s.Stream} {
			look(i, p.Resident(), open >= n)
		}
		if open < max(1, n/20) {
			return 0
		}
	}
	return open
}

func mb(bytes int64) float64 { return float64(bytes) / 1e6 }

// freed lets a client read the answer from time to time until the gateway's resident memory falls to most, or a
// limit passes, and returns the duration.
func freed(b *testing.B, s *harness.System, session string, most int64) time.Duration {
	b.Helper()
	began := time.Now()
	for s.Gateway.Resident() > most && time.Since(began) < freedLimit {
		readAnswer(b, s.Client, session)
		<-time.After(2 * time.Second)
	}
	return time.Since(began)
}

// askAndStall sends a request over a connection with a small buffer and reads nothing.
func askAndStall(b *testing.B, c harness.Client, path string) net.Conn {
	b.Helper()
	const buffer = 4096
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) {
			failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, buffer)
		})
		if err == nil {
			err = failed
		}
		return err
	}}
	address := strings.TrimPrefix(c.URL, "http://")
	conn, err := d.DialContext(b.Context(), "tcp", address)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", path, address, c.Key); err != nil {
		b.Fatal(err)
	}
	return conn
}

// readAnswer reads the whole answer and fails if a part is missing.
func readAnswer(b *testing.B, c harness.Client, session string) {
	b.Helper()
	s, err := attach(b.Context(), c, url.QueryEscape(session))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.conn.Close() }()
	var got int
	err = s.until(func(line []byte) bool {
		got += bytes.Count(line, []byte("abcdef")) * 16
		return got >= stalledAnswer/stalledSteps*stalledSteps-stalledRecord
	})
	if err != nil {
		b.Fatalf("%s: read %d bytes of the answer: %v", session, got, err)
	}
}

// openFiles counts the open files of a process, mostly connections.
func openFiles(b *testing.B, p *harness.Process) int {
	b.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID()))
	if err != nil {
		b.Fatal(err)
	}
	return len(entries)
}
