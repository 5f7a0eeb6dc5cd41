package storetest

import (
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// orphans prove what happens to runs of unannounced agents.
var orphans = []suiteCase{
	{"a run of an unannounced agent is claimed only to end it", func(h *harness) {
		for _, id := range []string{"stopped", "overdue", "both", "waits", "later"} {
			c := h.startOf(at(id))
			switch id {
			case "overdue":
				c.DeadlineAt = h.now + 10
			case "both":
				c.DeadlineAt = h.now + 1
			case "later":
				c.DeadlineAt = h.now + 1000
			}
			h.start(c)
			h.now++
		}
		h.stop(at("stopped"), session.StopInterrupt, "enough")
		h.stop(at("both"), session.StopAbort, "")
		h.announceTypes(executor, "sales")
		h.expectOrphans("stranger")
		h.expectOrphans(executor, "stopped", "both")
		h.expectOrphans(executor)
		h.now += 6
		h.expectOrphans(executor, "overdue")
		h.expectOrphans(executor)
		h.stop(at("waits"), session.StopAbort, "")
		h.stop(at("later"), session.StopInterrupt, "")
		got := h.claimOrphaned(executor, 1)
		if len(got) != 1 || refOf(got[0]).SessionID != "waits" {
			h.Fatalf("got %d claims, want the older one", len(got))
		}
		run := got[0].Change.Runs[0]
		if run.Status != session.RunRunning || run.ExecutorID != executor || run.Stop == nil || run.Stop.Kind != session.StopAbort {
			h.Errorf("got run %+v", run)
		}
		h.finish(refOf(got[0]))
		h.announceTypes("executor-2", agent)
		h.expectOrphans(executor)
		h.claim("executor-2")
	}},
	{"a run of an agent that another executor announces is no orphan", func(h *harness) {
		h.start(h.startOf(home))
		h.stop(home, session.StopInterrupt, "")
		h.now += 900
		h.announceTypes("executor-2", "sales", "returns")
		h.expectOrphans("executor-2")
		h.expectOrphans(executor)
		h.now += 200
		h.requeueSilent()
		h.expectOrphans("executor-2", home.SessionID)
	}},
	{"a repeated announcement replaces the former one", func(h *harness) {
		h.start(h.startOf(home))
		h.stop(home, session.StopInterrupt, "")
		h.announceTypes(executor, "sales")
		h.expectRegistered(executor, true)
		h.announceTypes(executor, agent, "sales")
		h.expectOrphans(executor)
		h.expectRegistered(executor, true)
		h.expectOrphans(executor)
		h.announceTypes(executor)
		h.expectOrphans(executor, home.SessionID)
	}},
	{"a delayed orphan is not due early", func(h *harness) {
		c := h.startOf(home)
		c.DeadlineAt = h.now
		h.start(c)
		ref, _ := h.claim(executor)
		release := session.Release{ClaimRef: ref, Delay: 1000, Now: h.now}
		h.must(h.send(release.Key, release.Need(), release.Decide))
		h.announceTypes(executor, "sales")
		h.now += 999
		h.expectOrphans(executor)
		h.now++
		h.expectOrphans(executor, home.SessionID)
	}},
}

// unserved are the cases of agents without an executor.
var unserved = []suiteCase{
	{"an agent is unserved while no registered executor announces it", func(h *harness) {
		first := h.now
		h.expectUnserved(map[string]session.Millis{})
		h.now++
		h.announceTypes("executor-2", agent, "sales")
		h.now++
		h.announceTypes(executor, "returns")
		h.expectUnserved(map[string]session.Millis{})
		h.announceTypes("executor-2", "sales")
		h.expectUnserved(map[string]session.Millis{agent: first + 1})
		h.announceTypes("executor-3", "sales")
		h.expectExecutors(map[string]int64{"sales": 2, "returns": 1})
		h.now += 2000
		h.requeueSilent()
		h.expectUnserved(map[string]session.Millis{agent: first + 1, "sales": first + 2, "returns": first + 2})
		h.announceTypes("executor-3", agent, "sales", "returns")
		h.expectUnserved(map[string]session.Millis{})
	}},
	{"a run of an unserved agent is claimed to fail it, once it has waited for long enough", func(h *harness) {
		h.start(h.startOf(at("claimed")))
		h.now++
		h.start(h.startOf(at("old")))
		h.start(h.startOf(at("stopped")))
		h.stop(at("stopped"), session.StopInterrupt, "")
		before := h.now
		h.now++
		h.start(h.startOf(at("young")))
		ref, _ := h.claim(executor) // the oldest
		release := session.Release{ClaimRef: ref, Delay: 50, Now: h.now}
		h.must(h.send(release.Key, release.Need(), release.Decide))
		h.expectFailed(h.now) // the executor announces the agent
		h.announceTypes(executor, "sales")
		h.expectFailed(before - 1)
		h.expectFailed(before, "old")
		h.expectFailed(before)
		h.expectFailed(h.now, "young")
		h.now += 50
		h.expectFailed(before)
		h.expectFailed(h.now, "claimed")
		_, run := h.session(at("old"))
		if run.Stop == nil || run.Stop.Kind != session.StopAgentGone || run.Stop.Reason != "gone" || run.Status != session.RunRunning ||
			run.ExecutorID != executor {
			h.Errorf("got run %+v", run)
		}
	}},
}

// expectUnserved fails the test unless exactly these agents are unserved.
func (h *harness) expectUnserved(want map[string]session.Millis) {
	h.Helper()
	got, err := h.Store.Unserved(h.Context())
	h.must(err)
	same(h, "unserved agents", got, want)
}

// expectExecutors fails the test unless so many registered executors announce these agents.
func (h *harness) expectExecutors(want map[string]int64) {
	h.Helper()
	got, err := h.Store.Executors(h.Context())
	h.must(err)
	same(h, "executors of agents", got, want)
}

// expectFailed claims the runs of unserved agents in the queue since before the time, and fails the
// test unless they belong to the sessions. A stranger gets none.
func (h *harness) expectFailed(queuedBefore session.Millis, sessions ...string) {
	h.Helper()
	for _, executorID := range []string{"stranger", executor} {
		due := store.Unserved{ExecutorID: executorID, AgentTypes: []string{agent, "sales", agent}, QueuedBefore: queuedBefore, Now: h.now}
		command := session.ClaimUnserved{Claim: session.Claim{ExecutorID: executorID, Now: h.now}, QueuedBefore: queuedBefore, Reason: "gone"}
		claimed, err := h.Store.UpdateDue(h.Context(), due, session.Need{State: true}, 10, command.Decide)
		h.must(err)
		got := []string{}
		for _, d := range claimed {
			got = append(got, d.View.Session.SessionID)
		}
		want := append([]string{}, sessions...)
		if executorID == "stranger" {
			want = []string{}
		}
		same(h, "runs of unserved agents for "+executorID, got, want)
	}
}

// announceTypes announces an executor with agents of the types.
func (h *harness) announceTypes(executorID string, types ...string) {
	h.Helper()
	var agents []session.Agent
	for _, t := range types {
		agents = append(agents, session.Agent{Type: t})
	}
	h.must(h.Store.Announce(h.Context(), executorID, agents, h.now))
}

func (h *harness) claimOrphaned(executorID string, limit int) []store.Decided {
	h.Helper()
	due := store.Orphaned{ExecutorID: executorID, Now: h.now}
	claimed, err := h.Store.UpdateDue(h.Context(), due, session.Need{State: true}, limit,
		session.ClaimOrphaned{Claim: session.Claim{ExecutorID: executorID, Now: h.now}}.Decide)
	h.must(err)
	return claimed
}

// expectOrphans claims the orphans, and fails the test unless they belong to the sessions.
func (h *harness) expectOrphans(executorID string, sessions ...string) {
	h.Helper()
	var got []string
	for _, d := range h.claimOrphaned(executorID, 10) {
		got = append(got, d.View.Session.SessionID)
	}
	same(h, "orphans", got, sessions)
}
