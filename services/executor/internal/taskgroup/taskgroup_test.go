package taskgroup_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/services/executor/internal/taskgroup"
)

func TestWaitReturnsAtItsLimitAndCanBeRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g taskgroup.Group
		if !g.Wait(0) {
			t.Error("an empty group has not ended")
		}
		for n := range 3 {
			g.Go(func() { time.Sleep(time.Duration(n) * time.Minute) })
		}
		if g.Wait(time.Minute) {
			t.Error("the group has ended, want one goroutine left")
		}
		if begun := time.Now(); !g.Wait(time.Hour) || time.Since(begun) != time.Minute {
			t.Errorf("the wait took %v, want a minute more", time.Since(begun))
		}
		g.Go(func() {})
		synctest.Wait()
		if !g.Wait(0) {
			t.Error("a group whose goroutines have ended has not ended")
		}
	})
}
