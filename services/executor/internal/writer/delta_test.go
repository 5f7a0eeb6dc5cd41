package writer_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
)

// runes take one to four bytes each.
var runes = []string{"a", "é", "日", "😀"}

func TestADeltaAroundTheLimitIsCutBetweenRunesAndNowhereElse(t *testing.T) {
	t.Parallel()
	for _, r := range runes {
		for size := 990; size <= 1010; size++ { // the limit is 1000
			synctest.Test(t, func(t *testing.T) {
				l := &log{answer: there}
				w := open(t, l)
				want := strings.Repeat(r, size/len(r)) + strings.Repeat(".", size%len(r))
				write(t, w, text(1, want))
				if _, err := w.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
				if got := strings.Join(l.texts, ""); got != want {
					t.Errorf("%d bytes of %q: taken are %d", size, r, len(got))
				}
				if got, most := len(l.texts), (size+999)/1000; got != most {
					t.Errorf("%d bytes of %q are %d records, want %d", size, r, got, most)
				}
				for _, piece := range l.texts {
					if !utf8.ValidString(piece) || len(piece) > 1000 {
						t.Errorf("%d bytes of %q: a piece has %d bytes, valid %v", size, r, len(piece), utf8.ValidString(piece))
					}
				}
			})
		}
	}
}

func TestADeltaAtTheEdgeOfTheLogsChunkSizeIsTakenAndOneAboveItIsHalved(t *testing.T) {
	t.Parallel()
	for _, r := range runes {
		want := strings.Repeat(r, 900/len(r))
		exact := proto.Size(text(1, want))
		for above, records := range map[int]int{0: 1, 1: 2} { // bytes that the chunk is too large
			synctest.Test(t, func(t *testing.T) {
				l := &log{answer: there, edge: exact - above}
				w := open(t, l)
				write(t, w, text(1, want))
				if _, err := w.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
				if got := strings.Join(l.texts, ""); got != want || len(l.texts) != records {
					t.Errorf("%d bytes of %q above the edge: %d bytes in %d records, want %d in %d", above, r, len(got), len(l.texts), len(want), records)
				}
			})
		}
	}
}

func TestALogWithSmallerChunksThanExpectedGetsAllOfTheTextInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &log{answer: there, edge: 100}
		w := open(t, l)
		var want strings.Builder
		for i := range 50 {
			piece := fmt.Sprintf("%d%s ", i, strings.Repeat(runes[i%4], 13*i))
			want.WriteString(piece)
			write(t, w, text(1, piece))
		}
		if _, err := w.Flush(t.Context()); err != nil || w.Lossy() {
			t.Fatal(err, w.Lossy())
		}
		if got := strings.Join(l.texts, ""); got != want.String() {
			t.Errorf("text = %q, want %q", got, want.String())
		}
		if l.refused > 10 {
			t.Errorf("%d requests were refused, want the size learned", l.refused)
		}
	})
}

func TestOneAppendIsInFlightAndWhatComesMeanwhileIsMergedWithoutLoss(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &log{answer: there, slow: 50 * time.Millisecond} // it panics at a second append
		w := open(t, l)
		var want strings.Builder
		random := rand.New(rand.NewPCG(1, 2))
		for range 2000 {
			piece := strings.Repeat(runes[random.IntN(4)], random.IntN(20))
			want.WriteString(piece)
			write(t, w, text(1, piece))
			time.Sleep(time.Duration(random.IntN(3)) * time.Millisecond)
		}
		if _, err := w.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(l.texts, ""); got != want.String() {
			t.Errorf("the text has %d bytes, want the %d that were written", len(got), want.Len())
		}
		if len(l.texts) > 100 {
			t.Errorf("%d records for 2000 deltas, want them merged", len(l.texts))
		}
	})
}

func TestAProducerThatIsFasterThanTheLogWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &log{answer: there, slow: time.Second}
		w := open(t, l)
		var written atomic.Int64
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 1000 {
				write(t, w, text(1, strings.Repeat("x", 100)))
				written.Add(100)
			}
		}()
		for second := range int64(9) {
			synctest.Wait()
			// What waits, and for each append that was taken or is in flight as much.
			if got, most := written.Load(), 10_000+1000+10_000*(second+1); got > most {
				t.Errorf("%d bytes were written in %d seconds, want %d at most", got, second, most)
			}
			time.Sleep(time.Second)
		}
		<-done
		if _, err := w.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := len(strings.Join(l.texts, "")); got != 100_000 {
			t.Errorf("%d bytes were taken, want 100000", got)
		}
	})
}
