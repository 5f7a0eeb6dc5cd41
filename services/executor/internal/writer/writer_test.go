package writer_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/writer"
)

// log is the stream service as a writer sees it: each request goes through answer.
type log struct {
	streamv1.StreamServiceClient // the reading half is not there

	numbers []int64 // of all attempts
	expects []int64
	answer  func(attempt int) error
	texts   []string // of what was taken
	sizes   []int    // of all requests of chunks, in chunks
	refused int      // requests, for their size
	edge    int      // chunks above so many bytes are refused; 0: none
	slow    time.Duration
	busy    atomic.Int32
	old     bool // it takes one chunk of a request, and does not know of more
	// take says how many chunks of a request are taken at most; nil: all.
	take   func(attempt int) int
	refuse func(chunks []*eventv1.Chunk) error // nil: never
}

func (l *log) Append(_ context.Context, r *streamv1.AppendRequest, _ ...grpc.CallOption) (*streamv1.AppendResponse, error) {
	if l.busy.Add(1) > 1 {
		panic("two appends are in flight")
	}
	defer l.busy.Add(-1)
	time.Sleep(l.slow)
	l.numbers = append(l.numbers, r.GetNumber())
	l.expects = append(l.expects, r.GetExpectedLastSequence())
	if r.GetTerminal() != nil {
		if err := l.answer(len(l.numbers)); err != nil {
			return nil, err
		}
		l.texts = append(l.texts, "END")
		return &streamv1.AppendResponse{Sequence: 100 + r.GetNumber(), Stored: 1}, nil
	}
	return l.takeChunks(r)
}

func (l *log) takeChunks(r *streamv1.AppendRequest) (*streamv1.AppendResponse, error) {
	chunks, bytes := append([]*eventv1.Chunk{r.GetChunk()}, r.GetMore()...), 0
	l.sizes = append(l.sizes, len(chunks))
	if l.old {
		chunks = chunks[:1]
	}
	for _, chunk := range chunks {
		bytes += proto.Size(chunk)
		if l.edge > 0 && proto.Size(chunk) > l.edge {
			l.refused++
			return nil, fault.New(fault.Invalid, "CHUNK_TOO_LARGE", "%d bytes", proto.Size(chunk))
		}
	}
	if len(chunks) > 1 && bytes > 256<<10 || len(chunks) > 64 {
		return nil, fault.New(fault.Invalid, "BATCH_INVALID", "%d chunks of %d bytes", len(chunks), bytes)
	}
	if err := l.answer(len(l.numbers)); err != nil {
		return nil, err
	}
	if l.refuse != nil {
		if err := l.refuse(chunks); err != nil {
			return nil, err
		}
	}
	if l.take != nil {
		chunks = chunks[:min(len(chunks), l.take(len(l.numbers)))]
	}
	for _, chunk := range chunks {
		l.texts = append(l.texts, chunk.GetTextDelta().GetDelta())
	}
	answer := &streamv1.AppendResponse{Sequence: 100 + r.GetNumber() + int64(len(chunks)) - 1}
	if !l.old {
		answer.Stored = int32(len(chunks)) //nolint:gosec // 64 at most
	}
	return answer, nil
}

func (l *log) Rewind(_ context.Context, r *streamv1.RewindRequest, _ ...grpc.CallOption) (*streamv1.RewindResponse, error) {
	l.numbers = append(l.numbers, r.GetNumber())
	if err := l.answer(len(l.numbers)); err != nil {
		return nil, err
	}
	l.texts = append(l.texts, "REWIND")
	return &streamv1.RewindResponse{Sequence: 100 + r.GetNumber()}, nil
}

func (l *log) Reset(_ context.Context, r *streamv1.ResetRequest, _ ...grpc.CallOption) (*streamv1.ResetResponse, error) {
	l.numbers = append(l.numbers, r.GetNumber())
	l.texts = append(l.texts, "RESET")
	return &streamv1.ResetResponse{Sequence: 100 + r.GetNumber()}, nil
}

func away(int) error  { return fault.New(fault.Unavailable, "LOG_UNAVAILABLE", "no log") }
func there(int) error { return nil }

func open(t *testing.T, l *log) *writer.Writer {
	t.Helper()
	return openWith(t, l, writer.Config{MaxDeltaBytes: 1000, MaxQueuedBytes: 10_000, Patience: 10 * time.Second, CallTimeout: time.Second})
}

func openWith(t *testing.T, l streamv1.StreamServiceClient, c writer.Config) *writer.Writer {
	t.Helper()
	w := writer.New(l, &streamv1.StreamRef{SessionId: "s"}, 4, 7, c, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return w
}

func text(step int32, delta string) *eventv1.Chunk {
	return &eventv1.Chunk{AgentId: "r", Step: step, Event: &eventv1.Chunk_TextDelta{TextDelta: &eventv1.TextDelta{Delta: delta}}}
}

func write(t *testing.T, w *writer.Writer, chunks ...*eventv1.Chunk) {
	t.Helper()
	for _, chunk := range chunks {
		if err := w.Write(t.Context(), chunk); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnAppendOfUnknownFateIsSentAgainUnderItsNumber(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &log{answer: func(attempt int) error {
			if attempt <= 2 {
				return away(attempt)
			}
			return nil
		}}
		w := open(t, l)
		write(t, w, text(1, "a"))
		if last, err := w.Flush(t.Context()); last != 101 || err != nil {
			t.Errorf("Flush = %d, %v, want 101", last, err)
		}
		write(t, w, text(2, "b"))
		if _, err := w.Flush(t.Context()); err != nil {
			t.Error(err)
		}
		if want := []int64{1, 1, 1, 2}; !slices.Equal(l.numbers, want) {
			t.Errorf("numbers = %v, want %v", l.numbers, want)
		}
		if want := []int64{7, 7, 7, 101}; !slices.Equal(l.expects, want) {
			t.Errorf("expected sequences = %v, want %v", l.expects, want)
		}
	})
}

func TestALossyWriterSettlesWhatItLeftBehindBeforeItEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &log{answer: away}
		w := open(t, l)
		write(t, w, text(1, "a"))
		begin := time.Now()
		if last, err := w.Flush(t.Context()); last != 7 || err != nil || !w.Lossy() {
			t.Errorf("Flush = %d, %v, lossy %v; want 7, lossy", last, err, w.Lossy())
		}
		if took := time.Since(begin); took > 11*time.Second {
			t.Errorf("the writer waited %v, want its patience of 10s", took)
		}
		write(t, w, text(2, "dropped"))
		l.answer = there
		if sequence, err := w.Terminal(t.Context(), &streamv1.Terminal{RunId: "r"}); sequence != 102 || err != nil {
			t.Errorf("Terminal = %d, %v, want 102", sequence, err)
		}
		if want := []string{"a", "END"}; !slices.Equal(l.texts, want) {
			t.Errorf("taken = %v, want %v", l.texts, want)
		}
	})
}

func TestARewindMakesALossyWriterWholeAndDropsWhatWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &log{answer: away}
		w := open(t, l)
		write(t, w, text(1, "a"))
		if _, err := w.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Rewind(t.Context(), &streamv1.RewindRequest{Step: 1}, time.Second); !errors.Is(err, writer.ErrAway) || !w.Lossy() {
			t.Errorf("Rewind = %v, lossy %v; want ErrAway, and it lossy still", err, w.Lossy())
		}
		l.answer = there
		found, err := w.Rewind(t.Context(), &streamv1.RewindRequest{Step: 1}, time.Second)
		if err != nil || w.Lossy() || found.Former != 101 {
			t.Errorf("Rewind = %+v, %v, lossy %v; want it whole behind a", found, err, w.Lossy())
		}
		// Nothing runs between these: the chunk waits when the rewind comes.
		write(t, w, text(2, "void"))
		found, err = w.Rewind(t.Context(), &streamv1.RewindRequest{Step: 1}, time.Second)
		if err != nil || found.Former != 0 {
			t.Errorf("Rewind = %+v, %v; want that nothing but a rewind came before", found, err)
		}
		if want := []string{"a", "REWIND", "REWIND"}; !slices.Equal(l.texts, want) {
			t.Errorf("taken = %v, want %v", l.texts, want)
		}
	})
}

func TestALogThatWasBegunAnewMakesTheWriterLossyAtOnceAndTakesNoNumber(t *testing.T) {
	t.Parallel()
	renewed := fault.New(fault.Stale, "LOG_RENEWED", "the log begins at 1000")
	for name, first := range map[string]error{"at once": renewed, "after an answer that was lost": fault.New(fault.Unavailable, "LOG_UNAVAILABLE", "no log")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := &log{answer: func(attempt int) error {
					switch attempt {
					case 1:
						return first
					case 2:
						if !errors.Is(first, fault.Stale) {
							return renewed
						}
					}
					return nil
				}}
				w := open(t, l)
				begin := time.Now()
				write(t, w, text(1, "lost"), text(1, "dropped"))
				if _, err := w.Flush(t.Context()); err != nil || !w.Lossy() || time.Since(begin) > time.Second {
					t.Errorf("Flush = %v, lossy %v after %v; want it lossy at once", err, w.Lossy(), time.Since(begin))
				}
				if tierAway, err := w.Lost(t.Context()); tierAway || err != nil {
					t.Errorf("Lost = %v, %v; want that the stream tier is there", tierAway, err)
				}
				if _, err := w.Rewind(t.Context(), &streamv1.RewindRequest{}, time.Second); err != nil {
					t.Fatal(err)
				}
				write(t, w, text(1, "again"))
				if last, err := w.Flush(t.Context()); last != 102 || err != nil {
					t.Errorf("Flush = %d, %v, want 102", last, err)
				}
				if want := []string{"REWIND", "again"}; !slices.Equal(l.texts, want) {
					t.Errorf("taken = %v, want %v", l.texts, want)
				}
			})
		})
	}
}

func TestAWriterThatWasLossyBeforeTheLogWasBegunAnewHasNothingLeftToSettle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &log{answer: away}
		w := open(t, l)
		write(t, w, text(1, "a"))
		if _, err := w.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		settled := false
		l.answer = func(int) error {
			if !settled {
				settled = true
				return fault.New(fault.Stale, "LOG_RENEWED", "the log begins at 1000")
			}
			return nil
		}
		if _, err := w.Rewind(t.Context(), &streamv1.RewindRequest{}, time.Second); err != nil {
			t.Fatal(err)
		}
		if sequence, err := w.Terminal(t.Context(), &streamv1.Terminal{}); sequence != 102 || err != nil {
			t.Errorf("Terminal = %d, %v, want 102", sequence, err)
		}
		if want := []string{"REWIND", "END"}; !slices.Equal(l.texts, want) {
			t.Errorf("taken = %v, want %v", l.texts, want)
		}
	})
}

func TestATerminalRecordIsNotWrittenIntoALogThatHasLostItsRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &log{answer: func(int) error { return fault.New(fault.Stale, "LOG_RENEWED", "the log begins at 1000") }}
		w := open(t, l)
		if _, err := w.Terminal(t.Context(), &streamv1.Terminal{}); !errors.Is(err, writer.ErrRenewed) || !w.Lossy() {
			t.Errorf("Terminal = %v, lossy %v; want ErrRenewed and lossy", err, w.Lossy())
		}
	})
}

func TestARewindWhoseAnswerWouldBeTooLargeIsAResetUnderItsNumber(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &log{answer: func(int) error { return fault.New(fault.TooLarge, "REWIND_TOO_LARGE", "9 MiB") }}
		w := open(t, l)
		found, err := w.Rewind(t.Context(), &streamv1.RewindRequest{FromSequence: 7}, time.Second)
		if err != nil || found.At != 0 || len(found.Kept) != 0 || w.Lossy() {
			t.Errorf("Rewind = %+v, %v, lossy %v; want that nothing stands", found, err, w.Lossy())
		}
		if want := []int64{1, 1}; !slices.Equal(l.numbers, want) || !slices.Equal(l.texts, []string{"RESET"}) {
			t.Errorf("numbers = %v, taken = %v; want %v and a reset", l.numbers, l.texts, want)
		}
	})
}

func TestAFencedWriterFailsEveryCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &log{answer: func(int) error { return fault.New(fault.Stale, "WRITER_FENCED", "newer") }}
		w := open(t, l)
		write(t, w, text(1, "a"))
		if _, err := w.Flush(t.Context()); !errors.Is(err, writer.ErrFenced) {
			t.Errorf("Flush = %v, want ErrFenced", err)
		}
		if err := w.Write(t.Context(), text(1, "b")); !errors.Is(err, writer.ErrFenced) {
			t.Errorf("Write = %v, want ErrFenced", err)
		}
		if _, err := w.Terminal(t.Context(), &streamv1.Terminal{}); !errors.Is(err, writer.ErrFenced) {
			t.Errorf("Terminal = %v, want ErrFenced", err)
		}
		if _, err := w.Rewind(t.Context(), &streamv1.RewindRequest{}, 0); !errors.Is(err, writer.ErrFenced) {
			t.Errorf("Rewind = %v, want ErrFenced", err)
		}
	})
}

func TestAChunkThatTheLogRefusesIsGivenUpAtOnceAndTakesNoNumber(t *testing.T) {
	t.Parallel()
	for reason, kind := range map[string]fault.Kind{"CHUNK_INVALID": fault.Invalid, "STREAM_NOT_ACTIVE": fault.Conflict} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := &log{}
				l.answer = func(attempt int) error {
					if attempt == 1 {
						return fault.New(kind, reason, "odd")
					}
					return nil
				}
				w := open(t, l)
				write(t, w, text(1, "odd"))
				if _, err := w.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
				write(t, w, text(1, "good"))
				if _, err := w.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
				if want := []int64{1, 1}; !slices.Equal(l.numbers, want) || w.Lossy() {
					t.Errorf("numbers = %v, lossy %v; want %v and not lossy", l.numbers, w.Lossy(), want)
				}
			})
		})
	}
}

func TestALogThatLostRecordsMakesTheWriterLossyAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &log{answer: func(int) error { return fault.New(fault.Stale, "APPEND_OUT_OF_ORDER", "number 3 after 1") }}
		w := open(t, l)
		write(t, w, text(1, "a"))
		if _, err := w.Flush(t.Context()); err != nil || !w.Lossy() || len(l.numbers) != 1 {
			t.Errorf("Flush = %v, lossy %v after %d attempts; want lossy after one", err, w.Lossy(), len(l.numbers))
		}
	})
}
