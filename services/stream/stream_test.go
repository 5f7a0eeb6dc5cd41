package stream_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/position"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/stream"
)

// patience bounds every wait of a test.
const patience = 3 * time.Minute

// fixture is a running service with a client.
type fixture struct {
	streamv2.StreamServiceClient
	stop func() // ends it like a signal; also runs at the end of the test
}

// start runs the service on an in-memory network.
func start(t *testing.T, c stream.Config) *fixture {
	t.Helper()
	return startWith(t, c, stream.Peers{})
}

// startWith is start with peers.
func startWith(t *testing.T, c stream.Config, p stream.Peers) *fixture {
	t.Helper()
	p.Log = slog.New(slog.DiscardHandler)
	service, err := stream.New(t.Context(), c, p)
	if err != nil {
		t.Fatal(err)
	}
	server, err := rpc.NewServer(rpc.ServerConfig{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	service.Register(server)
	network := rpc.NewMemory()
	listener, err := network.Listen(t.Context(), "stream")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { _ = rpc.Serve(ctx, server, listener, patience) }) // a call that delays the shutdown fails the test
	group.Go(func() { _ = service.Run(ctx) })
	conn, err := rpc.Dial(network, "stream", rpc.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(func() {
		cancel()
		group.Wait()
		_ = conn.Close()
		if err := service.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	t.Cleanup(stop)
	return &fixture{streamv2.NewStreamServiceClient(conn), stop}
}

func onMemory() stream.Config {
	c := stream.Defaults()
	c.Bus = stream.BusMemory
	return c
}

func onJetStream(t *testing.T) stream.Config {
	c := stream.Defaults()
	c.Bus, c.DataDir, c.Partitions = stream.BusEmbedded, t.TempDir(), 2
	c.Check = 200 * time.Millisecond
	return c
}

func refOf(session string) *streamv2.StreamRef {
	return &streamv2.StreamRef{Tenant: "acme", RootSessionId: session, SessionId: session}
}

// writer appends to a session like an executor: attempts at step 1, one chunk per record.
type writer struct {
	*fixture
	ref     *streamv2.StreamRef
	epoch   int64
	attempt int32
	n       int32 // of the last chunk
}

func (h *fixture) writer(ref *streamv2.StreamRef) *writer {
	return &writer{fixture: h, ref: ref, epoch: 1, attempt: 1}
}

func at(attempt, n int32) int64 {
	return position.Position{Step: 1, Attempt: attempt, N: n}.Sequence()
}

// append appends the next chunk of the attempt.
func (w *writer) append(ctx context.Context, delta string) error {
	r := &streamv2.AppendRequest{Stream: w.ref, Epoch: w.epoch, Records: []*streamv2.Record{{
		Sequence: at(w.attempt, w.n+1),
		Chunks: []*eventv1.Chunk{{
			AgentId: "run", Step: 1, Event: &eventv1.Chunk_TextDelta{TextDelta: &eventv1.TextDelta{Delta: delta}},
		}},
	}}}
	if w.n == 0 {
		r.Records[0].Attempt = &streamv2.Attempt{RunId: "run"}
	} else {
		r.After = at(w.attempt, w.n)
	}
	_, err := w.Append(ctx, r)
	if err == nil {
		w.n++
	}
	return err
}

// patientAppend repeats the append while the log is unavailable.
func (w *writer) patientAppend(ctx context.Context, delta string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := w.append(ctx, delta)
		if !errors.Is(err, fault.Unavailable) || ctx.Err() != nil {
			return err
		}
	}
}

func (w *writer) say(t *testing.T, deltas ...string) {
	t.Helper()
	for _, delta := range deltas {
		if err := w.patientAppend(t.Context(), delta); err != nil {
			t.Fatalf("append %q: %v", delta, err)
		}
	}
}

// begin begins the next attempt.
func (w *writer) begin(t *testing.T, deltas ...string) {
	t.Helper()
	w.attempt++
	w.n = 0
	w.say(t, deltas...)
}

// appendUntilLost appends until the log reports lost records.
func (w *writer) appendUntilLost(t *testing.T) {
	t.Helper()
	refused(t, w.patientAppend(t.Context(), "lost"), fault.Stale, "RECORDS_LOST")
}

// reading is one open Read.
type reading struct {
	stream grpc.ServerStreamingClient[streamv2.ReadResponse]
}

func (h *fixture) read(t *testing.T, r *streamv2.ReadRequest) reading {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	stream, err := h.Read(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	return reading{stream}
}

// describe returns a frame's text, or "caught up".
func describe(f *streamv2.ReadResponse) string {
	if f.GetCaughtUp() != nil {
		return "caught up"
	}
	return f.GetRecords().GetRecords()[0].GetChunks()[0].GetTextDelta().GetDelta()
}

// expect reads as many frames as given and compares them.
func (r reading) expect(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for range want {
		f, err := r.stream.Recv()
		if err != nil {
			t.Fatalf("got %q and then %v, want %q", got, err, want)
		}
		got = append(got, describe(f))
	}
	if !slices.Equal(got, want) {
		t.Fatalf("got  %q\nwant %q", got, want)
	}
}

// end reads frames until the call ends.
func (r reading) end() error {
	for {
		if _, err := r.stream.Recv(); err != nil {
			return err
		}
	}
}

// stored compares the stored texts.
func (h *fixture) stored(t *testing.T, r *streamv2.ReadRequest, want ...string) {
	t.Helper()
	r.StoredOnly = true
	reading := h.read(t, r)
	reading.expect(t, append(want, "caught up")...)
	if err := reading.end(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v at the end of what is stored, want a regular end", err)
	}
}

func refused(t *testing.T, err error, kind fault.Kind, reason string) {
	t.Helper()
	if !errors.Is(err, kind) || fault.ReasonOf(err) != reason {
		t.Fatalf("got %v, want %v (%s)", err, kind, reason)
	}
}

func TestReadersGetWhatIsStoredAndWhatComesOnEachLog(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]func(*testing.T) stream.Config{
		"memory":   func(*testing.T) stream.Config { return onMemory() },
		"embedded": onJetStream,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := start(t, config(t))
			w := h.writer(refOf("s"))
			early := h.read(t, &streamv2.ReadRequest{Stream: w.ref})
			early.expect(t, "caught up")
			w.say(t, "a", "b")
			early.expect(t, "a", "b")
			late := h.read(t, &streamv2.ReadRequest{Stream: w.ref, FromSequence: at(1, 1)})
			late.expect(t, "b", "caught up")
			w.say(t, "c")
			early.expect(t, "c")
			late.expect(t, "c")
			h.stop()
			for _, r := range []reading{early, late} {
				if err := r.end(); !errors.Is(err, fault.Unavailable) {
					t.Errorf("got %v at the end of the service, want unavailable", err)
				}
			}
		})
	}
}
