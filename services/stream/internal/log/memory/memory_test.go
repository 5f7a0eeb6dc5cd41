package memory_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/services/stream/internal/log"
	"github.com/holdfast-run/holdfast/services/stream/internal/log/logtest"
	"github.com/holdfast-run/holdfast/services/stream/internal/log/memory"
)

func TestMemoryIsALog(t *testing.T) {
	t.Parallel()
	logtest.Run(t, func(t *testing.T) log.Log {
		l := memory.New(memory.Options{})
		ctx, cancel := context.WithCancel(context.Background())
		var group sync.WaitGroup
		group.Go(func() { _ = l.Run(ctx) })
		t.Cleanup(func() {
			cancel()
			group.Wait()
		})
		return l
	})
}

func TestWhatIsTooOldOrTooMuchGoesFromTheFront(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := memory.New(memory.Options{MaxAge: time.Hour, MaxBytes: 10_000})
		a, b := log.Stream{Tenant: "t", Root: "a", Session: "a"}, log.Stream{Tenant: "t", Root: "b", Session: "b"}
		kept := func() (counts [2]int) {
			for i, s := range []log.Stream{a, b} {
				counts[i] = len(logtest.Stored(t, l, log.Scope{Stream: s}, 0, 100))
			}
			return counts
		}
		logtest.Append(t, l, a, &log.Message{Last: 1, Body: make([]byte, 1000)})
		time.Sleep(30 * time.Minute)
		logtest.Append(t, l, b, &log.Message{Last: 1, Body: make([]byte, 1000)})
		if got := kept(); got != [2]int{1, 1} {
			t.Errorf("got %v messages, want one of each", got)
		}
		time.Sleep(31 * time.Minute)
		if got := kept(); got != [2]int{0, 1} {
			t.Errorf("got %v messages, want the older one gone", got)
		}
		logtest.Append(t, l, a, &log.Message{Last: 2, Body: make([]byte, 9000)})
		if got := kept(); got != [2]int{1, 0} {
			t.Errorf("got %v messages, want the first one gone", got)
		}
		time.Sleep(2 * time.Hour)
		if last, err := l.Last(t.Context(), a); last != nil || err != nil {
			t.Errorf("got %v, %v; want nothing", last, err)
		}
	})
}
