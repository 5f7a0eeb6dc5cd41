package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric/noop"
	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/grant"
	"github.com/holdfast-run/holdfast/pkg/position"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/stream/internal/log"
	"github.com/holdfast-run/holdfast/services/stream/internal/log/memory"
	"github.com/holdfast-run/holdfast/services/stream/internal/server"
)

// patience bounds every wait of a test.
const patience = 2 * time.Minute

// recordBytes is the largest record of these tests.
const recordBytes = 64 << 10

// replica is a replica of the service with a client.
type replica struct {
	streamv2.StreamServiceClient
}

// open runs the service on a log. The caller runs the log.
func open(t *testing.T, l log.Log) replica {
	t.Helper()
	return openWith(t, l, grant.Keys{})
}

// openWith is open with the keys of grants.
func openWith(t *testing.T, l log.Log, keys grant.Keys) replica {
	t.Helper()
	service, err := server.New(l, keys, recordBytes, noop.Meter{})
	if err != nil {
		t.Fatal(err)
	}
	grpcServer, err := rpc.NewServer(rpc.ServerConfig{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	streamv2.RegisterStreamServiceServer(grpcServer, service)
	network := rpc.NewMemory()
	listener, err := network.Listen(t.Context(), "stream")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { _ = rpc.Serve(ctx, grpcServer, listener, 0) })
	conn, err := rpc.Dial(network, "stream", rpc.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		group.Wait()
		_ = conn.Close()
	})
	return replica{streamv2.NewStreamServiceClient(conn)}
}

func onMemory(t *testing.T) replica { return open(t, memory.New(memory.Options{})) }

func at(step, attempt, n int32) int64 {
	return position.Position{Step: step, Attempt: attempt, N: n}.Sequence()
}

func refOf(session string) *streamv2.StreamRef {
	return &streamv2.StreamRef{Tenant: "t", RootSessionId: session, SessionId: session}
}

func childOf(root, session string) *streamv2.StreamRef {
	return &streamv2.StreamRef{Tenant: "t", RootSessionId: root, SessionId: session}
}

func text(delta string) *eventv1.Chunk {
	return &eventv1.Chunk{AgentId: "run", Step: 1, Event: &eventv1.Chunk_TextDelta{TextDelta: &eventv1.TextDelta{Delta: delta}}}
}

// writer appends to a session like an executor.
type writer struct {
	replica

	ref   *streamv2.StreamRef
	epoch int64
	after int64
}

// begin returns a request that begins an attempt with these texts.
func (w *writer) begin(step, attempt int32, texts ...string) *streamv2.AppendRequest {
	r := w.request(at(step, attempt, 1), texts)
	r.Records[0].Attempt = &streamv2.Attempt{RunId: "run"}
	return r
}

// continueWith returns a request that continues the attempt.
func (w *writer) continueWith(texts ...string) *streamv2.AppendRequest {
	return w.request(w.after+1, texts)
}

func (w *writer) request(sequence int64, texts []string) *streamv2.AppendRequest {
	record := &streamv2.Record{Sequence: sequence}
	for _, delta := range texts {
		record.Chunks = append(record.Chunks, text(delta))
	}
	return &streamv2.AppendRequest{Stream: w.ref, Epoch: w.epoch, After: w.after, Records: []*streamv2.Record{record}}
}

func (w *writer) commit(step int32) *streamv2.AppendRequest {
	return &streamv2.AppendRequest{Stream: w.ref, Epoch: w.epoch, After: w.after, Records: []*streamv2.Record{{
		Sequence: position.Committed(step),
		Boundary: &streamv2.Boundary{Last: w.after, StepCommitted: &eventv1.Chunk{
			AgentId: "run", Step: step, Event: &eventv1.Chunk_StepCommitted{StepCommitted: &eventv1.StepCommitted{CheckpointId: "c"}},
		}},
	}}}
}

// continueAndCommit returns a request that ends the step with these texts and begins the next one.
func (w *writer) continueAndCommit(step int32, rest, next string) *streamv2.AppendRequest {
	r, after := w.continueWith(rest), w.after
	w.after = lastOf(r)
	r.Records = append(r.Records, w.commit(step).GetRecords()...)
	r.Records = append(r.Records, w.begin(step+1, 1, next).GetRecords()...)
	w.after = after
	return r
}

// requestOf converts a received frame to a request.
func requestOf(f *streamv2.ReadResponse) *streamv2.AppendRequest {
	return &streamv2.AppendRequest{Records: f.GetRecords().GetRecords()}
}

// firstOf and lastOf return the sequences of a request's first and last frame; 0 for a check.
func firstOf(r *streamv2.AppendRequest) int64 {
	if len(r.GetRecords()) == 0 {
		return 0
	}
	return r.GetRecords()[0].GetSequence()
}

func lastOf(r *streamv2.AppendRequest) int64 {
	if len(r.GetRecords()) == 0 {
		return 0
	}
	last := r.GetRecords()[len(r.GetRecords())-1]
	return last.GetSequence() + int64(max(len(last.GetChunks()), 1)) - 1
}

func (w *writer) check() *streamv2.AppendRequest {
	return &streamv2.AppendRequest{Stream: w.ref, Epoch: w.epoch, After: w.after}
}

// mustSend sends a valid request and repeats it while the log is unavailable.
func (w *writer) mustSend(t *testing.T, r *streamv2.AppendRequest) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		_, err := w.Append(t.Context(), r)
		if err == nil {
			w.after = lastOf(r)
			return
		}
		if !errors.Is(err, fault.Unavailable) || time.Now().After(deadline) {
			t.Fatalf("append at %+v: %v", position.Of(firstOf(r)), err)
		}
	}
}

// mustBeRefused sends a request and expects a refusal with the reason.
func (w *writer) mustBeRefused(t *testing.T, r *streamv2.AppendRequest, reason string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		_, err := w.Append(t.Context(), r)
		if fault.ReasonOf(err) == reason {
			return
		}
		if !errors.Is(err, fault.Unavailable) || time.Now().After(deadline) {
			t.Fatalf("append at %+v: got %v, want %s", position.Of(firstOf(r)), err, reason)
		}
	}
}

// reader is an open Read.
type reader struct {
	stream  grpc.ServerStreamingClient[streamv2.ReadResponse]
	waiting []string // descriptions of the last frame's remaining records
}

func (h replica) read(t *testing.T, r *streamv2.ReadRequest) *reader {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	stream, err := h.Read(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	return &reader{stream: stream}
}

// describe describes the records of a frame: the session and the texts, or the kind.
func describe(f *streamv2.ReadResponse) []string {
	if f.GetCaughtUp() != nil {
		return []string{"caught up"}
	}
	var lines []string
	for _, r := range f.GetRecords().GetRecords() {
		lines = append(lines, wordsOf(f.GetRecords().GetSessionId(), r))
	}
	return lines
}

func wordsOf(session string, r *streamv2.Record) string {
	p := position.Of(r.GetSequence())
	if r.GetBoundary() != nil {
		return fmt.Sprintf("%s commits %d", session, p.Step)
	}
	line := fmt.Sprintf("%s %d.%d.%d", session, p.Step, p.Attempt, p.N)
	for _, c := range r.GetChunks() {
		line += " " + c.GetTextDelta().GetDelta()
	}
	return line
}

// expect reads as many records as given and compares them.
func (r *reader) expect(t *testing.T, want ...string) {
	t.Helper()
	got := r.waiting
	for len(got) < len(want) {
		f, err := r.stream.Recv()
		if err != nil {
			t.Fatalf("got %q and then %v, want %q", got, err, want)
		}
		got = append(got, describe(f)...)
	}
	got, r.waiting = got[:len(want):len(want)], got[len(want):]
	if !slices.Equal(got, want) {
		t.Fatalf("got  %q\nwant %q", got, want)
	}
}

// expectEnd reads to the end and expects the reason; "" is a regular end.
func (r *reader) expectEnd(t *testing.T, reason string) (frames int) {
	t.Helper()
	for ; ; frames++ {
		_, err := r.stream.Recv()
		if reason == "" && errors.Is(err, io.EOF) || reason != "" && fault.ReasonOf(err) == reason {
			return frames
		}
		if err != nil {
			t.Fatalf("got the end %v, want %q", err, reason)
		}
	}
}
