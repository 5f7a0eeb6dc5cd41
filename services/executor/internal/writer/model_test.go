package writer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/writer"
)

// fate is what becomes of a request.
type fate struct {
	Most int  // chunks that are stored at most
	Lost bool // the answer
	Slow int  // milliseconds
}

// strict is a log that takes a part of a request, loses answers, and finds fault with
// a writer that breaks the rules.
type strict struct {
	streamv1.StreamServiceClient

	fates  []fate // of the next requests; later ones are stored whole
	edge   int    // of one chunk
	chunks []*eventv1.Chunk
	faults []string
}

func (l *strict) complain(format string, args ...any) {
	l.faults = append(l.faults, fmt.Sprintf(format, args...))
}

func (l *strict) Append(_ context.Context, r *streamv1.AppendRequest, _ ...grpc.CallOption) (*streamv1.AppendResponse, error) {
	now := fate{Most: 64}
	if len(l.fates) > 0 {
		now, l.fates = l.fates[0], l.fates[1:]
	}
	time.Sleep(time.Duration(now.Slow) * time.Millisecond)
	chunks := append([]*eventv1.Chunk{r.GetChunk()}, r.GetMore()...)
	for _, chunk := range chunks {
		if proto.Size(chunk) > l.edge {
			return nil, fault.New(fault.TooLarge, "CHUNK_TOO_LARGE", "%d bytes", proto.Size(chunk))
		}
	}
	stored := l.store(r.GetNumber(), chunks, now.Most)
	if now.Lost || stored == 0 {
		return nil, away(0)
	}
	return &streamv1.AppendResponse{Sequence: 1000 + r.GetNumber() + int64(stored) - 1, Stored: int32(stored)}, nil //nolint:gosec // 64 at most
}

// store stores most chunks behind those that stand, and says how many of all stand.
func (l *strict) store(number int64, chunks []*eventv1.Chunk, most int) int {
	standing := int64(len(l.chunks)) - number + 1
	if standing < 0 || standing > int64(len(chunks)) {
		l.complain("%d chunks from number %d on come behind %d", len(chunks), number, len(l.chunks))
		return 0
	}
	for i, chunk := range chunks[:standing] {
		if stands := l.chunks[number-1+int64(i)]; !proto.Equal(stands, chunk) {
			l.complain("number %d was %v and is %v", number+int64(i), stands, chunk)
		}
	}
	rest := chunks[standing:]
	rest = rest[:min(len(rest), most)]
	for _, chunk := range rest {
		l.chunks = append(l.chunks, proto.CloneOf(chunk))
	}
	return int(standing) + len(rest)
}

// move is what the teller does next.
type move struct {
	Step  int32 // deltas of one step merge
	Bytes int
	Wait  int // milliseconds, before
}

// tell writes what the moves say and returns the text.
func tell(ctx context.Context, w *writer.Writer, moves []move) (string, error) {
	var told strings.Builder
	for i, m := range moves {
		time.Sleep(time.Duration(m.Wait) * time.Millisecond)
		piece := fmt.Sprintf("<%d.%d%s>", m.Step, i, strings.Repeat("x", m.Bytes))
		told.WriteString(piece)
		if err := w.Write(ctx, text(m.Step, piece)); err != nil {
			return "", err
		}
	}
	_, err := w.Flush(ctx)
	return told.String(), err
}

func (l *strict) text() string {
	var all strings.Builder
	for _, chunk := range l.chunks {
		all.WriteString(chunk.GetTextDelta().GetDelta())
	}
	return all.String()
}

// TestWhateverTheLogTakesOfARequestItHoldsWhatWasToldOnceAndInOrder lets the log store
// parts of requests and lose answers, while what is told comes in bursts and merges.
func TestWhateverTheLogTakesOfARequestItHoldsWhatWasToldOnceAndInOrder(t *testing.T) {
	t.Parallel()
	moves := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) move {
		return move{
			Step:  rapid.Int32Range(1, 3).Draw(t, "step"),
			Bytes: rapid.SampledFrom([]int{0, 5, 80, 700}).Draw(t, "bytes"),
			Wait:  rapid.SampledFrom([]int{0, 0, 0, 0, 1, 30}).Draw(t, "wait"),
		}
	}), 1, 60)
	fates := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) fate {
		return fate{
			Most: rapid.SampledFrom([]int{0, 1, 2, 5, 64, 64}).Draw(t, "most"),
			Lost: rapid.Bool().Draw(t, "lost"),
			Slow: rapid.SampledFrom([]int{0, 1, 5}).Draw(t, "slow"),
		}
	}), 0, 40)
	rapid.Check(t, func(rt *rapid.T) {
		l := &strict{
			fates: fates.Draw(rt, "fates"), edge: rapid.SampledFrom([]int{1 << 20, 300, 60}).Draw(rt, "edge"),
		}
		what := moves.Draw(rt, "moves")
		var told string
		var err error
		synctest.Test(t, func(t *testing.T) { // in which nothing may be drawn, nor fail
			w := openWith(t, l, writer.Config{MaxDeltaBytes: 500, MaxQueuedBytes: 4000, Patience: time.Hour, CallTimeout: time.Second})
			told, err = tell(t.Context(), w, what)
			if w.Lossy() {
				err = errors.Join(err, errors.New("the writer is lossy"))
			}
		})
		if err != nil || len(l.faults) > 0 {
			rt.Fatalf("%v; the writer broke the rules: %q", err, l.faults)
		}
		if got := l.text(); got != told {
			rt.Fatalf("the log holds\n%s\nwant\n%s", got, told)
		}
	})
}
