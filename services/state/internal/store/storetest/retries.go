package storetest

import (
	"fmt"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// retries prove the effects of a retry on messages, state and calls.
var retries = []suiteCase{
	{"a retry after a truncation starts at the end of the conversation", func(h *harness) {
		h.runTurn(home, 1, "one")
		h.start(h.startOf(home))
		h.commit(h.failingCommit(h.claimOf(home), 2))
		_, err := h.truncate(home, 1)
		h.must(err)
		h.start(h.retryOf(home))
		s, run := h.session(home)
		same(h, "where the run begins", run.StartMessageCount, s.MessageCount)
	}},
	{"a retry after a rewind keeps the rewound state", func(h *harness) {
		h.runTurn(home, 1, "one")
		_, err := h.saveState(session.SaveState{Key: home, State: `{"whole":1}`, Limits: limits, Now: h.now})
		h.must(err)
		h.start(h.startOf(home))
		h.commit(h.failingCommit(h.claimOf(home), 2))
		_, err = h.rewind(home, h.checkpoints(home)[1].ID)
		h.must(err)
		h.forceStatus(home, session.Failed)
		c := h.retryOf(home)
		h.start(c)
		same(h, "state", h.snapshot(home).Session.State, `{"n":"one"}`)
	}},
	{"a retry rewinds to the last valid checkpoint", func(h *harness) {
		first := h.runTurn(home, 1, "one")
		sent := h.startOf(home)
		h.start(sent)
		ref := h.claimOf(home)
		valid := h.commitOf(ref, 2)
		valid.Ops = []session.StateOp{{Key: "n", Kind: session.OpReplace, Value: "2"}}
		h.commit(valid)
		failing := h.failingCommit(ref, 3)
		failing.Messages = failing.Messages[:1] // no tool has run
		h.commit(failing)
		checkpoints := h.checkpoints(home)
		c := h.retryOf(home)
		c.RequestKey, c.RequestHash = "again", []byte("h")
		c.Messages = h.startOf(home).Messages
		c.Append = []session.Message{{ID: "note", Role: "system", CreatedAt: h.now, Body: []byte("x")}}
		c.Ops = []session.StateOp{{Key: "m", Kind: session.OpReplace, Value: "9"}}
		h.start(c)
		same(h, "messages", h.messageIDs(home), []string{first.message, first.answer, sent.Messages[0].ID, valid.Messages[0].ID, "note", c.Messages[0].ID})
		s, run := h.session(home)
		same(h, "state", s.State, `{"n":2,"m":9}`)
		if s.Status != session.Active || s.Failure != nil || s.ResumeCount != 1 || s.StepCount != 3 || s.MessageCount != 6 || run.RunID != c.RunID || run.Entry != session.EntryResume || run.StartMessageCount != 5 {
			h.Errorf("got %+v,\n%+v", s, run)
		}
		same(h, "checkpoints", h.checkpoints(home), checkpoints[1:])
		if got := h.start(c); !got.Repeated || got.Run.RunID != c.RunID {
			h.Errorf("got %+v, want the first retry", got)
		}
		ref = h.claimOf(home)
		last := h.commitOf(ref, 4)
		last.Ops, last.Outcome = []session.StateOp{{Key: "o", Kind: session.OpReplace, Value: "4"}}, &completed
		h.commit(last)
		same(h, "state after its step", h.snapshot(home).Session.State, `{"n":2,"m":9,"o":4}`)
	}},
	{"a retry drops the failed step's calls and keeps earlier answers", func(h *harness) {
		h.startSuspended(home, "c1")
		h.submit(h.submitOf(home, "c1"))
		ref := h.claimOf(home)
		h.commit(h.consumingCommit(ref, 2, "c1"))
		h.fail(ref)
		before := h.messageIDs(home)
		h.start(h.retryOf(home))
		same(h, "messages", h.messageIDs(home), before)
		same(h, "newest checkpoint", h.snapshot(home).Session.CheckpointID, h.checkpoints(home)[0].ID)
		same(h, "answer", h.submit(h.submitOf(home, "c1")).Status, session.AlreadyCompleted)
		ref = h.claimOf(home)
		h.commit(h.suspendingCommit(ref, 3, "c2"))
		same(h, "calls", len(h.snapshot(home).Calls), 1)
	}},
	{"a retry of a failed first step keeps only the run's messages", func(h *harness) {
		first := h.runTurn(home, 1, "one")
		sent := h.startOf(home)
		sent.Messages = append(sent.Messages, session.Message{ID: "second", Role: "user", RunID: sent.RunID, Body: []byte("and")})
		h.start(sent)
		ref := h.claimOf(home)
		failing := h.failingCommit(ref, 2)
		failing.Messages = failing.Messages[:1]
		h.commit(failing)
		h.append(home, "aside")
		checkpoints := h.checkpoints(home)
		c := h.retryOf(home)
		h.start(c)
		messages := h.messages(home)
		same(h, "messages", idsOf(messages), []string{first.message, first.answer, sent.Messages[0].ID, "second", "aside"})
		for i, m := range messages {
			same(h, "ordinal", m.Ordinal, int64(i))
		}
		same(h, "runs of the messages", []string{messages[2].RunID, messages[3].RunID, messages[4].RunID}, []string{c.RunID, c.RunID, ""})
		s, run := h.session(home)
		same(h, "state", s.State, `{"n":"one"}`)
		same(h, "checkpoints", h.checkpoints(home), checkpoints[1:])
		if s.MessageCount != 5 || s.StepCount != 2 || run.StartMessageCount != 2 || run.TurnMessageCount != 2 || run.Entry != session.EntryResume {
			h.Errorf("got %+v,\n%+v", s, run)
		}
		ref = h.claimOf(home)
		failing = h.failingCommit(ref, 3)
		failing.Messages = failing.Messages[:1]
		h.commit(failing)
		h.start(h.retryOf(home)) // from the same state as before
		same(h, "messages after another failure", h.messageIDs(home), idsOf(messages))
		same(h, "state after another failure", h.snapshot(home).Session.State, `{"n":"one"}`)
	}},
	{"a retry removes nothing when a tool has run, the steps ran out or no step failed", func(h *harness) {
		for name, fail := range map[string]func(session.ClaimRef){
			"a tool has run": func(ref session.ClaimRef) { h.commit(h.failingCommit(ref, 2)) },
			"too many steps": func(ref session.ClaimRef) {
				c := h.failingCommit(ref, 2)
				c.Messages, c.Outcome.Failure.Code = c.Messages[:1], mostSteps
				h.commit(c)
			},
			"no step": func(ref session.ClaimRef) { h.fail(ref) },
		} {
			key := at(name)
			h.runTurn(key, 1, "one")
			h.start(h.startOf(key))
			fail(h.claimOf(key))
			before, messages, checkpoints := h.snapshot(key).Session, h.messages(key), h.checkpoints(key)
			c := h.retryOf(key)
			c.Append = []session.Message{{ID: "note", Role: "system", CreatedAt: h.now, Body: []byte("x")}}
			h.start(c)
			s, run := h.session(key)
			same(h, name+": messages", h.messages(key)[:len(messages)], messages)
			same(h, name+": message that is appended", h.messageIDs(key)[len(messages):], []string{"note"})
			same(h, name+": state", fmt.Sprint(s.State, s.StateVersion), fmt.Sprint(before.State, before.StateVersion))
			same(h, name+": checkpoints", h.checkpoints(key), checkpoints)
			same(h, name+": where the run begins", run.StartMessageCount, int64(len(messages)+1))
		}
	}},
	{"a session that failed without a run is retried with a new one", func(h *harness) {
		h.create(h.createOf(home))
		h.append(home, "m1")
		h.forceStatus(home, session.Failed)
		c := h.retryOf(home)
		h.start(c)
		s, run := h.session(home)
		same(h, "messages", h.messageIDs(home), []string{"m1"})
		if s.Status != session.Active || run.RunID != c.RunID || run.StartMessageCount != 1 {
			h.Errorf("got %+v,\n%+v", s, run)
		}
	}},
	{"a retry rejects an existing message", func(h *harness) {
		sent := h.startOf(home)
		h.start(sent)
		ref := h.claimOf(home)
		valid := h.commitOf(ref, 1)
		h.commit(valid)
		failing := h.failingCommit(ref, 2)
		failing.Messages = failing.Messages[:1]
		h.commit(failing)
		before := h.snapshot(home)
		c := h.retryOf(home)
		c.Append = []session.Message{{ID: valid.Messages[0].ID, Role: "system"}}
		_, err := h.tryStart(c)
		h.refuses(err, fault.Conflict, "MESSAGE_EXISTS")
		c.Append, c.Limits = nil, session.Limits{State: 10}
		c.Ops = []session.StateOp{{Key: "n", Kind: session.OpReplace, Value: `"too large"`}}
		_, err = h.tryStart(c)
		h.refuses(err, fault.TooLarge, "STATE_SIZE_EXCEEDED")
		same(h, "snapshot", h.snapshot(home), before)
		c.Ops, c.Append = nil, []session.Message{{ID: failing.Messages[0].ID, Role: "system"}} // the retry removes it
		h.start(c)
		same(h, "messages", h.messageIDs(home), []string{sent.Messages[0].ID, valid.Messages[0].ID, failing.Messages[0].ID})
	}},
}

// atOrdinal returns the message with an ordinal.
func atOrdinal(m session.Message, ordinal int64) session.Message {
	m.Ordinal = ordinal
	return m
}
