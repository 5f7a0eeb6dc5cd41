package crowd_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/services/executor/internal/crowd"
)

func TestACrowdIsWaitedForAndLeftBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c crowd.Group
		if !c.Wait(0) {
			t.Error("an empty crowd has not ended")
		}
		for n := range 3 {
			c.Go(func() { time.Sleep(time.Duration(n) * time.Minute) })
		}
		if c.Wait(time.Minute) {
			t.Error("it has ended, want one left")
		}
		if begun := time.Now(); !c.Wait(time.Hour) || time.Since(begun) != time.Minute {
			t.Errorf("it was waited for %v, want a minute more", time.Since(begun))
		}
		c.Go(func() {})
		synctest.Wait()
		if !c.Wait(0) {
			t.Error("a crowd that came and went has not ended")
		}
	})
}
