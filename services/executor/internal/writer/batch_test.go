package writer_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/writer"
)

// apart gives chunks that do not merge: each is of a step of its own.
func apart(texts ...string) []*eventv1.Chunk {
	var chunks []*eventv1.Chunk
	for i, delta := range texts {
		chunks = append(chunks, text(int32(i), delta)) //nolint:gosec // few
	}
	return chunks
}

func flush(t *testing.T, w *writer.Writer, want int64) {
	t.Helper()
	if last, err := w.Flush(t.Context()); last != want || err != nil {
		t.Errorf("Flush = %d, %v, want %d", last, err, want)
	}
}

func TestChunksThatWaitGoWithOneRequestAndTheFirstOfAllGoesAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &log{answer: there, slow: time.Millisecond}
		w := open(t, l)
		write(t, w, text(1, "a"))
		synctest.Wait()
		write(t, w, apart("b", "c", "d")...)
		flush(t, w, 104)
		if want := []int{1, 3}; !slices.Equal(l.sizes, want) || !slices.Equal(l.numbers, []int64{1, 2}) {
			t.Errorf("requests of %v chunks with the numbers %v, want %v", l.sizes, l.numbers, want)
		}
		write(t, w, text(9, "e"))
		flush(t, w, 105)
		if want := []int64{7, 101, 104}; !slices.Equal(l.expects, want) || !slices.Equal(l.numbers, []int64{1, 2, 5}) {
			t.Errorf("numbers %v behind %v, want the last answer's behind %v", l.numbers, l.expects, want)
		}
	})
}

func TestARequestIsWithinTheLimitsOfTheService(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ count, bytes, most int }{
		"many":         {200, 1, 64},
		"large":        {40, 20_000, 9},
		"of which two": {8, 150_000, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := &log{answer: there, slow: time.Millisecond} // it refuses what is too much
				w := openWith(t, l, writer.Config{MaxDeltaBytes: 256 << 10, MaxQueuedBytes: 4 << 20, Patience: time.Minute, CallTimeout: time.Second})
				var want []string
				for i := range c.count {
					want = append(want, fmt.Sprint(i, strings.Repeat("x", c.bytes)))
				}
				write(t, w, apart(want...)...)
				flush(t, w, 100+int64(c.count))
				if got := slices.Max(l.sizes); got != c.most || !slices.Equal(l.texts, want) {
					t.Errorf("up to %d chunks go together, want %d; or they are out of order", got, c.most)
				}
				if requests := 2 + (c.count-1)/c.most; len(l.numbers) > requests {
					t.Errorf("%d requests, want %d", len(l.numbers), requests)
				}
			})
		})
	}
}

func TestTheNumberGoesOnByWhatIsStoredAndTheRestIsSentAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &log{answer: there, slow: time.Millisecond, take: func(attempt int) int { return attempt }}
		w := open(t, l)
		write(t, w, text(1, "a"))
		synctest.Wait()
		write(t, w, apart("b", "c", "d", "e", "f", "g")...)
		time.Sleep(3 * time.Millisecond / 2)
		write(t, w, text(5, "merges with nothing that was sent"))
		flush(t, w, 108)
		if want := []int64{1, 2, 4, 7, 8}; !slices.Equal(l.numbers, want) {
			t.Errorf("numbers = %v, want %v", l.numbers, want)
		}
		if want := []int64{7, 101, 103, 106, 107}; !slices.Equal(l.expects, want) {
			t.Errorf("expected sequences = %v, want %v", l.expects, want)
		}
		if want := []string{"a", "b", "c", "d", "e", "f", "g", "merges with nothing that was sent"}; !slices.Equal(l.texts, want) {
			t.Errorf("taken = %q, want %q", l.texts, want)
		}
	})
}

func TestARequestOfUnknownFateIsSentAgainAsItWas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &log{slow: time.Millisecond, answer: func(attempt int) error {
			if attempt == 2 || attempt == 3 {
				return away(attempt)
			}
			return nil
		}}
		w := open(t, l)
		write(t, w, text(1, "a"))
		synctest.Wait()
		write(t, w, apart("b", "c")...)
		time.Sleep(3 * time.Millisecond)
		write(t, w, text(1, "d"), text(1, "e")) // d would merge with c
		flush(t, w, 104)
		if want := []int{1, 2, 2, 2, 1}; !slices.Equal(l.sizes, want) || !slices.Equal(l.numbers, []int64{1, 2, 2, 2, 4}) {
			t.Errorf("requests of %v chunks with the numbers %v, want %v", l.sizes, l.numbers, want)
		}
		if want := []string{"a", "b", "c", "de"}; !slices.Equal(l.texts, want) {
			t.Errorf("taken = %q, want %q", l.texts, want)
		}
	})
}

func TestALossyWriterSettlesAllOfTheRequestThatItLeftBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &log{slow: time.Millisecond, take: func(int) int { return 2 }, answer: func(attempt int) error {
			if attempt > 2 {
				return away(attempt)
			}
			return nil
		}}
		w := open(t, l)
		write(t, w, text(1, "a"))
		synctest.Wait()
		write(t, w, apart("b", "c", "d", "e", "f")...) // of which two are taken
		flush(t, w, 103)
		if !w.Lossy() {
			t.Fatal("the writer is not lossy after its patience")
		}
		l.answer = there
		if sequence, err := w.Terminal(t.Context(), &streamv1.Terminal{RunId: "r"}); sequence != 107 || err != nil {
			t.Errorf("Terminal = %d, %v, want 107", sequence, err)
		}
		if want := []string{"a", "b", "c", "d", "e", "f", "END"}; !slices.Equal(l.texts, want) {
			t.Errorf("taken = %q, want %q", l.texts, want)
		}
	})
}

func TestARequestWithAChunkThatIsTooLargeIsToldChunkByChunk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &log{answer: there, slow: time.Millisecond, edge: 300}
		w := open(t, l)
		write(t, w, text(1, "a"))
		synctest.Wait()
		long := strings.Repeat("l", 500)
		write(t, w, apart("b", long, "c")...)
		flush(t, w, 105)
		if got, want := strings.Join(l.texts, ""), "ab"+long+"c"; got != want || w.Lossy() {
			t.Errorf("taken = %q, lossy %v; want %q", l.texts, w.Lossy(), want)
		}
		if want := []int{1, 3, 1, 1, 1, 1, 1}; !slices.Equal(l.sizes, want) || l.refused != 2 {
			t.Errorf("requests of %v chunks, %d refused; want %v: together, by themselves, and the large one in two", l.sizes, l.refused, want)
		}
		write(t, w, text(1, "d"))
		synctest.Wait()
		write(t, w, apart("e", "f")...)
		flush(t, w, 108)
		if got := l.sizes[len(l.sizes)-1]; got != 2 {
			t.Errorf("the next chunks go in requests of %d, want together again", got)
		}
	})
}

func TestOfARequestTheOddChunkAloneIsGivenUp(t *testing.T) {
	t.Parallel()
	for reason, kind := range map[string]fault.Kind{"CHUNK_INVALID": fault.Invalid, "STREAM_NOT_ACTIVE": fault.Conflict} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := &log{slow: time.Millisecond, answer: there}
				l.refuse = func(chunks []*eventv1.Chunk) error {
					checked := chunks // all are checked before the first, and stored one by one
					if kind == fault.Conflict {
						checked = chunks[:1]
					}
					for _, chunk := range checked {
						if chunk.GetTextDelta().GetDelta() == "odd" {
							return fault.New(kind, reason, "odd")
						}
					}
					return nil
				}
				l.take = func(attempt int) int { return max(1, min(attempt-1, 2)) } // so that odd comes first
				w := open(t, l)
				write(t, w, text(1, "a"))
				synctest.Wait()
				write(t, w, apart("b", "odd", "c", "d")...)
				flush(t, w, 104)
				if want := []string{"a", "b", "c", "d"}; !slices.Equal(l.texts, want) || w.Lossy() {
					t.Errorf("taken = %q, lossy %v; want %q", l.texts, w.Lossy(), want)
				}
			})
		})
	}
}

func TestALogThatIsBegunAnewAmidARequestKeepsTheNumbersThatWereTaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &log{slow: time.Millisecond, take: func(int) int { return 2 }, answer: func(attempt int) error {
			if attempt == 3 {
				return fault.New(fault.Stale, "LOG_RENEWED", "the log begins at 1000")
			}
			return nil
		}}
		w := open(t, l)
		write(t, w, text(1, "a"))
		synctest.Wait()
		write(t, w, apart("b", "c", "void", "void")...)
		flush(t, w, 103)
		if !w.Lossy() {
			t.Error("the writer is not lossy")
		}
		if _, err := w.Rewind(t.Context(), &streamv1.RewindRequest{}, time.Second); err != nil {
			t.Fatal(err)
		}
		write(t, w, text(1, "again"))
		flush(t, w, 105)
		if want := []string{"a", "b", "c", "REWIND", "again"}; !slices.Equal(l.texts, want) || !slices.Equal(l.numbers, []int64{1, 2, 4, 4, 5}) {
			t.Errorf("taken = %q with the numbers %v, want %q", l.texts, l.numbers, want)
		}
	})
}

func TestAServiceThatDoesNotKnowOfSeveralChunksGetsThemOneByOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &log{answer: there, slow: time.Millisecond, old: true}
		w := open(t, l)
		want := []string{"a", "b", "c", "d", "e"}
		write(t, w, apart(want...)...)
		flush(t, w, 105)
		if !slices.Equal(l.texts, want) || !slices.Equal(l.numbers, []int64{1, 2, 3, 4, 5}) || w.Lossy() {
			t.Errorf("taken = %q with the numbers %v, lossy %v; want %q", l.texts, l.numbers, w.Lossy(), want)
		}
		if want := []int{5, 1, 1, 1, 1}; !slices.Equal(l.sizes, want) {
			t.Errorf("requests of %v chunks, want %v", l.sizes, want)
		}
	})
}
