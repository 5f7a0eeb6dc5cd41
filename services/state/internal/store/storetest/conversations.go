package storetest

import (
	"fmt"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

var conversations = []suiteCase{
	{"messages are appended at any time", func(h *harness) {
		h.create(h.createOf(home))
		h.append(home, "a", "b")
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		h.append(home, "c")
		h.commit(h.commitOf(ref, 1))
		h.append(home, "d")
		ids := ""
		for i, m := range h.messages(home) {
			same(h, "ordinal", m.Ordinal, int64(i))
			if len(m.ID) == 1 {
				ids += m.ID
			}
		}
		s := h.snapshot(home).Session
		if ids != "abcd" || s.MessageCount != 6 || s.Version != 6 {
			h.Errorf("got %q, %d messages, version %d; want abcd, 6, 6", ids, s.MessageCount, s.Version)
		}
		_, err := h.tryAppend(home, "e", "a")
		h.refuses(err, fault.Conflict, "MESSAGE_EXISTS")
		_, err = h.tryAppend(home, "e", "e")
		h.refuses(err, fault.Conflict, "MESSAGE_EXISTS")
		_, err = h.tryAppend(at("unknown"), "e")
		h.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		same(h, "session after refusals", h.snapshot(home).Session, s)
	}},
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
	{"the end of a conversation can be truncated", func(h *harness) {
		h.runSteps(home, 3) // four messages and checkpoints at 2, 3, 4
		got, err := h.truncate(home, 4)
		h.must(err)
		same(h, "count without a removal", got, int64(4))
		before := h.snapshot(home).Session
		_, err = h.truncate(home, 5)
		h.refuses(err, fault.Invalid, "COUNT_INVALID")
		same(h, "session without a removal", h.snapshot(home).Session, before)
		got, err = h.truncate(home, 3)
		h.must(err)
		messages, total, err := h.Store.Messages(h.Context(), home, store.Page{Limit: 10, MaxBytes: 1000})
		h.must(err)
		s := h.snapshot(home).Session
		if got != 3 || total != 3 || len(messages) != 3 || s.MessageCount != 3 || s.Version != before.Version+1 || s.CheckpointID != h.checkpoints(home)[0].ID || s.StepCount != 3 {
			h.Errorf("got %d, %d of %d messages, %+v", got, len(messages), total, s)
		}
		list := h.checkpoints(home)
		if len(list) != 2 || list[0].MessageCount != 3 {
			h.Errorf("got checkpoints %+v, want those that count 3 and 2", list)
		}
		latest, _, err := h.Store.Checkpoint(h.Context(), home, "")
		h.must(err)
		same(h, "newest checkpoint", latest.Step, int32(2))
		h.append(home, "new") // at the free ordinal
		if messages := h.messages(home); len(messages) != 4 || messages[3].ID != "new" || messages[3].Ordinal != 3 {
			h.Errorf("got %+v", messages)
		}
		got, err = h.truncate(home, 0)
		if err != nil || got != 0 || len(h.messages(home)) != 0 || len(h.checkpoints(home)) != 0 {
			h.Errorf("got %d, %v, %d messages", got, err, len(h.messages(home)))
		}
		if v := h.readView(home, session.Need{CheckpointStep: 3}); v.Checkpoint != nil {
			h.Error("a view shows a removed checkpoint")
		}
	}},
	{"the id of a removed message may be reused", func(h *harness) {
		h.create(h.createOf(home))
		h.append(home, "a", "b")
		_, err := h.truncate(home, 1)
		h.must(err)
		h.append(home, "b")
		_, err = h.tryAppend(home, "a", "c")
		h.refuses(err, fault.Conflict, "MESSAGE_EXISTS")
		count, err := h.tryAppend(home, "b", "a")
		h.must(err)
		same(h, "count after a repetition", count, int64(2))
		same(h, "messages after a repetition", len(h.messages(home)), 2)
	}},
	{"a session with a live run cannot be truncated or rewound", func(h *harness) {
		h.runSteps(home, 1)
		id := h.checkpoints(home)[0].ID
		h.start(h.startOf(home))
		for range 2 {
			_, err := h.truncate(home, 1)
			h.refuses(err, fault.Conflict, "SESSION_BUSY")
			_, err = h.rewind(home, id)
			h.refuses(err, fault.Conflict, "SESSION_BUSY")
			h.claimAll(executor, 1)
		}
	}},
	{"a session is rewound to a checkpoint", func(h *harness) {
		h.runSteps(home, 4)
		list := h.checkpoints(home)
		target, before := list[2], h.snapshot(home).Session // of the second step
		h.now++
		rewound, err := h.rewind(home, target.ID)
		h.must(err)
		s := h.snapshot(home).Session
		same(h, "answer", rewound, s)
		if s.Status != session.Paused || s.MessageCount != 3 || s.State != `{"log":[1,2]}` || s.StepCount != 4 || s.Version != before.Version+1 ||
			s.CheckpointID != target.ID || s.Output != "" || s.Failure != nil || s.UpdatedAt != h.now {
			h.Errorf("got %+v", s)
		}
		same(h, "messages", len(h.messages(home)), 3)
		same(h, "checkpoints", h.checkpoints(home), list[2:])
		h.expectNoCheckpoint(list[0].ID)
		h.start(h.startOf(home))
		ref, d := h.claim(executor)
		same(h, "state of the next run", d.View.Session.State, `{"log":[1,2]}`)
		commit := h.commitOf(ref, 5) // step numbers are never reused
		commit.Ops = []session.StateOp{{Key: "log", Kind: session.OpAppend, Value: "[5]"}}
		h.commit(commit)
		same(h, "state after", h.snapshot(home).Session.State, `{"log":[1,2,5]}`)
		_, state, err := h.Store.Checkpoint(h.Context(), home, target.ID)
		h.must(err)
		same(h, "state of the checkpoint", state, `{"log":[1,2]}`)
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
			Key: at("new"), AgentType: agent, RootID: "new", Status: session.Paused, Version: 1, MessageCount: 3, State: `{"log":[1,2]}`, StateVersion: 1, StateBase: 1,
			UserID: source.UserID, OrganizationID: source.OrganizationID, Tags: source.Tags, Metadata: source.Metadata, CreatedAt: h.now, UpdatedAt: h.now,
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
	c.NewSession.UserID, c.NewSession.OrganizationID, c.NewSession.Tags, c.NewSession.Metadata = "u", "org", []string{"a"}, map[string]string{"k": "v"}
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
