package follow_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/frame"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// long is a text of many pieces, with runes of all lengths at their borders.
var long = strings.Repeat("aé日😀", 15_000)

// longAnswer plays a run with steps too large to be held by many readers.
func (w *world) longAnswer(t *testing.T) {
	t.Helper()
	w.start(t).Complete(AssistantMessage(1, "first "+long), AssistantMessage(2, "second "+long))
}

// stalling is a client that stalls at every so many frames.
func stalling(every int) *client {
	c, n := newClient(), 0
	c.each = func(*frame.Frame) error {
		if n++; n%every == 0 {
			time.Sleep(20 * time.Second)
		}
		return nil
	}
	return c
}

func TestAStalledClientGetsTheSameChunks(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*testing.T, *world){
		"of long steps": func(t *testing.T, w *world) { w.longAnswer(t) },
		"of two runs":   func(t *testing.T, w *world) { w.twoRuns(t) },
		"of a step that failed live": func(t *testing.T, w *world) {
			run := w.start(t)
			run.Show(1, Started(), StepStarted(), Text("one "), Text("two"))
			run.Fail("Something broke.", "")
		},
	} {
		for _, every := range []int{1, 2, 7, 50} {
			t.Run(fmt.Sprint(name, ", each ", every), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w := open(t)
					prepare(t, w)
					want := w.whole(t)
					c := stalling(every)
					if err := w.follow(t.Context(), c); err != nil {
						t.Fatal(err)
					}
					c.check(t, "stalled", want)
					if n := c.count(isRewound); n > 0 {
						t.Errorf("%d times something was taken back", n)
					}
				})
			})
		}
	}
}

func TestAClientStalledAtTheEndGetsOneEnd(t *testing.T) {
	t.Parallel()
	for n := range 20 { // for one n, the end is the last frame of a full batch
		synctest.Test(t, func(t *testing.T) {
			w := open(t)
			run := w.start(t)
			run.Show(1, Started(), StepStarted())
			for i := range 9 + n/5 {
				id := fmt.Sprint("c", i)
				if i < n%5 {
					run.Show(1, Text("and"))
				}
				run.Show(1, Call(id, `{}`), Result(id, `1`))
			}
			run.Complete()
			c := stalling(1)
			if err := w.follow(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			c.check(t, fmt.Sprint(n), w.whole(t))
		})
	}
}

func TestAClientStalledDuringALiveStepGetsTheSameChunks(t *testing.T) {
	t.Parallel()
	for _, every := range []int{1, 3, 40} {
		t.Run(fmt.Sprint("each ", every), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := open(t)
				run := w.start(t)
				run.Show(1, Started(), StepStarted())
				for range 100 {
					run.Show(1, Text(strings.Repeat("x", 1000)))
				}
				c := stalling(every)
				ended := make(chan error, 1) // buffered for its only result
				go func() { ended <- w.follow(t.Context(), c) }()
				for range 100 {
					time.Sleep(time.Second)
					run.Show(1, Text("y"))
				}
				run.Show(1, StepCommitted())
				run.Complete()
				if err := <-ended; err != nil {
					t.Fatal(err)
				}
				c.check(t, "stalled", w.whole(t))
			})
		})
	}
}

func TestALongTextComesInPiecesAndAReaderContinuesBehindEach(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := open(t)
		w.longAnswer(t)
		want := w.whole(t)
		longest := 0
		for _, c := range want.has {
			longest = max(longest, len(c.GetTextDelta().GetDelta()))
		}
		if longest > 16<<10 || len(want.has) < 2*len(long)>>14 {
			t.Errorf("the longest of %d pieces has %d bytes", len(want.has), longest)
		}
		for cut := range want.got {
			c := want.copy(cut)
			if err := w.follow(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			c.check(t, fmt.Sprint("cut after ", cut), want)
		}
	})
}

func TestPiecesOfAThoughtAreCompleteWithTheLast(t *testing.T) {
	t.Parallel()
	whole := frame.Chunk("", 5, &eventv1.Chunk{AgentId: "run", Step: 3, Event: &eventv1.Chunk_Thinking{Thinking: &eventv1.Thinking{Content: "aé日😀", IsComplete: true}}})
	for limit := 4; limit < 12; limit++ {
		got, complete := "", 0
		for f := range whole.Pieces(limit) {
			if f.Chunk.GetAgentId() != "run" || f.Chunk.GetStep() != 3 {
				t.Errorf("limit %d: a piece has the base %v", limit, f.Chunk)
			}
			text := f.Chunk.GetThinking().GetContent()
			if len(text) > limit || !utf8.ValidString(text) {
				t.Errorf("limit %d: got the piece %q", limit, text)
			}
			got += text
			if f.Chunk.GetThinking().GetIsComplete() {
				complete = len(got)
			}
		}
		if got != "aé日😀" || complete != len(got) {
			t.Errorf("limit %d: got %q, complete at %d", limit, got, complete)
		}
	}
}

func TestStalledClientsDoNotBlockOthersFromLargeSteps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := open(t)
		w.longAnswer(t)
		want := w.whole(t)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		const stalled = 40
		for range stalled {
			c := newClient()
			c.each = func(*frame.Frame) error {
				<-ctx.Done()
				return nil
			}
			go func() { ended <- w.follow(ctx, c) }()
		}
		synctest.Wait()
		began, c := time.Now(), newClient()
		if err := w.follow(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("a client that reads had to wait for %v", took)
		}
		c.check(t, "the client that reads", want)
		cancel()
		for range stalled {
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("got %v, want that it was cancelled", err)
			}
		}
		if n := w.Stream.OpenReads(); n != 0 {
			t.Errorf("%d calls are left open", n)
		}
	})
}

func TestAStalledClientLeavesNoCallOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := open(t)
		run := w.start(t)
		run.Show(1, Started(), StepStarted())
		for range 1000 {
			run.Show(1, Text(strings.Repeat("x", 1000)))
		}
		c, release := newClient(), make(chan struct{})
		c.each = func(*frame.Frame) error {
			<-release
			return nil
		}
		ended := w.begin(t, c)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := w.Stream.OpenReads(); n != 1 { // the topic's call
			t.Errorf("%d calls are open for a client that takes nothing, want 1", n)
		}
		close(release)
		run.Show(1, StepCommitted())
		run.Complete()
		wantEnd(t, ended)
		c.check(t, "released", w.whole(t))
	})
}

func TestASinkThatPanicsEndsItsFollowAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := open(t)
		w.twoRuns(t)
		c := newClient()
		c.each = func(*frame.Frame) error { panic("of the sink") }
		if err := w.follow(t.Context(), c); err == nil {
			t.Error("the follow has ended well")
		}
	})
}
