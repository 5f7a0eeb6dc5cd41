package storetest

import (
	"fmt"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// edits prove starts that rewind to a user's message.
var edits = []suiteCase{
	{"a regenerate rewinds to a message and answers it again", func(h *harness) {
		first := h.runTurn(home, 1, "one")
		second := h.runTurn(home, 2, "two")
		before := h.checkpoints(home)
		c := h.regenerateOf(home, second.message)
		c.RequestKey, c.RequestHash = "again", []byte("h")
		started := h.start(c)
		s, run := h.session(home)
		same(h, "messages", h.messageIDs(home), []string{first.message, first.answer, second.message})
		same(h, "state", s.State, `{"n":"one"}`)
		if s.Status != session.Active || s.Turn != 3 || s.StepCount != 2 || s.MessageCount != 3 || run.RunID != c.RunID || run.Entry != session.EntryStart ||
			run.MessageID != c.MessageID || run.StartMessageCount != 2 || run.TurnMessageCount != 2 || s.CheckpointID != before[1].ID {
			h.Errorf("got %+v,\n%+v", s, run)
		}
		same(h, "run of the message", h.messages(home)[2].RunID, c.RunID)
		same(h, "checkpoints", h.checkpoints(home), before[1:])
		repeat := h.regenerateOf(home, "whatever")
		repeat.RequestKey, repeat.RequestHash = "again", []byte("h")
		repeated := h.start(repeat)
		if !repeated.Repeated || repeated.Run.RunID != started.Run.RunID {
			h.Errorf("got %+v, want the first run", repeated)
		}
		ref, _ := h.claim(executor)
		last := h.commitOf(ref, 3)
		last.Ops = []session.StateOp{{Key: "m", Kind: session.OpReplace, Value: "3"}}
		last.Outcome = &completed
		h.commit(last)
		same(h, "state after the step", h.snapshot(home).Session.State, `{"n":"one","m":3}`)
		h.start(h.regenerateOf(home, second.message))
		same(h, "state after the repeated regenerate", h.snapshot(home).Session.State, `{"n":"one"}`)
		same(h, "usage stays", len(h.usage(home)), 2)
	}},
	{"an edit replaces a message", func(h *harness) {
		h.runTurn(home, 1, "one")
		h.runTurn(home, 2, "two")
		same(h, "messages", len(h.messageIDs(home)), 4)
		c := h.editOf(home, h.messageIDs(home)[0])
		c.Messages = []session.Message{{ID: h.messageIDs(home)[0], Role: "user", RunID: c.RunID, Body: []byte("anew")}, {ID: h.messageIDs(home)[3], Role: "user", RunID: c.RunID}}
		want := idsOf(c.Messages)
		h.start(c)
		s, run := h.session(home)
		same(h, "messages", h.messageIDs(home), want)
		same(h, "the new one", string(h.messages(home)[0].Body), "anew")
		same(h, "state", s.State, `{}`)
		same(h, "where the run begins", run.StartMessageCount, int64(0))
		same(h, "checkpoints", len(h.checkpoints(home)), 0)
		same(h, "newest checkpoint", s.CheckpointID, "")
	}},
	{"a session is rewound to visible messages only", func(h *harness) {
		turn := h.runTurn(home, 1, "one")
		h.append(home, "hidden")
		for _, id := range []string{"unknown", turn.answer, "hidden"} {
			_, err := h.tryStart(h.regenerateOf(home, id))
			h.refuses(err, fault.NotFound, "MESSAGE_NOT_FOUND")
		}
		_, err := h.tryStart(h.regenerateOf(at("unknown"), turn.message))
		h.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		stranger := session.Key{Tenant: "other", SessionID: home.SessionID}
		h.start(h.startOf(stranger))
		h.finish(h.claimOf(stranger))
		_, err = h.tryStart(h.regenerateOf(stranger, turn.message))
		h.refuses(err, fault.NotFound, "MESSAGE_NOT_FOUND")
	}},
	{"a session is rewound in every status but active", func(h *harness) {
		for name, end := range map[string]func(session.ClaimRef){
			"completed":   func(ref session.ClaimRef) { h.finish(ref) },
			"failed":      func(ref session.ClaimRef) { h.fail(ref) },
			"interrupted": func(ref session.ClaimRef) { h.must(h.interrupt(ref)) },
			"paused":      func(ref session.ClaimRef) { h.forceStatus(ref.Key, session.Paused) },
			"suspended":   func(ref session.ClaimRef) { h.commit(h.suspendingCommit(ref, 1, "c1")) },
		} {
			key := at(name)
			sent := h.startOf(key)
			h.start(sent)
			_, err := h.tryStart(h.editOf(key, sent.Messages[0].ID))
			h.refuses(err, fault.Conflict, "SESSION_BUSY")
			ref := h.claimOf(key)
			end(ref)
			c := h.regenerateOf(key, sent.Messages[0].ID)
			c.OnBusy = session.BusyEnqueue
			h.start(c)
			s, _ := h.session(key)
			same(h, name, s.Status, session.Active)
			same(h, name+": messages", h.messageIDs(key), []string{sent.Messages[0].ID})
			same(h, name+": calls", len(h.snapshot(key).Calls), 0)
			if s.Failure != nil || s.Interruption != nil || s.Suspension != nil || s.ExpiresAt != 0 {
				h.Errorf("%s: got %+v", name, s)
			}
			_, err = h.tryStart(h.editOf(key, sent.Messages[0].ID))
			h.refuses(err, fault.Conflict, "SESSION_BUSY")
			same(h, name+": run of another such request", h.start(h.regenerateOf(key, sent.Messages[0].ID)).Run.RunID, c.RunID)
		}
	}},
	{"a new session takes in a history once, and it can be rewound to", func(h *harness) {
		c := h.startOf(home)
		c.MustExist = true
		_, err := h.tryStart(c)
		h.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		c.MustExist = false
		c.History = []session.Message{
			{ID: "h1", Role: "user", RunID: c.RunID, CreatedAt: h.now, Body: []byte("one")},
			{ID: "h2", Role: "assistant", CreatedAt: h.now, Body: []byte("two")},
		}
		c.EarlierIDs = []string{"h1", "x"}
		h.start(c)
		want := []string{"h1", "h2", c.Messages[0].ID}
		same(h, "messages", h.messageIDs(home), want)
		same(h, "unknown", c.Unknown(h.readView(home, c.Need())), 1)
		repeated := c
		repeated.RunID, repeated.MessageID = h.id("run"), h.id("ui")
		if got := h.start(repeated); !got.Repeated || got.Run.RunID != c.RunID {
			h.Errorf("got %+v, want the first run", got)
		}
		same(h, "messages after the repeat", h.messageIDs(home), want)
		last := h.commitOf(h.claimOf(home), 1)
		last.Outcome = &completed
		h.commit(last)
		edit := h.editOf(home, "h1")
		edit.Messages = []session.Message{{ID: "h1", Role: "user", RunID: edit.RunID, CreatedAt: h.now, Body: []byte("one")}}
		if got := h.start(edit); got.Repeated { // the run answers the last message, not this one
			h.Errorf("got %+v, want a new run", got)
		}
		same(h, "messages after the edit", h.messageIDs(home), []string{"h1"})
	}},
	{"messages that a client lacks are found with their senders, and removed", func(h *harness) {
		first, second := h.runTurn(home, 1, "one"), h.runTurn(home, 2, "two")
		h.append(home, "appended") // has no run
		h.runTurn(home, 3, "three")
		asked := h.readView(home, session.Need{AskedFrom: 1}).Asked
		same(h, "messages behind the first", len(asked), 2)
		same(h, "the first of them", asked[0].ID, second.message)
		same(h, "its sender", asked[0].StartedBy, "")
		if asked := h.readView(home, session.Need{AskedFrom: 100}).Asked; asked == nil || len(asked) > 0 {
			h.Errorf("behind the end: got %v, want an empty list", asked)
		}
		if asked := h.readView(home, session.Need{Current: true}).Asked; asked != nil {
			h.Errorf("without a need: got %v", asked)
		}
		c := h.startOf(home)
		c.EarlierIDs, c.Missing = []string{first.message}, session.MissingIsRemoved
		got := h.start(c)
		same(h, "messages that remain", h.messageIDs(home), []string{first.message, first.answer, c.Messages[0].ID})
		same(h, "removed", got.Removed, int64(5))
	}},
	{"a rewind ends live work unless the policy rejects it", func(h *harness) {
		for _, policy := range []session.BusyPolicy{session.BusyEnqueue, session.BusyInterrupt, session.BusyRollback} {
			key := session.Key{Tenant: home.Tenant, SessionID: string(policy)}
			sent := h.startOf(key)
			h.start(sent)
			ref := h.claimOf(key)
			h.must(h.tryPlan(ref, 1, "plan", "c1"))
			waiting := h.start(h.waitingOf(key))
			c := h.editOf(key, sent.Messages[0].ID)
			c.OnBusy = policy
			started := h.start(c)
			if started.Waiting || started.Repeated || started.Run.RunID != c.RunID {
				h.Errorf("%s: got %+v", policy, started)
			}
			same(h, "messages", h.messageIDs(key), idsOf(c.Messages))
			s, run := h.session(key)
			if s.Status != session.Active || s.Waiting != 0 || run.RunID != c.RunID || run.Status != session.RunQueued {
				h.Errorf("%s: got %+v, %+v", policy, s, run)
			}
			for _, id := range []string{ref.RunID, waiting.Run.RunID} {
				r, err := h.Store.Run(h.Context(), key, id)
				h.must(err)
				if r.Status != session.RunInterrupted || r.CompletedAt == 0 {
					h.Errorf("%s: run %s: got %+v", policy, id, r)
				}
			}
			_, err := h.tryCommit(h.commitOf(ref, 1))
			h.refuses(err, fault.Stale, "EPOCH_STALE")
			last := h.commitOf(h.claimOf(key), 1)
			last.Outcome = &completed
			h.commit(last)
			same(h, "messages behind the end", len(h.messageIDs(key)), 2)
		}
	}},
	{"the default policy counts if neither the request nor the agent has one", func(h *harness) {
		sent := h.startOf(home)
		h.start(sent)
		second := h.startOf(home)
		second.DefaultOnBusy = session.BusyInterrupt
		second.Limits = limits
		if got := h.start(second); !got.Waiting || got.Run.OnBusy != session.BusyInterrupt {
			h.Errorf("got %+v", got)
		}
		h.must(h.Store.Announce(h.Context(), executor, []session.Agent{{Type: agent, OnBusy: session.BusyReject}}, h.now))
		third := h.startOf(home)
		third.DefaultOnBusy, third.Limits = session.BusyInterrupt, limits
		_, err := h.tryStart(third)
		h.refuses(err, fault.Conflict, "SESSION_BUSY")
		again := h.regenerateOf(home, sent.Messages[0].ID)
		again.DefaultOnBusy, again.OnBusy = session.BusyReject, session.BusyInterrupt
		if got := h.start(again); got.Repeated || got.Run.RunID != again.RunID {
			h.Errorf("got %+v", got)
		}
	}},
	{"calls behind the message are deleted and unknown to answers", func(h *harness) {
		sent := h.startOf(home)
		h.start(sent)
		ref, _ := h.claim(executor)
		c := h.suspendingCommit(ref, 1, "consumed", "late")
		c.Calls[1].DeadlineAt = h.now + 10
		h.commit(c)
		h.submit(h.submitOf(home, "consumed"))
		h.now += 20
		h.timeout(home)
		ref, _ = h.claim(executor)
		h.commit(h.consumingCommit(ref, 2, "consumed", "late"))
		same(h, "late answer", h.submit(h.submitOf(home, "late")).Status, session.LateAnswer)
		h.commit(h.suspendingCommit(ref, 3, "open", "answered"))
		h.submit(h.submitOf(home, "answered"))
		h.start(h.regenerateOf(home, sent.Messages[0].ID))
		same(h, "calls", len(h.snapshot(home).Calls), 0)
		same(h, "owners", len(h.owners(home, "consumed", "late", "open", "answered")), 0)
		for _, id := range []string{"consumed", "late", "open", "answered"} {
			_, err := h.trySubmit(h.submitOf(home, id))
			h.refuses(err, fault.NotFound, "UNKNOWN_TOOL_CALL")
		}
		ref, _ = h.claim(executor)
		h.commit(h.suspendingCommit(ref, 4, "consumed", "open")) // the ids are free
		same(h, "answer", h.submit(h.submitOf(home, "open")).Status, session.Accepted)
	}},
	{"results of calls before the message remain", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		late := h.suspendingCommit(ref, 1, "yes", "late", "open", "given")
		late.Calls[1].DeadlineAt = h.now + 10
		h.commit(late)
		h.submit(h.submitOf(home, "yes"))
		h.now += 20
		h.timeout(home)
		h.stop(home, session.StopInterrupt, "why")
		second := h.startOf(home)
		h.start(second)
		ref, _ = h.claim(executor)
		c := h.consumingCommit(ref, 2, "yes", "late")
		result := c.Messages[1].ID
		h.commit(c)
		same(h, "late answer", h.submit(h.submitOf(home, "late")).Status, session.LateAnswer)
		reported := h.consumingCommit(ref, 3)
		reported.LateReported, reported.Outcome = []string{"late"}, &completed
		h.commit(reported)
		before := len(h.messageIDs(home))

		repeat := h.regenerateOf(home, second.Messages[0].ID)
		repeat.Abandon, repeat.Answers = abandonedResponse, []session.Answer{{CallID: "given", Kind: session.ClientTool, Response: []byte("given")}}
		started := h.start(repeat)
		same(h, "abandoned", started.Abandoned, []string{"open"})
		same(h, "removed messages", before-len(h.messageIDs(home)), 3)
		same(h, "messages", h.messageIDs(home)[2:], []string{second.Messages[0].ID, result})
		_, d := h.claim(executor)
		remaining := map[string]string{}
		for _, call := range d.View.Calls {
			remaining[call.CallID] = fmt.Sprintf("%s %s %v %v", call.Answer, call.Response, call.ConsumedAt > 0, call.LateReported)
		}
		same(h, "calls", remaining, map[string]string{"open": "abandoned gone false false", "given": "client given false false", "late": "timeout timeout true false"})
	}},
	{"open calls before the message are dropped unless the start abandons them", func(h *harness) {
		h.startSuspended(home, "open", "answered")
		h.submit(h.submitOf(home, "answered"))
		h.append(home, "m2")
		h.start(h.regenerateOf(home, "m2"))
		_, d := h.claim(executor)
		if len(d.View.Calls) != 1 || d.View.Calls[0].CallID != "answered" {
			h.Errorf("got %+v, want the answered one", d.View.Calls)
		}
		_, err := h.trySubmit(h.submitOf(home, "open"))
		h.refuses(err, fault.NotFound, "UNKNOWN_TOOL_CALL")
	}},
	{"a branch is rewound only to where its state is known", func(h *harness) {
		first := h.runTurn(home, 1, "one")
		h.runTurn(home, 2, "two")
		_, err := h.branch(home, h.checkpoints(home)[0].ID, at("branch"))
		h.must(err)
		_, err = h.tryStart(h.regenerateOf(at("branch"), first.message))
		h.refuses(err, fault.NotFound, "CHECKPOINT_NOT_FOUND")
		h.runTurn(at("branch"), 1, "three")
		_, err = h.tryStart(h.regenerateOf(at("branch"), first.message))
		h.refuses(err, fault.NotFound, "CHECKPOINT_NOT_FOUND")
		h.append(at("branch"), "aside")
		h.runTurn(at("branch"), 2, "four")
		h.start(h.regenerateOf(at("branch"), "aside"))
		same(h, "state", h.snapshot(at("branch")).Session.State, `{"n":"three"}`)
		same(h, "messages", len(h.messageIDs(at("branch"))), 7)
		same(h, "checkpoints", len(h.checkpoints(at("branch"))), 1)
	}},
	{"a message sent with others rewinds to the start state of their run", func(h *harness) {
		c := h.startOf(home)
		c.Messages = append(c.Messages, session.Message{ID: "second", Role: "user", RunID: c.RunID})
		h.start(c)
		ref, _ := h.claim(executor)
		step := h.commitOf(ref, 1)
		step.Ops, step.Outcome = []session.StateOp{{Key: "n", Kind: session.OpReplace, Value: "1"}}, &completed
		h.commit(step)
		back := h.editOf(home, "second")
		back.Messages = []session.Message{{ID: "third", Role: "user", RunID: back.RunID}}
		h.start(back)
		same(h, "messages", h.messageIDs(home), []string{c.Messages[0].ID, "third"})
		same(h, "state", h.snapshot(home).Session.State, `{}`)
	}},
	{"a rewound sub-session updates its status in the parent", func(h *harness) {
		h.startTree()
		h.awaitChildren("child")
		sent := h.messageIDs(at("child"))[0]
		h.must(h.interrupt(h.claimOf(at("child"))))
		same(h, "status in the parent", h.snapshot(at("root")).Children[0].Status, session.Interrupted)
		h.start(h.regenerateOf(at("child"), sent))
		same(h, "status in the parent", h.snapshot(at("root")).Children[0].Status, session.Active)
		if h.Reopen != nil {
			h.Store = h.Reopen(h.T)
			same(h, "messages", h.messageIDs(at("child")), []string{sent})
		}
	}},
}

// exchange holds the ids of a user's message and its answer.
type exchange struct{ message, answer string }

// runTurn starts a run, which answers in one step and writes the value to the state.
func (h *harness) runTurn(key session.Key, step int32, value string) exchange {
	h.Helper()
	sent := h.startOf(key)
	h.start(sent)
	ref := h.claimOf(key)
	c := h.commitOf(ref, step)
	c.Ops = []session.StateOp{{Key: "n", Kind: session.OpReplace, Value: `"` + value + `"`}}
	c.Usage, c.Outcome = []session.Usage{modelUsage(1)}, &completed
	h.commit(c)
	return exchange{sent.Messages[0].ID, c.Messages[0].ID}
}

// messageIDs returns the ids of the conversation's messages.
func (h *harness) messageIDs(key session.Key) []string {
	h.Helper()
	return idsOf(h.messages(key))
}

func (h *harness) interrupt(ref session.ClaimRef) error {
	_, err := h.tryFinish(ref, session.Outcome{Status: session.RunInterrupted})
	return err
}

func (h *harness) fail(ref session.ClaimRef) {
	h.Helper()
	_, err := h.tryFinish(ref, session.Outcome{Status: session.RunFailed, Failure: &session.Failure{Error: "no"}})
	h.must(err)
}
