package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/position"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
)

const (
	ackWriters = 24
	ackKills   = 5
	// ackBetween is the number of acknowledged appends between two kills, so that each kill meets active
	// writers.
	ackBetween = 400
	ackLimit   = 5 * time.Minute
	ackPause   = 20 * time.Millisecond
)

// An acknowledged chunk in the embedded log survives the death of the process at any moment.
func TestWhatWasAcknowledgedSurvivesTheDeathOfAnEmbeddedLog(t *testing.T) {
	t.Parallel()
	for name, env := range map[string]string{
		"as it is":   "HOLDFAST_STREAM_SYNC=5s",
		"and strict": "HOLDFAST_STREAM_SYNC=0s",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			service := harness.StartStream(t, t.TempDir(), env)
			client := streamv2.NewStreamServiceClient(harness.DialInternal(t, service.Address))
			ctx, cancel := context.WithTimeout(t.Context(), ackLimit)
			defer cancel()

			var acknowledged atomic.Int64
			stop := make(chan struct{})
			var writing sync.WaitGroup
			writers := make([]*ackWriter, ackWriters)
			for i := range writers {
				writers[i] = &ackWriter{client: client, session: fmt.Sprintf("session %d", i), count: &acknowledged}
				writing.Go(func() { writers[i].write(ctx, stop) })
			}
			for range ackKills {
				wanted := acknowledged.Load() + ackBetween
				harness.WaitFor(t, ackLimit, "more appends", func() (bool, string) {
					return acknowledged.Load() >= wanted, fmt.Sprint(acknowledged.Load())
				})
				service.Restart()
			}
			close(stop)
			writing.Wait()
			service.Restart()
			for _, w := range writers {
				w.check(ctx, t)
			}
		})
	}
}

// ackWriter appends one attempt to one session's log and records acknowledgements.
type ackWriter struct {
	client  streamv2.StreamServiceClient
	session string
	count   *atomic.Int64
	kept    []string
	err     error
}

func (w *ackWriter) stream() *streamv2.StreamRef {
	return &streamv2.StreamRef{Tenant: tenant, RootSessionId: w.session, SessionId: w.session}
}

// write appends chunks one by one and repeats unanswered requests.
func (w *ackWriter) write(ctx context.Context, stop <-chan struct{}) {
	var last int64
	for n := int32(1); ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		text := fmt.Sprintf("%s, chunk %d", w.session, n)
		record := &streamv2.Record{
			Sequence: position.Position{Step: 1, Attempt: 1, N: n}.Sequence(),
			Chunks: []*eventv1.Chunk{{
				AgentId: "run", Step: 1, Event: &eventv1.Chunk_TextDelta{TextDelta: &eventv1.TextDelta{Delta: text}},
			}},
		}
		if n == 1 {
			record.Attempt = &streamv2.Attempt{RunId: "run"}
		}
		if _, err := w.append(ctx, &streamv2.AppendRequest{Stream: w.stream(), Epoch: 1, After: last, Records: []*streamv2.Record{record}}); err != nil {
			w.err = fmt.Errorf("append %d: %w", n, err)
			return
		}
		last = record.GetSequence()
		w.kept = append(w.kept, fmt.Sprint(last, text))
		w.count.Add(1)
	}
}

func (w *ackWriter) append(ctx context.Context, r *streamv2.AppendRequest) (*streamv2.AppendResponse, error) {
	for {
		answer, err := w.client.Append(ctx, r)
		if fault.KindOf(err) != fault.Unavailable || ctx.Err() != nil {
			return answer, err
		}
		select {
		case <-time.After(ackPause):
		case <-ctx.Done():
		}
	}
}

// check reads the session back.
func (w *ackWriter) check(ctx context.Context, t *testing.T) {
	t.Helper()
	if w.err != nil {
		t.Error(w.err)
	}
	records, err := storedRecords(ctx, w.client, w.session)
	if err != nil {
		t.Fatalf("read %s: %v", w.session, err)
	}
	var stored []string
	for _, r := range records {
		for i, c := range r.GetChunks() {
			stored = append(stored, fmt.Sprint(r.GetSequence()+int64(i), c.GetTextDelta().GetDelta()))
		}
	}
	if !slices.Equal(stored, w.kept) {
		t.Errorf("the log of %s is\n%s\nwant exactly what was acknowledged,\n%s", w.session, strings.Join(stored, "\n"), strings.Join(w.kept, "\n"))
	}
}
