package server

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/store/sqlite/sqlitetest"
)

// poll is the default interval of the polls.
const poll = 200 * time.Millisecond

// withOrphanedAgent tests in a bubble of fake time. The agent "support" is known, and no
// readExecutor announces it.
func withOrphanedAgent(t *testing.T, after time.Duration, test func(b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		b := newBenchOn(t, sqlitetest.Open(t), func(c *Config) {
			c.Scheduler.Poll, c.Scheduler.StopPoll, c.Scheduler.OrphanedAfter = poll, time.Hour, after
		})
		b.serving("e1", 0, "support").cancel()
		b.serving("e1", 0, "returns").cancel()
		test(b)
	})
}

// serving opens a claim stream for an executor of the agent, in the bubble.
func (b *bench) serving(executorID string, credits int32, agent string, held ...string) *stream {
	b.Helper()
	s := b.announcing(&statev1.ClaimRunsRequest{
		ExecutorId: executorID, Agents: []*statev1.Agent{{AgentType: agent}}, HeldRunIds: held, Credits: credits,
	})
	synctest.Wait()
	return s
}

func (b *bench) interrupt(sessionID string) {
	b.Helper()
	answer, err := b.runs.RequestStop(b.Context(), &statev1.RequestStopRequest{
		Tenant: "acme", SessionId: sessionID, Kind: statev1.StopKind_STOP_KIND_INTERRUPT, Reason: "enough",
	})
	b.must(err)
	if answer.GetEffect() != statev1.RequestStopResponse_EFFECT_REQUESTED {
		b.Errorf("got %v, want the stop to be requested", answer.GetEffect())
	}
}

// idle fails the test if the stream receives a claim within some polls.
func (s *stream) idle(why string) {
	s.Helper()
	time.Sleep(5 * poll) // fake
	synctest.Wait()
	if n := len(s.got); n > 0 {
		s.Fatalf("%s: got %v", why, <-s.got)
	}
}

func TestAStoppedOrphanedRunIsHandedToAnyExecutor(t *testing.T) {
	t.Parallel()
	withOrphanedAgent(t, 0, func(b *bench) {
		s := b.serving("e2", 1, "sales")
		b.start("a")
		b.start("b")
		s.idle("the runs do not have to end")
		b.interrupt("a")
		asked := time.Now()
		claim := s.execute()
		if got := claim.GetRun().GetStop(); claim.GetSession().GetSessionId() != "a" || got.GetKind() != statev1.StopKind_STOP_KIND_INTERRUPT || got.GetReason() != "enough" {
			b.Errorf("got session %s with the stop %v", claim.GetSession().GetSessionId(), got)
		}
		if len(claim.GetMessages()) != 1 {
			b.Errorf("got %d messages, want what every claim carries", len(claim.GetMessages()))
		}
		if took := time.Since(asked); took > 2*poll {
			b.Errorf("the claim came after %v", took)
		}
		b.interrupt("b")
		s.idle("there is no credit")
		b.must(s.Send(&statev1.ClaimRunsRequest{Credits: 1}))
		if claim := s.execute(); claim.GetSession().GetSessionId() != "b" {
			b.Errorf("got session %s", claim.GetSession().GetSessionId())
		}
	})
}

func TestAnOrphanedRunIsHandedToAnyExecutorAtItsDeadline(t *testing.T) {
	t.Parallel()
	withOrphanedAgent(t, 0, func(b *bench) {
		s := b.serving("e2", 1, "sales")
		r := startOf("a")
		r.TimeoutMs = time.Minute.Milliseconds()
		_, err := b.runs.StartRun(b.Context(), r)
		b.must(err)
		s.idle("it has time")
		time.Sleep(time.Minute) // fake
		synctest.Wait()
		if len(s.got) != 1 || s.execute().GetSession().GetSessionId() != "a" {
			b.Error("the run was not handed out at its deadline")
		}
	})
}

func TestARunIsLeftToTheExecutorThatAnnouncesItsAgent(t *testing.T) {
	t.Parallel()
	withOrphanedAgent(t, 0, func(b *bench) {
		own := b.serving("e1", 0, "support")
		s := b.serving("e2", 1, "sales")
		b.start("a")
		b.interrupt("a")
		s.idle("an executor that lives announces its agent")
		b.must(own.Send(&statev1.ClaimRunsRequest{Credits: 1}))
		if claim := own.execute(); claim.GetSession().GetSessionId() != "a" {
			b.Errorf("got session %s", claim.GetSession().GetSessionId())
		}
		s.idle("it has its executor")
	})
}

func TestOrphanedRunsComeLast(t *testing.T) {
	t.Parallel()
	withOrphanedAgent(t, 0, func(b *bench) {
		b.start("orphan")
		b.interrupt("orphan")
		b.serving("e2", 0, "sales")
		r := startOf("ordinary")
		r.AgentType = "sales"
		_, err := b.runs.StartRun(b.Context(), r)
		b.must(err)
		s := b.serving("e2", 1, "sales")
		for _, want := range []string{"ordinary", "orphan"} {
			if claim := s.execute(); claim.GetSession().GetSessionId() != want {
				b.Errorf("got session %s, want %s", claim.GetSession().GetSessionId(), want)
			}
			s.idle("there is no credit")
			b.must(s.Send(&statev1.ClaimRunsRequest{Credits: 1}))
		}
	})
}

func TestAStoppedRunWaitsForAnExecutorOfItsAgentFirst(t *testing.T) {
	t.Parallel()
	const while = 10 * time.Second
	withOrphanedAgent(t, while, func(b *bench) {
		b.start("a")
		b.start("b")
		b.interrupt("a")
		s := b.serving("e2", 2, "sales")
		s.idle("its agent may come back")
		own := b.serving("e3", 1, "support")
		claim := own.execute()
		if claim.GetSession().GetSessionId() != "a" {
			b.Errorf("got session %s", claim.GetSession().GetSessionId())
		}
		own.cancel()
		b.serving("e3", 0, "returns", claim.GetRun().GetRunId()).cancel()
		b.interrupt("b")
		asked := time.Now()
		if claim := s.execute(); claim.GetSession().GetSessionId() != "b" {
			b.Errorf("got session %s", claim.GetSession().GetSessionId())
		}
		if took := time.Since(asked); took < while || took > while+2*poll {
			b.Errorf("the claim came after %v", took)
		}
	})
}

// goneAfter is the time of the tests after which an agent is gone, goneLook the interval of the looks, and gonePoll that
// of the polls: rare, because much fake time passes.
const (
	goneAfter = 10 * time.Minute
	goneLook  = goneAfter / 20
	gonePoll  = 10 * time.Second
)

// withGoneAgent is withOrphanedAgent for runs that need not end. Executor e1 stays registered.
func withGoneAgent(t *testing.T, test func(b *bench)) {
	synctest.Test(t, func(t *testing.T) {
		b := newBenchOn(t, sqlitetest.Open(t), func(c *Config) {
			c.Scheduler.Poll, c.Scheduler.StopPoll, c.Scheduler.AgentGoneAfter = gonePoll, time.Hour, goneAfter
		})
		b.serving("e1", 0, "support").cancel()
		b.serving("e1", 0, "returns").cancel()
		test(b)
	})
}

// pass lets fake time pass.
func pass(d time.Duration) {
	time.Sleep(d) // fake
	synctest.Wait()
}

// unregister unregisters all executors.
func (b *bench) unregister() {
	b.Helper()
	_, err := b.store.UnregisterSilent(b.Context(), b.millis()+1)
	b.must(err)
}

// expectGone fails the test unless the stream receives the run of a gone agent in time.
func (s *stream) expectGone(sessionID string) {
	s.Helper()
	for end := time.Now().Add(2*goneLook + 2*gonePoll); len(s.got) == 0 && time.Now().Before(end); { // fake
		pass(time.Second)
	}
	if len(s.got) == 0 {
		s.Fatal("got no claim, want one to fail the run")
	}
	claim := s.execute()
	if stop := claim.GetRun().GetStop(); claim.GetSession().GetSessionId() != sessionID || stop.GetKind() != statev1.StopKind_STOP_KIND_AGENT_GONE ||
		!strings.Contains(stop.GetReason(), "no executor has served the agent for 10m0s") {
		s.Errorf("got session %s with the stop %v", claim.GetSession().GetSessionId(), stop)
	}
}

func TestARunOfAGoneAgentIsHandedToAnyExecutorToFail(t *testing.T) {
	t.Parallel()
	withGoneAgent(t, func(b *bench) {
		s := b.serving("e2", 2, "sales")
		b.start("a")
		pass(goneAfter / 2)
		b.start("b")
		pass(goneAfter/2 - goneLook)
		s.idle("its agent may come back")
		s.expectGone("a")
		pass(goneAfter/2 - 3*goneLook)
		s.idle("it has not waited for long enough")
		s.expectGone("b")
	})
}

func TestAnAgentThatWasServedForAMomentIsGivenTheWholeTimeAgain(t *testing.T) {
	t.Parallel()
	withGoneAgent(t, func(b *bench) {
		s := b.serving("e2", 1, "sales")
		b.start("a")
		pass(goneAfter - goneLook)
		own := b.serving("e3", 0, "support") // a rolling deploy
		own.cancel()
		b.serving("e3", 0, "returns").cancel()
		pass(goneAfter - goneLook)
		s.idle("its agent was there")
		s.expectGone("a")
	})
}

func TestAnOutageOfAllExecutorsMakesNoAgentGone(t *testing.T) {
	t.Parallel()
	withGoneAgent(t, func(b *bench) {
		b.start("a")
		b.unregister()
		pass(3 * goneAfter)
		s := b.serving("e2", 1, "sales") // the first of the executors that return
		pass(goneAfter - goneLook)
		s.idle("the executor of its agent may follow")
		b.serving("e3", 1, "support").execute()
		pass(2 * goneAfter)
		s.idle("it has its executor")
	})
}

func TestRunsWaitForEverIfAgentsAreNeverGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBenchOn(t, sqlitetest.Open(t), func(c *Config) {
			c.Scheduler.Poll, c.Scheduler.StopPoll, c.Scheduler.AgentGoneAfter = time.Minute, time.Hour, 0
		})
		b.serving("e1", 0, "support").cancel()
		b.serving("e1", 0, "returns").cancel()
		s := b.serving("e2", 1, "sales")
		b.start("a")
		pass(12 * time.Hour)
		s.idle("nothing fails it")
	})
}
