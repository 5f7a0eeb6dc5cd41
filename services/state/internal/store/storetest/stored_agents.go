package storetest

import (
	"fmt"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

const storing = "executor that serves stored agents"

var storedAgents = []suiteCase{
	{"an agent is stored, changed and deleted, each with its event", func(h *harness) {
		first := h.storedAgent("clerk", `{"v":1}`)
		if former := h.store("acme", first); former != nil {
			h.Errorf("got the former agent %+v of a new one", former)
		}
		if former := h.store("acme", first); former == nil || former.Definition != first.Definition {
			h.Errorf("got the former agent %+v of an equal one, want that", former)
		}
		second := h.storedAgent("clerk", `{"v":2}`)
		second.Description, second.OnBusy, second.StateSchema, second.Remote = "sorts", session.BusyEnqueue, `{"type":"object"}`, true
		h.store("acme", second)
		found, err := h.Store.StoredAgent(h.Context(), "acme", "clerk")
		h.must(err)
		same(h, "agent", *found, second)
		listed := second
		listed.Text = ""
		list, err := h.Store.StoredAgentsOf(h.Context(), "acme")
		h.must(err)
		same(h, "agents", list, []session.StoredAgent{listed})
		_, err = h.Store.Definition(h.Context(), "acme", first.Definition)
		h.refuses(err, fault.NotFound, "DEFINITION_NOT_FOUND")
		h.must(h.Store.DeleteAgent(h.Context(), "acme", "clerk", nil, h.auditEvent("gone")))
		h.refuses(h.Store.DeleteAgent(h.Context(), "acme", "clerk", nil, h.auditEvent("again")), fault.NotFound, "AGENT_NOT_FOUND")
		_, err = h.Store.StoredAgent(h.Context(), "acme", "clerk")
		h.refuses(err, fault.NotFound, "AGENT_NOT_FOUND")
		_, err = h.Store.Definition(h.Context(), "acme", second.Definition)
		h.refuses(err, fault.NotFound, "DEFINITION_NOT_FOUND")
		same(h, "events", len(h.auditIDs("acme", store.AuditQuery{Limit: 9})), 3)
	}},
	{"a stored agent is changed only as expected, within the limit, and under a name of its own", func(h *harness) {
		a, b := h.storedAgent("clerk", `{"v":1}`), h.storedAgent("clerk", `{"v":2}`)
		none, wrong := "", "another"
		try := func(a session.StoredAgent, expected *string, most int) error {
			_, err := h.Store.StoreAgent(h.Context(), "acme", a, expected, most, h.auditEvent(h.id("e")))
			return err
		}
		h.refuses(try(a, &wrong, 2), fault.Stale, "AGENT_CHANGED")
		h.must(try(a, &none, 2))
		h.refuses(try(b, &none, 2), fault.Stale, "AGENT_CHANGED")
		h.refuses(h.Store.DeleteAgent(h.Context(), "acme", "clerk", &wrong, h.auditEvent("e")), fault.Stale, "AGENT_CHANGED")
		h.must(try(b, &a.Definition, 2))
		h.must(try(h.storedAgent("second", `{}`), nil, 2))
		h.refuses(try(h.storedAgent("third", `{}`), nil, 2), fault.TooLarge, "TOO_MANY_AGENTS")
		h.must(try(a, nil, 2)) // a change of one is no other agent
		h.refuses(try(h.storedAgent(agent, `{}`), nil, 9), fault.Conflict, "AGENT_ANNOUNCED")
		h.must(h.Store.Announce(h.Context(), executor, nil, h.now))
		h.must(try(h.storedAgent(agent, `{}`), nil, 9))
	}},
	{"concurrent requests store no more agents than the limit", func(h *harness) {
		results := make(chan error, 8)
		for i := range cap(results) {
			go func() {
				_, err := h.Store.StoreAgent(h.Context(), "acme", h.storedAgent(fmt.Sprint("a", i), `{}`), nil, 3, h.auditEvent(fmt.Sprint("e", i)))
				results <- err
			}()
		}
		for range cap(results) {
			if err := <-results; err != nil {
				h.refuses(err, fault.TooLarge, "TOO_MANY_AGENTS")
			}
		}
		list, err := h.Store.StoredAgentsOf(h.Context(), "acme")
		h.must(err)
		same(h, "agents", len(list), 3)
	}},
	{"only executors that serve stored agents claim their runs, with the definition of that moment", func(h *harness) {
		h.store("acme", h.storedAgent("clerk", `{"v":1}`))
		key := h.startStored("acme", "s1")
		same(h, "claims of an executor that does not know stored agents", len(h.claimAll(executor, 9)), 0)
		changed := h.storedAgent("clerk", `{"v":2}`)
		h.store("acme", changed)
		h.announceStored()
		ref := h.claimStored(key, changed.Definition)
		// The run in progress keeps its definition, whatever becomes of the agent.
		third := h.storedAgent("clerk", `{"v":3}`)
		h.store("acme", third)
		h.must(h.Store.DeleteAgent(h.Context(), "acme", "clerk", nil, h.auditEvent("gone")))
		text, err := h.Store.Definition(h.Context(), "acme", changed.Definition)
		h.must(err)
		same(h, "definition", text, changed.Text)
		// A takeover runs the definition of its moment.
		h.must(h.tryRelease(ref))
		h.store("acme", third)
		ref = h.claimStored(key, third.Definition)
		h.finish(ref)
		_, run := h.session(key)
		if run.Agent() != "clerk" || run.Definition != third.Definition {
			h.Errorf("got the agent %q with the definition %q of an ended run", run.Agent(), run.Definition)
		}
	}},
	{"a run whose agent was deleted is claimed without a definition", func(h *harness) {
		h.store("acme", h.storedAgent("clerk", `{"v":1}`))
		key := h.startStored("acme", "s1")
		h.must(h.Store.DeleteAgent(h.Context(), "acme", "clerk", nil, h.auditEvent("gone")))
		h.announceStored()
		h.claimStored(key, "")
	}},
	{"a continuation runs the definition of its moment", func(h *harness) {
		h.store("acme", h.storedAgent("clerk", `{"v":1}`))
		key := h.startStored("acme", "s1")
		h.announceStored()
		ref := h.claimStored(key, h.storedAgent("clerk", `{"v":1}`).Definition)
		h.commit(h.suspendingCommit(ref, 1, "c1"))
		changed := h.storedAgent("clerk", `{"v":2}`)
		h.store("acme", changed)
		h.submit(h.submitOf(key, "c1"))
		h.claimStored(key, changed.Definition)
	}},
	{"an agent of another tenant is not there", func(h *harness) {
		h.store("acme", h.storedAgent("clerk", `{"v":1}`))
		mine := h.storedAgent("clerk", `{"v":1}`)
		foreign := session.Key{Tenant: "other", SessionID: "s1"}
		c := h.startOf(foreign)
		c.AgentType = "clerk"
		_, err := h.tryStart(c)
		h.refuses(err, fault.NotFound, "AGENT_NOT_FOUND")
		_, err = h.Store.Definition(h.Context(), "other", mine.Definition)
		h.refuses(err, fault.NotFound, "DEFINITION_NOT_FOUND")
		theirs := h.storedAgent("clerk", `{"v":"theirs"}`)
		h.store("other", theirs)
		key := h.startStored("acme", "s1")
		h.startStored("other", "s1")
		h.announceStored()
		claimed := h.claimAllStored()
		same(h, "claims", len(claimed), 2)
		for _, d := range claimed {
			want := theirs.Definition
			if d.View.Session.Key == key {
				want = mine.Definition
			}
			same(h, "definition of "+d.View.Session.Tenant, d.Change.Runs[0].Definition, want)
		}
		erased, err := h.Store.EraseAgents(h.Context(), "acme")
		h.must(err)
		same(h, "erased", erased, int64(1))
		_, err = h.Store.Definition(h.Context(), "acme", mine.Definition)
		h.refuses(err, fault.NotFound, "DEFINITION_NOT_FOUND")
		_, err = h.Store.Definition(h.Context(), "other", theirs.Definition)
		h.must(err)
	}},
	{"an agent that an executor announces goes before a stored one", func(h *harness) {
		h.store("acme", h.storedAgent("clerk", `{"v":1}`))
		key := h.startStored("acme", "s1")
		h.announceStored()
		h.finish(h.claimStored(key, h.storedAgent("clerk", `{"v":1}`).Definition))
		h.must(h.Store.Announce(h.Context(), executor, []session.Agent{{Type: agent}, {Type: "clerk"}}, h.now))
		c := h.startOf(key) // an existing session, with and without the name of its agent
		c.AgentType = ""
		if run := h.start(c).Run; run.AgentType != "clerk" || run.StoredAgent != "" {
			h.Errorf("got a run of %q (%q), want the executor's clerk", run.AgentType, run.StoredAgent)
		}
		h.must(h.Store.Announce(h.Context(), executor, []session.Agent{{Type: agent}}, h.now))
		other := h.startStored("acme", "s2")
		if _, run := h.session(other); run.StoredAgent != "clerk" {
			h.Errorf("got a run of %q, want the stored clerk again", run.AgentType)
		}
	}},
	{"a sub-agent may be a stored one", func(h *harness) {
		h.store(home.Tenant, h.storedAgent("clerk", `{"v":1}`))
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		c := h.awaitingCommit(ref, 1, "child")
		c.NewChildren = []session.NewChild{
			{SessionID: "child", AgentType: "clerk", CallID: "call of child", Mode: session.Ephemeral, RunID: "child's", MessageID: "child's ui",
				State: "{}"},
		}
		h.commit(c)
		h.announceStored()
		h.finish(h.claimStored(at("child"), h.storedAgent("clerk", `{"v":1}`).Definition))
		if _, run := h.session(home); run.Entry != session.EntryContinuation || run.AgentType != agent {
			h.Errorf("got %+v, want a continuation of the parent", run)
		}
	}},
	{"queued runs of stored agents are counted by their agents", func(h *harness) {
		h.store("acme", h.storedAgent("clerk", `{}`))
		h.startStored("acme", "s1")
		queued, err := h.Store.QueuedRuns(h.Context(), "acme", 9)
		h.must(err)
		same(h, "queued runs", queued["clerk"].Runs, int64(1))
		unserved, err := h.Store.Unserved(h.Context())
		h.must(err)
		if _, ok := unserved[session.StoredAgents]; !ok {
			h.Errorf("got the unserved agents %v, want the stored ones among them", unserved)
		}
		agents, err := h.Store.Agents(h.Context())
		h.must(err)
		same(h, "announced agents", len(agents), 1)
	}},
}

// storedAgent returns an agent with a definition.
func (h *harness) storedAgent(name, definition string) session.StoredAgent {
	h.Helper()
	text, hash, err := session.CanonicalDefinition([]byte(definition))
	h.must(err)
	return session.StoredAgent{Agent: session.Agent{Type: name, Definition: hash}, Text: text, By: "key:k", At: h.now}
}

// store stores an agent, and returns the former one.
func (h *harness) store(tenant string, a session.StoredAgent) *session.StoredAgent {
	h.Helper()
	former, err := h.Store.StoreAgent(h.Context(), tenant, a, nil, 9, h.auditEvent(h.id("stored")))
	h.must(err)
	return former
}

// startStored starts a session of the stored agent clerk.
func (h *harness) startStored(tenant, id string) session.Key {
	h.Helper()
	c := h.startOf(session.Key{Tenant: tenant, SessionID: id})
	c.AgentType = "clerk"
	h.start(c)
	return c.Key
}

func (h *harness) announceStored() {
	h.Helper()
	h.must(h.Store.Announce(h.Context(), storing, []session.Agent{{Type: session.StoredAgents}}, h.now))
}

func (h *harness) claimAllStored() []store.Decided {
	h.Helper()
	due := store.Queued{ExecutorID: storing, AgentTypes: []string{session.StoredAgents}, Now: h.now}
	claimed, err := h.Store.UpdateDue(h.Context(), due, session.Need{State: true, Calls: true}, 9,
		session.Claim{ExecutorID: storing, Now: h.now}.Decide)
	h.must(err)
	return claimed
}

// claimStored claims the only due run of stored agents, which is of the session and runs the definition.
func (h *harness) claimStored(key session.Key, definition string) session.ClaimRef {
	h.Helper()
	claimed := h.claimAllStored()
	if len(claimed) != 1 || claimed[0].View.Session.Key != key {
		h.Fatalf("got %d claims, want one of %v", len(claimed), key)
	}
	same(h, "definition", claimed[0].Change.Runs[0].Definition, definition)
	return refOf(claimed[0])
}
