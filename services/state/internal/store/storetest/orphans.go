package storetest

import (
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// orphans are runs of agents that no executor announces any more.
var orphans = []test{
	{"a run whose agent nobody announces is claimed only to end", func(b *bench) {
		for _, id := range []string{"stopped", "overdue", "both", "waits", "later"} {
			c := b.startOf(at(id))
			switch id {
			case "overdue":
				c.DeadlineAt = b.now + 10
			case "both":
				c.DeadlineAt = b.now + 1
			case "later":
				c.DeadlineAt = b.now + 1000
			}
			b.start(c)
			b.now++
		}
		b.stop(at("stopped"), session.StopInterrupt, "enough")
		b.stop(at("both"), session.StopAbort, "")
		b.serve(executor, "sales")
		b.orphaned("stranger")
		b.orphaned(executor, "stopped", "both")
		b.orphaned(executor)
		b.now += 6
		b.orphaned(executor, "overdue")
		b.orphaned(executor)
		b.stop(at("waits"), session.StopAbort, "")
		b.stop(at("later"), session.StopInterrupt, "")
		got := b.claimOrphaned(executor, 1)
		if len(got) != 1 || refOf(got[0]).SessionID != "waits" {
			b.Fatalf("got %d claims, want the older one", len(got))
		}
		run := got[0].Change.Runs[0]
		if run.Status != session.RunRunning || run.ExecutorID != executor || run.Stop == nil || run.Stop.Kind != session.StopAbort {
			b.Errorf("got run %+v", run)
		}
		b.finish(refOf(got[0]))
		b.serve("executor-2", agent)
		b.orphaned(executor)
		b.claim("executor-2")
	}},
	{"a run whose agent another executor announces is left to that one", func(b *bench) {
		b.start(b.startOf(home))
		b.stop(home, session.StopInterrupt, "")
		b.now += 900
		b.serve("executor-2", "sales", "returns")
		b.orphaned("executor-2")
		b.orphaned(executor)
		b.now += 200
		b.silence()
		b.orphaned("executor-2", home.SessionID)
	}},
	{"an executor that announces itself again announces nothing else", func(b *bench) {
		b.start(b.startOf(home))
		b.stop(home, session.StopInterrupt, "")
		b.serve(executor, "sales")
		b.heard(executor, true)
		b.serve(executor, agent, "sales")
		b.orphaned(executor)
		b.heard(executor, true)
		b.orphaned(executor)
		b.serve(executor)
		b.orphaned(executor, home.SessionID)
	}},
	{"an orphan waits for its time like any run", func(b *bench) {
		c := b.startOf(home)
		c.DeadlineAt = b.now
		b.start(c)
		ref, _ := b.claim(executor)
		release := session.Release{Ref: ref, Delay: 1000, Now: b.now}
		b.must(b.send(release.Key, release.Need(), release.Decide))
		b.serve(executor, "sales")
		b.now += 999
		b.orphaned(executor)
		b.now++
		b.orphaned(executor, home.SessionID)
	}},
}

// serve announces the executor with agents of the types.
func (b *bench) serve(executorID string, types ...string) {
	b.Helper()
	var agents []session.Agent
	for _, t := range types {
		agents = append(agents, session.Agent{Type: t})
	}
	b.must(b.Store.Announce(b.Context(), executorID, agents, b.now))
}

func (b *bench) claimOrphaned(executorID string, limit int) []store.Decided {
	b.Helper()
	due := store.Orphaned{ExecutorID: executorID, Now: b.now}
	claimed, err := b.Store.UpdateDue(b.Context(), due, session.Need{State: true}, limit, session.ClaimOrphaned{Claim: session.Claim{ExecutorID: executorID, Now: b.now}}.Decide)
	b.must(err)
	return claimed
}

// orphaned claims the orphans, and fails the test unless they are of the sessions.
func (b *bench) orphaned(executorID string, sessions ...string) {
	b.Helper()
	var got []string
	for _, d := range b.claimOrphaned(executorID, 10) {
		got = append(got, d.View.Session.SessionID)
	}
	same(b, "orphans", got, sessions)
}
