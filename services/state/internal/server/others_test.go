package server

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/services/state/internal/store/group"
	"github.com/holdfast-run/holdfast/services/state/internal/store/postgres"
)

// heeded is a store that counts the signals that were followed.
type heeded struct {
	*postgres.Store
	heard atomic.Int64
}

func (h *heeded) Hear(ctx context.Context, hear func(string)) error {
	return h.Store.Hear(ctx, func(signal string) {
		hear(signal)
		h.heard.Add(1)
	})
}

// replicas are two on one database that never poll and that hear each other.
func replicas(t *testing.T) (first, second *bench) {
	t.Helper()
	var commits group.Config
	if err := config.Load(&commits, nil); err != nil {
		t.Fatal(err)
	}
	url := databaseURL(t)
	open := func() (*bench, *heeded) {
		s, err := postgres.Open(t.Context(), url, 4, commits, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		on := &heeded{Store: s}
		b := newBenchOn(t, on, rarely, func(c *Config) { c.Scheduler.Poll, c.Scheduler.StopPoll = time.Hour, time.Hour })
		return b, on
	}
	first, heardByFirst := open()
	second, heardBySecond := open()
	hears := func(b *bench, from *bench, on *heeded) {
		b.eventually("the other replica is heard", func() bool {
			from.server.Wake("unknown")
			return on.heard.Load() > 0
		})
	}
	hears(first, second, heardByFirst)
	hears(second, first, heardBySecond)
	return first, second
}

func TestWorkReachesTheExecutorOfAnotherReplicaWithoutAPoll(t *testing.T) {
	t.Parallel()
	here, there := replicas(t)
	s := there.open("e1", 3)
	there.rests("e1")
	here.start("a")
	run := s.execute()
	if run.GetSession().GetSessionId() != "a" || run.GetEpoch() != 1 {
		t.Errorf("got %v", run)
	}
	here.requestStop("a", interrupts)
	if got := s.stopped(); got.GetRunId() != run.GetRun().GetRunId() {
		t.Errorf("got %v, want the stop of %s", got, run.GetRun().GetRunId())
	}
}
