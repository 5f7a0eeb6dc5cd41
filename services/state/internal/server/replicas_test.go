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

// signalCounter is a store that counts the received signals.
type signalCounter struct {
	*postgres.Store
	received atomic.Int64
}

func (h *signalCounter) Listen(ctx context.Context, hear func(string)) error {
	return h.Store.Listen(ctx, func(signal string) {
		hear(signal)
		h.received.Add(1)
	})
}

// replicas returns two replicas on one database, with signals and without polls.
func replicas(t *testing.T) (first, second *bench) {
	t.Helper()
	var commits group.Config
	if err := config.Load(&commits, nil); err != nil {
		t.Fatal(err)
	}
	url := databaseURL(t)
	open := func() (*bench, *signalCounter) {
		s, err := postgres.Open(t.Context(), url, 4, commits, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		on := &signalCounter{Store: s}
		parts := s.Parts()
		parts.Signals = on
		b := newBenchOn(t, parts, noStopPoll, func(c *Config) { c.Scheduler.Poll, c.Scheduler.StopPoll = time.Hour, time.Hour })
		return b, on
	}
	first, heardByFirst := open()
	second, heardBySecond := open()
	hears := func(b *bench, from *bench, on *signalCounter) {
		b.eventually("the other replica's signal is received", func() bool {
			from.server.Wake("unknown")
			return on.received.Load() > 0
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
	there.waitUntilIdle("e1")
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
