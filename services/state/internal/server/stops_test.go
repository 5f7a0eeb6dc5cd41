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

// rarely makes a test fail that waits for the poll.
func rarely(c *Config) { c.StopPoll = time.Hour }

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

// stopped returns the next stop that comes on the stream.
func (s *stream) stopped() *statev1.StoppedRun {
	s.Helper()
	select {
	case stop := <-s.stops:
		return stop
	case err := <-s.end:
		s.Fatalf("the stream ended with %v", err)
	case <-time.After(patience):
		s.Fatal("no stop came")
	}
	return nil
}

// quiet fails the test when a stop has come that nobody has asked for.
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
		b := open(rarely)
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
		b.requestStop("s", interrupts) // the abort outranks it
		b.commit(step(ref, 1))         // and is not told again with every write
		b.start("next")
		b.must(s.Send(&statev1.ClaimRunsRequest{Credits: 1}))
		s.execute()
		s.quiet()
		other.quiet()
	})
}

func TestAStopThatAnotherReplicaHasTakenIsFoundByThePoll(t *testing.T) {
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
		return newBenchOn(t, s, func(c *Config) { c.Poll = 5 * time.Millisecond })
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

// watched counts how often stops are looked for, and remembers for whom.
type watched struct {
	store.Store
	looks atomic.Int64
	last  atomic.Pointer[[]string]
}

func (w *watched) Stops(ctx context.Context, executors ...string) ([]store.StoppedRun, error) {
	w.looks.Add(1)
	w.last.Store(&executors)
	return w.Store.Stops(ctx, executors...)
}

func TestOneQueryLooksForTheStopsOfAllWhoAreConnected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &watched{Store: sqlitetest.Open(t)}
		b := newBenchOn(t, w, func(c *Config) { c.Poll = time.Hour })
		time.Sleep(time.Hour)
		if n := w.looks.Load(); n != 0 {
			t.Errorf("got %d looks while nobody was connected", n)
		}
		first, second := b.open("e1", 10), b.open("e2", 10)
		again := b.open("e2", 10)
		beats := w.looks.Load() // heartbeats look too
		time.Sleep(10 * b.config.StopPoll)
		if n := w.looks.Load() - beats; n < 9 || n > 11 || fmt.Sprint(*w.last.Load()) != "[e1 e2]" {
			t.Errorf("got %d looks in ten polls, the last for %v", n, *w.last.Load())
		}
		for _, s := range []*stream{first, second, again} {
			s.cancel()
			<-s.end
		}
		synctest.Wait()
		time.Sleep(b.config.StopPoll)
		before := w.looks.Load()
		time.Sleep(time.Hour)
		if n := w.looks.Load() - before; n != 0 {
			t.Errorf("got %d looks after everybody had left", n)
		}
	})
}

func TestAStopOfAnotherReplicaIsTakenToItsExecutorWithinOnePoll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		other := New(b.config, b.store, b.now, b.server.newID, b.server.log)
		s := b.open("e1", 100)
		b.start("s")
		s.execute()
		for range 20 {
			began := time.Now()
			b.start(fmt.Sprint("s", began.UnixNano()))
			claim := s.execute()
			_, err := other.RequestStop(t.Context(), stopOf(claim.GetSession().GetSessionId(), interrupts))
			b.must(err)
			if got := s.stopped(); got.GetRunId() != claim.GetRun().GetRunId() {
				t.Errorf("got %v, want the stop of %s", got, claim.GetRun().GetRunId())
			}
			if took := time.Since(began); took > b.config.StopPoll {
				t.Errorf("the stop took %s, want %s at most", took, b.config.StopPoll)
			}
			time.Sleep(37 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		s.quiet() // none is told with each poll
	})
}

func TestAStreamThatOpensAnewIsToldOfTheStopsOfWhatItHolds(t *testing.T) {
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

func TestAStopThatWasFasterThanItsClaimIsToldAgain(t *testing.T) {
	t.Parallel()
	s := newStops()
	box := s.join("e1")
	stop := store.StoppedRun{ExecutorID: "e1", RunID: "r", Stop: session.Stop{Kind: session.StopAbort}}
	s.tell(stop)
	s.tell(stop)
	if got := s.take(box); len(got) != 1 {
		t.Errorf("got %v, want the stop once", got)
	}
	s.found([]string{"e1"}, []store.StoppedRun{stop})
	if got := s.take(box); len(got) != 0 {
		t.Errorf("got %v, want nothing that was told", got)
	}
	s.handed(box, "r")
	s.found([]string{"e1"}, []store.StoppedRun{stop})
	if got := s.take(box); len(got) != 1 {
		t.Errorf("got %v, want the stop again once the run was handed over", got)
	}
	s.found([]string{"e1"}, nil) // it is over
	if len(box.told) != 0 {
		t.Errorf("got %v remembered of runs that are over", box.told)
	}
	s.leave(box)
	if s.tell(stop); len(s.take(box)) != 0 {
		t.Error("a stop was left for somebody who is gone")
	}
}

func TestAClientThatTakesNothingHoldsUpNobodysStop(t *testing.T) {
	t.Parallel()
	b := newBench(t, rarely)
	deaf, err := b.work.ClaimRuns(t.Context())
	b.must(err)
	b.must(deaf.Send(&statev1.ClaimRunsRequest{ExecutorId: "deaf", Agents: []*statev1.Agent{{AgentType: "support"}}, Credits: 10}))
	for i := range 3 { // more than one stream takes before somebody reads
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
	b.eventually("the deaf one is handed nothing more", func() bool {
		return b.server.hub.placed("support") == nil
	})
	s := b.open("e1", 10)
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
