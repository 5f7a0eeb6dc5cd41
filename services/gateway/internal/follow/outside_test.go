package follow_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

func TestARetryVoidsNoEarlierStep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := open(t)
		run := w.start(t)
		c := newClient()
		ended := w.begin(t, c)
		run.Show(1, Started(), StepStarted(), Text("one"), StepCommitted())
		run.Show(2, StepStarted(), Text("void"))
		synctest.Wait()
		run.Retry()
		run.Show(2, StepStarted())
		w.State.SaveState("t", "s", `{"changed":true}`) // the reader reads the steps again
		time.Sleep(10 * time.Second)
		run.Show(2, Text("two"))
		run.Complete()
		wantEnd(t, ended)
		c.check(t, "live", w.whole(t))
		if got := c.count(isRewound); got != 1 {
			t.Errorf("got %d rewinds, want that of the retry alone", got)
		}
	})
}

// playWithoutSteps plays runs that end without a step between two runs that have one, while c reads.
func (w *world) playWithoutSteps(t *testing.T, c *client) {
	t.Helper()
	for i, play := range []func(*Run){
		func(run *Run) { run.Show(1, Started(), StepStarted(), Text("one")); run.Complete() },
		func(run *Run) { run.Show(1, Started()); run.InterruptOutside() },
		func(run *Run) { run.Show(1, Started(), StepStarted(), Text("void")); run.InterruptOutside() },
		func(run *Run) { run.Show(1, Started()); run.Fail("It failed.", "x") },
		func(run *Run) {
			run.Show(2, Started(), StepStarted(), Text("two"), StepCommitted())
			run.Fail("It failed.", "x")
		},
		func(run *Run) { run.Show(2, Started()); run.InterruptOutside() },
	} {
		run := w.start(t)
		ended := w.begin(t, c)
		play(run)
		synctest.Wait()
		wantEnd(t, ended)
		if c.count(isEnd) != i+1 {
			t.Fatalf("run %d: got %d ends", i, c.count(isEnd))
		}
	}
}

func TestRunsWithoutAStepAreSentToEveryReader(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]func(t *testing.T, w *world){
		"when the last of them is the newest": func(*testing.T, *world) {},
		"before a run with a step": func(t *testing.T, w *world) {
			run := w.start(t)
			run.Show(3, Started(), StepStarted(), Text("three"))
			run.Complete()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := open(t)
				saw := newClient()
				w.playWithoutSteps(t, saw)
				live := content(saw.has)
				after(t, w)
				want := w.whole(t)
				if got := content(want.has); !strings.HasPrefix(got, live) {
					t.Errorf("a later reader got\n%s\nlive\n%s", got, live)
				}
				for cut := range saw.got {
					c := saw.copy(cut)
					c.got = nil
					if err := w.follow(t.Context(), c); err != nil {
						t.Fatal(err)
					}
					c.check(t, fmt.Sprint("after ", cut), want)
				}
			})
		})
	}
}
