package bench_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/e2e/harness"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
)

// Settings of all stream benchmarks. With -short they are small and only show that the benchmarks work.
const (
	streamConns  = 4 // gRPC or NATS connections of all clients together
	streamTenant = "first"
	// partitions is the default number of streams in the log.
	partitions  = 16
	shortFactor = 10
)

// sized returns n, or less with -short.
func sized(n int) int {
	if testing.Short() {
		return max(1, n/shortFactor)
	}
	return n
}

func lasting(d time.Duration) time.Duration {
	if testing.Short() {
		return d / shortFactor
	}
	return d
}

// load is the result of some clients.
type load struct {
	rate     float64 // a second
	p50, p99 time.Duration
	n        int
}

func loadOf(times []time.Duration, window time.Duration) load {
	slices.Sort(times)
	return load{float64(len(times)) / window.Seconds(), quantile(times, 0.5), quantile(times, 0.99), len(times)}
}

// fast lets n clients call do in sequence until the window closes.
func fast(b *testing.B, n int, window time.Duration, do func(ctx context.Context, client int) error) load {
	b.Helper()
	times := make([][]time.Duration, n)
	var clients sync.WaitGroup
	begin := time.Now()
	for client := range n {
		clients.Go(func() {
			for time.Since(begin) < window {
				at := time.Now()
				if err := do(b.Context(), client); err != nil {
					b.Error(err)
					return
				}
				times[client] = append(times[client], time.Since(at))
			}
		})
	}
	clients.Wait()
	return loadOf(slices.Concat(times...), time.Since(begin))
}

func dialStream(b *testing.B, address string) []*grpc.ClientConn {
	b.Helper()
	var conns []*grpc.ClientConn
	for range streamConns {
		conns = append(conns, harness.DialInternal(b, address, streamv2.StreamService_Append_FullMethodName))
	}
	return conns
}

// rawLog is the basis of the stream service without the service: a NATS server in this process with equal stream
// settings, and nats.go over loopback.
type rawLog struct {
	conns []*nats.Conn
	js    []jetstream.JetStream
}

func startRawLog(b *testing.B) *rawLog {
	b.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: b.TempDir(), NoSigs: true,
		JetStreamMaxStore: math.MaxInt64, SyncInterval: 5 * time.Second,
	})
	if err != nil {
		b.Fatal(err)
	}
	s.Start()
	b.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(10 * time.Second) {
		b.Fatal("the NATS server does not get ready")
	}
	r := &rawLog{}
	for range streamConns {
		conn, err := nats.Connect(s.ClientURL())
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(conn.Close)
		js, err := jetstream.New(conn)
		if err != nil {
			b.Fatal(err)
		}
		r.conns, r.js = append(r.conns, conn), append(r.js, js)
	}
	for n := range partitions {
		if _, err := r.js[0].CreateStream(b.Context(), rawStream(n)); err != nil {
			b.Fatal(err)
		}
	}
	return r
}

func rawStream(n int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: fmt.Sprintf("RAW_%02d", n), Subjects: []string{fmt.Sprintf("raw.chunks.%02d.>", n)},
		Storage: jetstream.FileStorage, Discard: jetstream.DiscardOld, MaxAge: 24 * time.Hour, MaxBytes: 512 << 20,
		MaxMsgsPerSubject: 100_000, AllowDirect: true, Duplicates: 100 * time.Millisecond,
		RePublish: &jetstream.RePublish{Source: fmt.Sprintf("raw.chunks.%02d.>", n), Destination: fmt.Sprintf("raw.live.%02d.>", n)},
	}
}

// rawWriter publishes to one subject, fenced by nats.go.
type rawWriter struct {
	js      jetstream.JetStream
	subject string
	last    uint64
}

func (r *rawLog) writers(n int, name string) []*rawWriter {
	all := make([]*rawWriter, n)
	for i := range all {
		all[i] = &rawWriter{js: r.js[i%len(r.js)], subject: rawSubject("chunks", name, i)}
	}
	return all
}

// rawSubject returns a session's subject, in the stream or as republished.
func rawSubject(kind, name string, i int) string {
	return fmt.Sprintf("raw.%s.%02d.%s.root%d.session%d", kind, i%partitions, name, i, i)
}

func (w *rawWriter) say(ctx context.Context, text string) error {
	ack, err := w.js.Publish(ctx, w.subject, rawChunk(text), jetstream.WithExpectLastSequencePerSubject(w.last))
	if err == nil {
		w.last = ack.Sequence
	}
	return err
}

// rawChunk is about as large as a stored chunk with the text.
func rawChunk(text string) []byte {
	body := make([]byte, 0, 96+len(text))
	return append(append(body, text...), make([]byte, 64)...)
}

// stamp encodes the time as a chunk's text.
func stamp(at time.Time) string { return strconv.FormatInt(at.UnixNano(), 10) }

// age returns the time since a stamp.
func age(text string) (time.Duration, error) {
	at, err := strconv.ParseInt(text, 10, 64)
	return time.Duration(time.Now().UnixNano() - at), err
}
