package server

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/config"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/group"
	"github.com/holdfast-run/holdfast/services/state/internal/store/postgres"
	"github.com/holdfast-run/holdfast/services/state/internal/store/sqlite/sqlitetest"
)

// noStopPoll disables the poll for stops.
func noStopPoll(c *Config) { c.Scheduler.StopPoll = time.Hour }

func stopOf(sessionID string, kind statev1.StopKind) *statev1.RequestStopRequest {
	return &statev1.RequestStopRequest{Tenant: "acme", SessionId: sessionID, Kind: kind, Reason: "enough"}
}

const (
	interrupts = statev1.StopKind_STOP_KIND_INTERRUPT
	aborts     = statev1.StopKind_STOP_KIND_ABORT
)

func (b *bench) requestStop(sessionID string, kind statev1.StopKind) {
	b.Helper()
	_, err := b.runs.RequestStop(b.Context(), stopOf(sessionID, kind))
	b.must(err)
}

// stopped returns the next stop on the stream.
func (s *stream) stopped() *statev1.StoppedRun {
	s.Helper()
	select {
	case stop := <-s.stops:
		return stop
	case err := <-s.end:
		s.Fatalf("the stream ended with %v", err)
	case <-time.After(testTimeout):
		s.Fatal("no stop came")
	}
	return nil
}

// quiet fails the test if a stop is pending.
func (s *stream) quiet() {
	s.Helper()
	select {
	case stop := <-s.stops:
		s.Errorf("got the stop %v, want none", stop)
	default:
	}
}

func TestAStopComesOnTheClaimStreamAtOnceAndTakesNoCredit(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open(noStopPoll)
		s, other := b.open("e1", 1), b.open("e2", 0)
		run := b.start("s").GetRun().GetRunId()
		ref := refTo(s.execute()) // no credit is left
		for _, kind := range []statev1.StopKind{interrupts, aborts} {
			b.requestStop("s", kind)
			got := s.stopped()
			if got.GetRunId() != run || got.GetStop().GetKind() != kind || got.GetStop().GetReason() != "enough" || got.GetStop().GetRequestedAt() == 0 {
				t.Errorf("got %v, want %s of run %s", got, kind, run)
			}
		}
		b.requestStop("s", interrupts) // the abort overrides it
		b.commit(step(ref, 1))         // which does not send it again
		b.start("next")
		b.must(s.Send(&statev1.ClaimRunsRequest{Credits: 1}))
		s.execute()
		s.quiet()
		other.quiet()
	})
}

func TestAStopOfAnotherReplicaIsFoundByThePoll(t *testing.T) {
	t.Parallel()
	var commits group.Config
	if err := config.Load(&commits, nil); err != nil {
		t.Fatal(err)
	}
	url := databaseURL(t)
	replica := func() *bench {
		s, err := postgres.Open(t.Context(), url, 4, commits, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return newBenchOn(t, unsignaled(s.Parts()), func(c *Config) { c.Scheduler.Poll = 5 * time.Millisecond })
	}
	here, there := replica(), replica()
	s := here.open("e1", 10)
	run := here.start("s").GetRun().GetRunId()
	s.execute()
	there.requestStop("s", interrupts)
	if got := s.stopped(); got.GetRunId() != run || got.GetStop().GetKind() != interrupts {
		t.Errorf("got %v, want the interrupt of %s", got, run)
	}
	there.requestStop("s", aborts)
	if got := s.stopped(); got.GetStop().GetKind() != aborts {
		t.Errorf("got %v, want the abort", got)
	}
}

// stopCounter counts the queries for stops.
type stopCounter struct {
	store.Store
	looks atomic.Int64
	last  atomic.Pointer[[]string]
}

// parts returns the store with its wrapped parts.
func (w *stopCounter) parts() store.Store {
	s := w.Store
	s.Registry = w
	return s
}

func (w *stopCounter) Stops(ctx context.Context, executors ...string) ([]store.StoppedRun, error) {
	w.looks.Add(1)
	w.last.Store(&executors)
	return w.Store.Stops(ctx, executors...)
}

func TestOneQueryFindsTheStopsOfAllConnectedExecutors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &stopCounter{Store: sqlitetest.Open(t)}
		b := newBenchOn(t, w.parts(), func(c *Config) { c.Scheduler.Poll = time.Hour })
		time.Sleep(time.Hour)
		if n := w.looks.Load(); n != 0 {
			t.Errorf("got %d queries without connected executors", n)
		}
		first, second := b.open("e1", 10), b.open("e2", 10)
		again := b.open("e2", 10)
		beats := w.looks.Load() // heartbeats query too
		time.Sleep(10 * b.config.Scheduler.StopPoll)
		if n := w.looks.Load() - beats; n < 9 || n > 11 || fmt.Sprint(*w.last.Load()) != "[e1 e2]" {
			t.Errorf("got %d looks in ten polls, the last for %v", n, *w.last.Load())
		}
		for _, s := range []*stream{first, second, again} {
			s.cancel()
			<-s.end
		}
		synctest.Wait()
		time.Sleep(b.config.Scheduler.StopPoll)
		before := w.looks.Load()
		time.Sleep(time.Hour)
		if n := w.looks.Load() - before; n != 0 {
			t.Errorf("got %d queries after all executors had left", n)
		}
	})
}

func TestAStopOfAnotherReplicaReachesItsExecutorWithinOnePoll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		other := b.replica()
		s := b.open("e1", 100)
		b.start("s")
		s.execute()
		for range 20 {
			began := time.Now()
			b.start(fmt.Sprint("s", began.UnixNano()))
			claim := s.execute()
			_, err := other.runs.RequestStop(t.Context(), stopOf(claim.GetSession().GetSessionId(), interrupts))
			b.must(err)
			if got := s.stopped(); got.GetRunId() != claim.GetRun().GetRunId() {
				t.Errorf("got %v, want the stop of %s", got, claim.GetRun().GetRunId())
			}
			if took := time.Since(began); took > b.config.Scheduler.StopPoll {
				t.Errorf("the stop took %s, want %s at most", took, b.config.Scheduler.StopPoll)
			}
			time.Sleep(37 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		s.quiet() // no poll repeats one
	})
}

func TestANewStreamReceivesTheStopsOfHeldRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		s := b.open("e1", 10)
		run := b.start("s").GetRun().GetRunId()
		s.execute()
		s.cancel()
		<-s.end
		b.requestStop("s", aborts)
		again := b.open("e1", 10, run)
		if got := again.stopped(); got.GetRunId() != run || got.GetStop().GetKind() != aborts {
			t.Errorf("got %v, want the abort", got)
		}
	})
}

func TestAClientThatReadsNothingDelaysNoOtherStop(t *testing.T) {
	t.Parallel()
	b := newBench(t, noStopPoll)
	deaf, err := b.work.ClaimRuns(t.Context())
	b.must(err)
	b.must(deaf.Send(&statev1.ClaimRunsRequest{ExecutorId: "deaf", Agents: []*statev1.Agent{{AgentType: "support"}}, Credits: 3}))
	for i := range 3 { // more than a stream buffers, and no credit is left for another run
		start := startOf(fmt.Sprint("deaf", i))
		b.eventually("the agent is known", func() bool {
			start.Messages[0] = userMessage(xs(500_000))
			_, err := b.runs.StartRun(t.Context(), start)
			return err == nil
		})
		b.eventually("the run is claimed", func() bool {
			return b.get(start.GetSessionId()).GetCurrentRun().GetStatus() == statev1.RunStatus_RUN_STATUS_RUNNING || i > 0
		})
	}
	b.eventually("the executor that does not read is not idle", func() bool {
		return b.server.scheduler.HandOver("support").Need(session.Need{}).ExecutorID == ""
	})
	s := b.open("e1", 10)
	b.eventually("the other executor is idle", func() bool { // else the run may wait for the poll
		_, atRest := b.server.scheduler.Idle("e1")
		return atRest
	})
	b.requestStop("deaf0", interrupts)
	b.start("s")
	var run *statev1.Claim
	for run.GetSession().GetSessionId() != "s" {
		run = s.execute()
	}
	b.requestStop("s", interrupts)
	if got := s.stopped(); got.GetRunId() != run.GetRun().GetRunId() {
		t.Errorf("got %v, want the stop of %s", got, run.GetRun().GetRunId())
	}
	if first, err := deaf.Recv(); err != nil || proto.Size(first) < 500_000 {
		t.Errorf("got %d bytes, %v; want the claim", proto.Size(first), err)
	}
}
