package feed

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fanout"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
)

// What the sink may be given between two flushes: frames come while the sink takes
// them, so that a long replay may never find nothing to wait for.
const (
	flushFrames = 64
	flushBytes  = 64 << 10 // of frames; the one that passes it is the last
)

// The limits of a ring where none are given.
const (
	defaultChunks = 512
	defaultBytes  = 4 << 20
)

// Sink takes what Follow reads, from one goroutine. An error ends Follow, which
// returns it as it is.
type Sink interface {
	// Frame takes the next frame, which other readers are given as well.
	Frame(f *Frame) error
	// Flush is called when no frame waits behind the last one, and after
	// flushFrames or flushBytes at the latest.
	Flush() error
	// Beat is called after each Feed.Beat without a frame.
	Beat() error
}

// Passer is a Sink that is told of the terminal records of the session that Follow passes
// over. An error ends Follow, as those of Frame do.
type Passer interface {
	Sink
	Passed(f *Frame) error
}

// Feed follows streams. It may be used by many goroutines.
type Feed struct {
	Client streamv1.StreamServiceClient
	Policy retry.Policy  // for how long the stream service may be away
	Beat   time.Duration // above 0
	Log    *slog.Logger
	// Chunks and Bytes say how far a live reader may lag behind; 0 is a default.
	Chunks, Bytes int

	mu     sync.Mutex
	topics map[key]*topic
}

func (f *Feed) limits() fanout.Limits {
	l := fanout.Limits{Values: f.Chunks, Bytes: f.Bytes}
	if l.Values <= 0 {
		l.Values = defaultChunks
	}
	if l.Bytes <= 0 {
		l.Bytes = defaultBytes
	}
	return l
}

// Follow reads from the request's cursor on and gives every frame to the sink.
// It returns nil after a terminal frame, which is caught_up where the request
// asks for history only; the sink's error; ctx's error; the stream service's
// fault when it does not pass (Unavailable after the policy's limit); or Exhausted
// (READER_TOO_SLOW) when the sink does not keep up with what happens.
//
// Of the request it takes the stream, the cursor, recorded_sequence and
//
//   - run_id: the terminal record of that run ends it, others are passed over (Passer).
//     Without it the first terminal record of the session ends a live read, and one
//     behind which nothing stands ends a history;
//   - family: the sink is given the chunks and rewinds of the sessions below a
//     root as well. Their terminal records it is never given;
//   - history_only.
//
// caught_up is given once.
func (f *Feed) Follow(ctx context.Context, r *streamv1.ReadRequest, sink Sink) error {
	v := newView(f, r, sink)
	if r.GetHistoryOnly() {
		stored := everything(r, v.cursor)
		stored.EveryRun, stored.HistoryOnly = r.GetRunId() != "", true // the view ends at the run's end
		stored.Family = stored.Family && r.GetFamily()                 // what a sub-agent has lost is nothing to others
		return v.history(ctx, stored)
	}
	for {
		again, err := v.follow(ctx)
		if !again {
			return err
		}
	}
}
