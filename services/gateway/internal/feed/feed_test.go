package feed_test

import (
	"context"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/feed"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
)

// replay is a stream service with a history of chunks of one size, and a call to
// it, that never lets its reader wait.
type replay struct {
	streamv1.StreamServiceClient
	grpc.ServerStreamingClient[streamv1.ReadResponse]

	chunks, size int
	asked        atomic.Int64 // how often Recv was called
}

func (r *replay) Read(context.Context, *streamv1.ReadRequest, ...grpc.CallOption) (grpc.ServerStreamingClient[streamv1.ReadResponse], error) {
	return r, nil
}

func (r *replay) Recv() (*streamv1.ReadResponse, error) {
	switch n := r.asked.Add(1); {
	case n <= int64(r.chunks):
		text := &eventv1.Chunk_TextDelta{TextDelta: &eventv1.TextDelta{Delta: strings.Repeat("x", r.size)}}
		return &streamv1.ReadResponse{Frame: &streamv1.ReadResponse_Chunk{Chunk: &streamv1.ChunkFrame{Sequence: n, Chunk: &eventv1.Chunk{Event: text}}}}, nil
	case n == int64(r.chunks)+1:
		return &streamv1.ReadResponse{Frame: &streamv1.ReadResponse_End{End: &streamv1.EndFrame{Sequence: n}}}, nil
	default:
		return nil, io.EOF
	}
}

// slow is a sink that takes a frame only when another one waits behind it.
type slow struct {
	replay               *replay
	frames               int
	pending, pendingSize int // since the last flush
	most, mostSize       int
}

func (s *slow) Frame(f *feed.Frame) error {
	s.frames++
	// The pump asks for a frame when the one before it is in the channel.
	for s.replay.asked.Load() < int64(min(s.frames+2, s.replay.chunks+1)) {
		runtime.Gosched()
	}
	s.pending, s.pendingSize = s.pending+1, s.pendingSize+proto.Size(f.ReadResponse)
	s.most, s.mostSize = max(s.most, s.pending), max(s.mostSize, s.pendingSize)
	return nil
}

func (s *slow) Flush() error {
	s.pending, s.pendingSize = 0, 0
	return nil
}

func (s *slow) Beat() error { return nil }

func TestAReplayIsFlushedOnTheWay(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ chunks, size int }{
		"many small frames": {5000, 10},
		"large frames":      {100, 40 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &replay{chunks: tc.chunks, size: tc.size}
			s := &slow{replay: r}
			f := feed.Feed{Client: r, Policy: retry.Policy{Now: time.Now}, Beat: time.Minute, Log: slog.New(slog.DiscardHandler)}
			if err := f.Follow(t.Context(), &streamv1.ReadRequest{}, s); err != nil {
				t.Fatal(err)
			}
			if s.frames != tc.chunks+1 || s.pending != 0 {
				t.Errorf("got %d frames and %d of them not flushed, want %d and 0", s.frames, s.pending, tc.chunks+1)
			}
			if s.most > 64 || s.mostSize > 64<<10+tc.size+100 {
				t.Errorf("%d frames of %d bytes were not flushed at once", s.most, s.mostSize)
			}
		})
	}
}
