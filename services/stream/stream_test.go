package stream_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/stream"
)

// patience is how long a test waits for what must come.
const patience = 3 * time.Minute

// house is a running service and a client of it.
type house struct {
	streamv1.StreamServiceClient
	conn *grpc.ClientConn
	stop func() // ends it as a signal would; runs at the end of the test, too
}

// start runs the service on a network in memory.
func start(t testing.TB, c stream.Config) *house {
	t.Helper()
	service, err := stream.New(t.Context(), c, stream.Peers{Log: slog.New(slog.DiscardHandler)})
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
	group.Go(func() { _ = rpc.Serve(ctx, server, listener, patience) }) // whoever holds up the shutdown is seen
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
	return &house{streamv1.NewStreamServiceClient(conn), conn, stop}
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

// onEachBus runs the test on every log.
func onEachBus(t *testing.T, test func(t *testing.T, h *house)) {
	t.Helper()
	onEachBusWith(t, func(*stream.Config) {}, test)
}

// onEachBusWith does so with a change of the configuration.
func onEachBusWith(t *testing.T, change func(*stream.Config), test func(t *testing.T, h *house)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		c := onMemory()
		change(&c)
		test(t, start(t, c))
	})
	t.Run("jetstream", func(t *testing.T) {
		t.Parallel()
		c := onJetStream(t)
		change(&c)
		test(t, start(t, c))
	})
}

func refOf(session string) *streamv1.StreamRef {
	return &streamv1.StreamRef{Tenant: "acme", RootSessionId: session, SessionId: session}
}

// text is a chunk of a step of a run.
func text(run string, step int32, delta string) *eventv1.Chunk {
	return &eventv1.Chunk{AgentId: run, AgentType: "test", Step: step, Event: &eventv1.Chunk_TextDelta{TextDelta: &eventv1.TextDelta{Delta: delta}}}
}

func ended(run string) *streamv1.Terminal {
	return &streamv1.Terminal{RunId: run, Outcome: &streamv1.Terminal_End{End: &streamv1.End{
		Status: streamv1.EndStatus_END_STATUS_COMPLETED, Output: `"done"`,
	}}}
}

// writer appends as an executor does.
type writer struct {
	*house
	ref    *streamv1.StreamRef
	run    string
	epoch  int64
	number int64 // of the last append
	last   int64 // its sequence
}

func (h *house) writer(ref *streamv1.StreamRef, run string, epoch int64) *writer {
	return &writer{house: h, ref: ref, run: run, epoch: epoch}
}

func (w *writer) request() *streamv1.AppendRequest {
	return &streamv1.AppendRequest{Stream: w.ref, Epoch: w.epoch, Number: w.number + 1, ExpectedLastSequence: w.last}
}

func (w *writer) append(ctx context.Context, r *streamv1.AppendRequest) error {
	answer, err := w.Append(ctx, r)
	if err != nil {
		return err
	}
	w.number, w.last = r.GetNumber(), answer.GetSequence()
	return nil
}

// chunk is the append of a text.
func (w *writer) chunk(step int32, delta string) *streamv1.AppendRequest {
	r := w.request()
	r.Record = &streamv1.AppendRequest_Chunk{Chunk: text(w.run, step, delta)}
	return r
}

func (w *writer) text(ctx context.Context, step int32, delta string) error {
	return w.append(ctx, w.chunk(step, delta))
}

// insistOn appends until the log takes it, as an executor does: the number says
// which append it is, however often it comes.
func (w *writer) insistOn(ctx context.Context, r *streamv1.AppendRequest) error {
	for deadline := time.Now().Add(patience); ; {
		err := w.append(ctx, r)
		if err == nil || !errors.Is(err, fault.Unavailable) || time.Now().After(deadline) {
			return err
		}
	}
}

func (w *writer) insist(t *testing.T, delta string) error {
	return w.insistOn(t.Context(), w.chunk(1, delta))
}

func (w *writer) say(t *testing.T, step int32, deltas ...string) {
	t.Helper()
	for _, delta := range deltas {
		if err := w.insistOn(t.Context(), w.chunk(step, delta)); err != nil {
			t.Fatalf("append %q: %v", delta, err)
		}
	}
}

func (w *writer) end(t *testing.T, terminal *streamv1.Terminal) {
	t.Helper()
	r := w.request()
	r.Record = &streamv1.AppendRequest_Terminal{Terminal: terminal}
	if err := w.insistOn(t.Context(), r); err != nil {
		t.Fatalf("append terminal: %v", err)
	}
}

func (w *writer) rewind(t *testing.T, from int64, step int32) *streamv1.RewindResponse {
	t.Helper()
	answer, err := w.Rewind(t.Context(), &streamv1.RewindRequest{
		Stream: w.ref, Epoch: w.epoch, Number: w.number + 1, ExpectedLastSequence: w.last,
		RunId: w.run, FromSequence: from, Step: step, Reason: "executor_lost",
	})
	if err != nil {
		t.Fatalf("rewind: %v", err)
	}
	w.number++
	w.last = answer.GetSequence()
	return answer
}

// reading is one open Read.
type reading struct {
	stream grpc.ServerStreamingClient[streamv1.ReadResponse]
	cancel context.CancelFunc
}

func (h *house) read(t *testing.T, r *streamv1.ReadRequest) *reading {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	stream, err := h.Read(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	return &reading{stream, cancel}
}

// next returns the next frame in words.
func (r *reading) next(t *testing.T) string {
	t.Helper()
	frame, err := r.stream.Recv()
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	return words(frame)
}

// rest returns the frames in words until the call ends well.
func (r *reading) rest(t *testing.T) []string {
	t.Helper()
	frames, err := r.drain()
	if err != nil {
		t.Fatalf("read after %q: %v", frames, err)
	}
	return frames
}

func (r *reading) drain() ([]string, error) {
	var frames []string
	for {
		frame, err := r.stream.Recv()
		if errors.Is(err, io.EOF) {
			return frames, nil
		}
		if err != nil {
			return frames, err
		}
		frames = append(frames, words(frame))
	}
}
