package storetest

import (
	"fmt"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

var conversations = []suiteCase{
	{"concurrent appends each get their own ordinal", func(h *harness) {
		h.create(h.createOf(home))
		counts := make([]int64, parallelism)
		concurrently(func(i int) {
			count, err := h.tryAppend(home, fmt.Sprint(i, " a"), fmt.Sprint(i, " b"))
			if err != nil {
				h.Errorf("append %d: %v", i, err)
			}
			counts[i] = count
		})
		messages := h.messages(home)
		same(h, "messages", len(messages), 2*parallelism)
		for i, count := range counts {
			if count%2 != 0 || messages[count-2].ID != fmt.Sprint(i, " a") || messages[count-1].ID != fmt.Sprint(i, " b") {
				h.Errorf("append %d returned count %d, the place of another message", i, count)
			}
		}
	}},
	{"a checkpoint of another session is not found", func(h *harness) {
		h.runSteps(home, 1)
		other, theirs := at("s2"), session.Key{Tenant: "other", SessionID: home.SessionID}
		h.runSteps(other, 1)
		h.runSteps(theirs, 1)
		before := h.snapshot(home).Session
		for _, key := range []session.Key{other, theirs} {
			id := h.checkpoints(key)[0].ID
			h.expectNoCheckpoint(id)
			_, err := h.rewind(home, id)
			h.refuses(err, fault.NotFound, "CHECKPOINT_NOT_FOUND")
			_, err = h.branch(home, id, at("new"))
			h.refuses(err, fault.NotFound, "CHECKPOINT_NOT_FOUND")
		}
		same(h, "session after refusals", h.snapshot(home).Session, before)
	}},
	{"a session is branched at a checkpoint", func(h *harness) {
		h.runSteps(home, 3)
		h.start(h.startOf(home)) // the source may be active
		source, messages := h.snapshot(home).Session, h.messages(home)
		target := h.checkpoints(home)[1] // of the second step
		h.start(h.startOf(at("there")))
		h.now++
		made, err := h.branch(home, target.ID, at("new"))
		h.must(err)
		same(h, "source", h.snapshot(home).Session, source)
		s := h.snapshot(at("new")).Session
		same(h, "answer", made, s)
		want := session.Session{
			Key: at("new"), AgentType: agent, RootID: "new", Status: session.Paused, Version: 1, MessageCount: 3, State: `{"log":[1,2]}`,
			StateVersion: 1, StateBase: 1,
			UserID: source.UserID, OrganizationID: source.OrganizationID, Tags: source.Tags, Metadata: source.Metadata, CreatedAt: h.now,
			UpdatedAt: h.now,
		}
		same(h, "branch", s, want)
		same(h, "messages", h.messages(at("new")), messages[:3])
		_, err = h.branch(home, target.ID, at("there"))
		h.refuses(err, fault.Conflict, "SESSION_EXISTS")
		_, err = h.branch(at("unknown"), target.ID, at("newer"))
		h.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		_, err = h.tryAppend(at("new"), messages[0].ID, "no such")
		h.refuses(err, fault.Conflict, "MESSAGE_EXISTS")
		h.append(at("new"), "its own")
		same(h, "messages of the source", h.messages(home), messages)
		h.must(h.delete(home))
		same(h, "messages without the source", len(h.messages(at("new"))), 4)
	}},
}

// expectNoCheckpoint fails the test if home has the checkpoint.
func (h *harness) expectNoCheckpoint(id string) {
	h.Helper()
	_, _, err := h.Store.Checkpoint(h.Context(), home, id)
	h.refuses(err, fault.NotFound, "CHECKPOINT_NOT_FOUND")
}

// runSteps starts a session with one run. The run commits n steps and ends.
func (h *harness) runSteps(key session.Key, n int32) {
	h.Helper()
	c := h.startOf(key)
	c.NewSession.UserID, c.NewSession.OrganizationID, c.NewSession.Tags, c.NewSession.Metadata = "u", "org", []string{"a"},
		map[string]string{"k": "v"}
	c.NewSession.State = `{"log":[]}`
	h.start(c)
	ref, _ := h.claim(executor)
	for step := int32(1); step <= n; step++ {
		commit := h.commitOf(ref, step)
		commit.Ops = []session.StateOp{{Key: "log", Kind: session.OpAppend, Value: fmt.Sprintf("[%d]", step)}}
		if step == n {
			commit.Outcome = &completed
		}
		h.commit(commit)
	}
}
