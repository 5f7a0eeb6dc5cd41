package bench_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

const (
	// together is the number of concurrent attaches or starts.
	together    = 32
	attachLimit = 30 * time.Second
	// drainLimit bounds the delivery of sent chunks.
	drainLimit = 5 * time.Second
	// stampBytes is the length of a stamp until the year 2286.
	stampBytes = 19
	// lateAfter is the delay of a late chunk.
	lateAfter = time.Second
	// pacedReaders is the average lead in chunks of a writer over its readers when it writes as fast as they
	// read. It is well below the limit for disconnecting a reader.
	pacedReaders = 64
)

// some calls f for every number below n, a few at a time.
func some(n int, f func(i int) error) error {
	var next atomic.Int64
	return each(min(n, together), func(int) error {
		for {
			i := int(next.Add(1)) - 1
			if i >= n {
				return nil
			}
			if err := f(i); err != nil {
				return err
			}
		}
	})
}

// audience is a group of readers of the same or of different stamps.
type audience struct {
	readers []reader
	heard   atomic.Int64
	gone    atomic.Int64 // disconnected readers
	close   func()
}

// reader is one reader of an audience.
type reader struct {
	mu    sync.Mutex
	times []time.Duration
}

// record records a received stamp.
func (a *audience) record(i int, text string) {
	took, err := age(text)
	if err != nil {
		return
	}
	r := &a.readers[i]
	r.mu.Lock()
	r.times = append(r.times, took)
	r.mu.Unlock()
	a.heard.Add(1)
}

// reset starts a new measurement.
func (a *audience) reset() {
	for i := range a.readers {
		r := &a.readers[i]
		r.mu.Lock()
		r.times = nil
		r.mu.Unlock()
	}
	a.heard.Store(0)
}

// drain waits until the readers have received want stamps, or no more arrive.
func (a *audience) drain(want int64) {
	for deadline := time.Now().Add(drainLimit); a.heard.Load() < want && time.Now().Before(deadline); {
		<-time.After(10 * time.Millisecond)
	}
}

// all returns the times of all readers.
func (a *audience) all() []time.Duration {
	var times []time.Duration
	for i := range a.readers {
		r := &a.readers[i]
		r.mu.Lock()
		times = append(times, r.times...)
		r.mu.Unlock()
	}
	slices.Sort(times)
	return times
}

// gather attaches n readers to sessions by SSE and returns once all have caught up and seen the start of the
// run.
func gather(b *testing.B, c harness.Client, n int, session func(i int) string) *audience {
	b.Helper()
	needFiles(b, 2*n)
	a := &audience{readers: make([]reader, n)}
	streams := make([]*sse, n)
	var listening sync.WaitGroup
	var closing atomic.Bool
	a.close = func() {
		closing.Store(true)
		for _, s := range streams {
			if s != nil {
				_ = s.conn.Close()
			}
		}
		listening.Wait()
	}
	err := some(n, func(i int) error {
		s, err := attach(b.Context(), c, session(i))
		if err != nil {
			return err
		}
		streams[i] = s
		begun, caughtUp := false, false
		return s.until(func(line []byte) bool {
			begun = begun || bytes.Contains(line, []byte(`"type":"step_started"`))
			caughtUp = caughtUp || bytes.HasPrefix(line, []byte("event: caught-up"))
			return begun && caughtUp
		})
	})
	if err != nil {
		a.close()
		b.Fatalf("attach %d readers: %v", n, err)
	}
	for i, s := range streams {
		listening.Go(func() {
			err := s.conn.SetDeadline(time.Time{})
			if err == nil {
				err = s.until(func(line []byte) bool {
					if text, said := s.stampOf(line); said {
						a.record(i, text)
					}
					return false
				})
			}
			if err != nil && !closing.Load() {
				a.gone.Add(1)
			}
		})
	}
	return a
}

// sse reads a connection to GET /sse without allocating.
type sse struct {
	conn  net.Conn
	lines *bufio.Reader
}

// attach opens a new connection and requests the whole session.
func attach(ctx context.Context, c harness.Client, session string) (*sse, error) {
	return attachTo(ctx, c, "/sse?fromSequence=0&sessionId="+url.QueryEscape(session))
}

// attachTo opens a new connection and requests a stream of events.
func attachTo(ctx context.Context, c harness.Client, path string) (*sse, error) {
	ctx, cancel := context.WithTimeout(ctx, attachLimit)
	defer cancel()
	deadline, _ := ctx.Deadline() // until it has caught up
	var d net.Dialer
	address := strings.TrimPrefix(c.URL, "http://")
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	request := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", path, address, c.Key)
	if _, err := conn.Write([]byte(request)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	s := &sse{conn, bufio.NewReaderSize(conn, 2048)}
	status, err := s.lines.ReadString('\n')
	if err == nil && !strings.Contains(status, strconv.Itoa(http.StatusOK)) {
		err = fmt.Errorf("GET %s: %s", path, strings.TrimSpace(status))
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return s, nil
}

// until reads lines until look is satisfied. A long line arrives in pieces.
func (s *sse) until(look func(line []byte) bool) error {
	for {
		line, err := s.lines.ReadSlice('\n')
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
		if look(line) {
			return nil
		}
	}
}

var beforeStamp = []byte(`"delta":"`)

// stampOf returns the stamp of a line, if any.
func (s *sse) stampOf(line []byte) (stamp string, ok bool) {
	at := bytes.Index(line, beforeStamp)
	if at < 0 || len(line) < at+len(beforeStamp)+stampBytes {
		return "", false
	}
	return string(line[at+len(beforeStamp):][:stampBytes]), true
}

// subscribe gathers n subscriptions of subjects, over a few connections.
func (r *rawLog) subscribe(b *testing.B, n int, subject func(i int) string) *audience {
	b.Helper()
	a := &audience{readers: make([]reader, n)}
	var subscriptions []*nats.Subscription
	for i := range n {
		s, err := r.conns[i%len(r.conns)].Subscribe(subject(i), func(m *nats.Msg) { a.record(i, string(m.Data[:stampBytes])) })
		if err != nil {
			b.Fatal(err)
		}
		subscriptions = append(subscriptions, s)
	}
	for _, conn := range r.conns {
		if err := conn.Flush(); err != nil {
			b.Fatal(err)
		}
	}
	a.close = func() {
		for _, s := range subscriptions {
			_ = s.Unsubscribe() // the connection is closed soon
		}
	}
	return a
}

// pace is the actual pace of writers against the requested one.
type pace struct {
	asked float64 // a second, of all writers
	sent  int64
	due   int64 // exceeds the number sent if late writers merged chunks
	took  time.Duration
}

func (p pace) rate() float64 { return float64(p.sent) / p.took.Seconds() }

// paced lets n writers send a text every period. A late writer sends one text for several, as an executor merges
// waiting chunks; its stamp is the due time of the first, so waiting counts.
func paced(b *testing.B, n int, period, window time.Duration, say func(ctx context.Context, i int, text string) error) pace {
	b.Helper()
	var sent, owed atomic.Int64
	var writers sync.WaitGroup
	begin := time.Now()
	for i := range n {
		writers.Go(func() {
			due := begin.Add(period * time.Duration(i) / time.Duration(n))
			for due.Sub(begin) < window {
				<-time.After(time.Until(due))
				if err := say(b.Context(), i, stamp(due)); err != nil {
					b.Error(err)
					return
				}
				sent.Add(1)
				said := 1 + max(0, time.Since(due)/period)
				owed.Add(int64(said))
				due = due.Add(period * said)
			}
		})
	}
	writers.Wait()
	return pace{float64(n) / period.Seconds(), sent.Load(), owed.Load(), time.Since(begin)}
}

// delivered is the readers' share of the sent texts.
type delivered struct {
	rate      float64 // a second, of all readers
	p50, p99  time.Duration
	late      int
	want, got int64
	gone      int64
}

func (a *audience) delivered(want int64, window time.Duration) delivered {
	a.drain(want)
	times := a.all()
	late, _ := slices.BinarySearch(times, lateAfter)
	return delivered{
		rate: float64(len(times)) / window.Seconds(), p50: quantile(times, 0.5), p99: quantile(times, 0.99),
		late: len(times) - late, want: want, got: int64(len(times)), gone: a.gone.Load(),
	}
}

func (d delivered) String() string {
	text := fmt.Sprintf("p50 %8s, p99 %8s; %d later than %v, %d lost", d.p50, d.p99, d.late, lateAfter, d.want-d.got)
	if d.gone > 0 {
		text += fmt.Sprintf(", %d readers cut", d.gone)
	}
	return text
}

// needFiles fails the benchmark if the process cannot open that many connections.
func needFiles(b *testing.B, n int) {
	b.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		b.Fatal(err)
	}
	// Go raises the soft limit to the hard one in every process.
	if limit.Max < uint64(n+1000) {
		b.Fatalf("%d files may be open here, %d are needed: raise the hard limit (ulimit -Hn)", limit.Max, n+1000)
	}
}

// resident returns the resident memory of a process in bytes, or 0 if unknown.
func resident(pid int) int64 {
	return proc(pid, "statm", 1) * int64(os.Getpagesize())
}

// processorTime returns the processor time of a process, or 0 if unknown.
func processorTime(pid int) time.Duration {
	const user, system = 13, 14 // proc(5), counted from 0; a tick is 10 ms on every architecture
	return time.Duration(proc(pid, "stat", user)+proc(pid, "stat", system)) * 10 * time.Millisecond
}

// proc returns a number from a /proc file of a process whose name has no space.
func proc(pid int, file string, field int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) <= field {
		return 0
	}
	n, err := strconv.ParseInt(fields[field], 10, 64)
	if err != nil {
		return 0
	}
	return n
}
