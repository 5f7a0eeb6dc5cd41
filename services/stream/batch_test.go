package stream_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/stream"
)

// batch is a request that says the deltas, each with a chunk of its own.
func (w *writer) batch(step int32, deltas ...string) *streamv1.AppendRequest {
	r := w.request()
	r.Record = &streamv1.AppendRequest_Chunk{Chunk: text(w.run, step, deltas[0])}
	for _, delta := range deltas[1:] {
		r.More = append(r.More, text(w.run, step, delta))
	}
	return r
}

// sayAll appends the deltas with as few requests as the log takes.
func (w *writer) sayAll(ctx context.Context, step int32, deltas ...string) error {
	for len(deltas) > 0 {
		r := w.batch(step, deltas...)
		answer, err := w.Append(ctx, r)
		if err != nil {
			return err
		}
		stored := int(answer.GetStored())
		if stored < 1 || stored > len(deltas) {
			return fmt.Errorf("of %d chunks %d are stored", len(deltas), stored)
		}
		w.number, w.last, deltas = w.number+int64(stored), answer.GetSequence(), deltas[stored:]
	}
	return nil
}

func TestSeveralChunksOfOneRequestAreReadAsIfEachHadComeByItself(t *testing.T) {
	t.Parallel()
	onEachBus(t, func(t *testing.T, h *house) {
		ref := refOf("batch")
		w := h.writer(ref, "run", 1)
		live := h.read(t, &streamv1.ReadRequest{Stream: ref})
		equal(t, []string{live.next(t)}, "caught up")
		w.say(t, 1, "a")
		first := w.last
		r := w.batch(1, "b", "c", "d")
		for range 3 {
			answer, err := h.Append(t.Context(), r)
			if err != nil || answer.GetStored() != 3 || answer.GetSequence() < first+3 {
				t.Fatalf("got %v, %v; want three stored behind %d, and no more when it is repeated", answer, err, first)
			}
			w.number, w.last = 4, answer.GetSequence()
		}
		w.say(t, 1, "e")
		w.end(t, ended("run"))
		equal(t, live.rest(t), "a", "b", "c", "d", "e", "end run")
		equal(t, h.read(t, &streamv1.ReadRequest{Stream: ref, FromSequence: first + 1, HistoryOnly: true}).rest(t), "c", "d", "e", "end run")
	})
}

func TestARequestTheFirstPartOfWhichIsStoredGoesOnBehindIt(t *testing.T) {
	t.Parallel()
	onEachBus(t, func(t *testing.T, h *house) {
		ref := refOf("part")
		w := h.writer(ref, "run", 1)
		w.say(t, 1, "a")
		whole := w.batch(1, "b", "c", "d", "e")
		w.say(t, 1, "b", "c")
		answer, err := h.Append(t.Context(), whole)
		if err != nil || answer.GetStored() != 4 {
			t.Fatalf("got %v, %v; want all four stored", answer, err)
		}
		young := h.writer(ref, "run", 2)
		young.say(t, 1, "f")
		_, err = h.Append(t.Context(), whole)
		refused(t, err, fault.Stale, "WRITER_FENCED")
		equal(t, h.stored(t, ref), "a", "b", "c", "d", "e", "f", "caught up")
	})
}

func TestWritersOfSeveralChunksAtOnceDoNotMix(t *testing.T) {
	t.Parallel()
	onEachBus(t, func(t *testing.T, h *house) {
		ref := refOf("batches race")
		const writers, batches = 6, 8
		var group sync.WaitGroup
		acknowledged := make([]int, writers) // chunks
		for i := range writers {
			w := h.writer(ref, "run", int64(i+1))
			group.Go(func() {
				for n := range batches {
					var deltas []string
					for k := range 5 {
						deltas = append(deltas, fmt.Sprintf("%d-%d", w.epoch, 5*n+k+1))
					}
					err := w.sayAll(t.Context(), 1, deltas...)
					acknowledged[i] = int(w.number)
					if err != nil && !errors.Is(err, fault.Stale) {
						t.Errorf("append: %v", err)
					}
					if err != nil {
						return
					}
				}
			})
		}
		group.Wait()
		if got := acknowledged[writers-1]; got != 5*batches {
			t.Errorf("the writer with the highest epoch wrote %d chunks, want %d", got, 5*batches)
		}
		// Epochs only rise along the log, and each has what was acknowledged to it.
		var want []string
		for i, count := range acknowledged {
			for n := range count {
				want = append(want, fmt.Sprintf("%d-%d", i+1, n+1))
			}
		}
		equal(t, h.stored(t, ref), append(want, "caught up")...)
	})
}

func TestOneRequestOfSeveralChunksSentManyTimesAtOnceIsStoredOnce(t *testing.T) {
	t.Parallel()
	onEachBus(t, func(t *testing.T, h *house) {
		ref := refOf("impatient batch")
		w := h.writer(ref, "run", 1)
		var want []string
		for n := range 10 {
			var deltas []string
			for k := range 6 {
				deltas = append(deltas, fmt.Sprintf("%d-%d", n, k))
			}
			want = append(want, deltas...)
			r := w.batch(1, deltas...)
			var group sync.WaitGroup
			var answers [4]*streamv1.AppendResponse
			for i := range answers {
				group.Go(func() {
					answer, err := h.Append(t.Context(), r)
					if err != nil {
						t.Errorf("batch %d: %v", n, err)
					}
					answers[i] = answer
				})
			}
			group.Wait()
			for _, answer := range answers {
				if answer.GetStored() != 6 || answer.GetSequence() != answers[0].GetSequence() {
					t.Fatalf("batch %d got the answers %v, want one, of all six", n, answers)
				}
			}
			w.number, w.last = w.number+6, answers[0].GetSequence()
		}
		equal(t, h.stored(t, ref), append(want, "caught up")...)
	})
}

// BenchmarkAppend compares chunks by themselves with chunks that go together; the log
// is an embedded NATS server, the network is memory.
func BenchmarkAppend(b *testing.B) {
	for _, together := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("%d at once", together), func(b *testing.B) {
			c := stream.Defaults()
			c.Bus, c.DataDir = stream.BusEmbedded, b.TempDir()
			h := start(b, c)
			w := h.writer(refOf("bench"), "run", 1)
			deltas := make([]string, together)
			for i := range deltas {
				deltas[i] = strings.Repeat("x", 40)
			}
			for b.Loop() {
				if err := w.sayAll(b.Context(), 1, deltas...); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*together)/b.Elapsed().Seconds(), "chunks/s")
		})
	}
}
