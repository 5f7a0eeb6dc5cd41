package storetest

import (
	"slices"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// answeringRuns prove which run a view shows for an answer.
var answeringRuns = []suiteCase{
	{"a view shows an answer with its run and the messages before it", func(h *harness) {
		first := h.runTurn(home, 1, "one")
		_, one := h.session(home)
		h.append(home, "between")
		second := h.runTurn(home, 2, "two")
		_, two := h.session(home)
		h.expectAnsweringRun(home, one, true, first.message)
		h.expectAnsweringRun(home, two, true, second.message, "between", first.message)
		messages := h.messages(home)
		before := h.readView(home, session.Need{AnswerID: two.MessageID}).Answer.Questions
		same(h, "messages as a whole", before, []session.Message{messages[3], messages[2], messages[0]})
	}},
	{"a view shows the newest run of an answer", func(h *harness) {
		ref := h.startSuspended(home, "c1")
		h.submit(h.submitOf(home, "c1"))
		next := h.claimOf(home)
		c := h.consumingCommit(next, 2, "c1")
		c.Outcome = &completed
		h.commit(c)
		first, err := h.Store.Run(h.Context(), home, ref.RunID)
		h.must(err)
		_, last := h.session(home)
		if last.RunID == first.RunID || last.MessageID != first.MessageID {
			h.Fatalf("got %+v after %+v, want its continuation", last, first)
		}
		h.expectAnsweringRun(home, last, true, h.messageIDs(home)[0])
	}},
	{"a waiting run has no answer", func(h *harness) {
		h.start(h.startOf(home))
		ref := h.claimOf(home)
		given, kept := h.waitingOf(home), h.waitingOf(home)
		h.start(given)
		h.start(kept)
		h.expectNoAnsweringRun(home, given.MessageID)
		_, err := h.tryStop(session.RequestStop{Key: home, RunID: given.RunID, Kind: session.StopInterrupt, Now: h.now})
		h.must(err)
		h.finish(ref)
		h.expectNoAnsweringRun(home, given.MessageID)
		_, run := h.session(home)
		same(h, "run that has begun", run.RunID, kept.RunID)
		messages := h.messageIDs(home)
		h.expectAnsweringRun(home, run, true, messages[1], messages[0])
	}},
	{"an answer is current until another message follows", func(h *harness) {
		first := h.runTurn(home, 1, "one")
		second := h.runTurn(home, 2, "two")
		_, removed := h.session(home)
		h.start(h.regenerateOf(home, second.message))
		_, run := h.session(home)
		h.expectAnsweringRun(home, removed, false, first.message)
		h.expectAnsweringRun(home, run, true, second.message, first.message)
		h.finish(h.claimOf(home))
		for _, remaining := range []int64{2, 1, 0} {
			_, err := h.truncate(home, remaining)
			h.must(err)
			var want []string
			if remaining > 0 {
				want = []string{first.message}
			}
			h.expectAnsweringRun(home, removed, true, want...)
		}
	}},
	{"a message sent during an answer comes after it", func(h *harness) {
		sent := h.startOf(home)
		h.start(sent)
		ref, question := h.claimOf(home), sent.Messages[0].ID
		h.append(home, "early")
		c := h.consumingCommit(ref, 1)
		c.Messages[1].Role = "user"
		h.commit(c)
		h.append(home, "late")
		h.finish(ref)
		_, first := h.session(home)
		h.expectAnsweringRun(home, first, true, question)
		second := h.runTurn(home, 2, "two")
		_, last := h.session(home)
		h.expectAnsweringRun(home, last, true, second.message, "late", "early", question)
	}},
	{"a run's later messages come after its answer", func(h *harness) {
		turn := h.runTurn(home, 1, "one")
		_, run := h.session(home)
		h.appendMessage(home, session.Message{ID: "note", Role: "user", RunID: run.RunID})
		h.expectAnsweringRun(home, run, true, turn.message)
	}},
	{"a view shows the newest messages before an answer", func(h *harness) {
		c := h.startOf(home)
		for range session.MaxQuestions + 5 {
			c.Messages = append(c.Messages, session.Message{ID: h.id("msg"), Role: "user", RunID: c.RunID})
		}
		c.Messages = append(c.Messages, session.Message{ID: "system", Role: "system", RunID: c.RunID})
		h.start(c)
		h.finish(h.claimOf(home))
		_, run := h.session(home)
		want := idsOf(c.Messages[6 : session.MaxQuestions+6])
		slices.Reverse(want)
		h.expectAnsweringRun(home, run, true, want...)
	}},
	{"an answer is found only in its own session", func(h *harness) {
		h.runTurn(home, 1, "one")
		_, run := h.session(home)
		h.expectNoAnsweringRun(home, "unknown")
		_, err := h.branch(home, h.checkpoints(home)[0].ID, at("branch"))
		h.must(err)
		h.expectNoAnsweringRun(at("branch"), run.MessageID)
		stranger := session.Key{Tenant: "other", SessionID: home.SessionID}
		h.create(h.createOf(stranger))
		h.expectNoAnsweringRun(stranger, run.MessageID)
		same(h, "view of an unknown session", *h.readView(at("unknown"), session.Need{AnswerID: run.MessageID, FailedStep: true}), session.View{})
	}},
	{"views of several sessions keep answers and failed steps separate", func(h *harness) {
		var targets []session.Target
		var want []*session.View
		for _, key := range []session.Key{home, at("s2"), at("s3")} {
			h.runTurn(key, 1, key.SessionID)
			_, run := h.session(key)
			need := session.Need{AnswerID: run.MessageID, FailedStep: true}
			if key == at("s2") {
				need = session.Need{}
			}
			targets, want = append(targets, session.Target{Key: key, Need: need}), append(want, h.readView(key, need))
		}
		h.must(h.Store.Update(h.Context(), targets, weight, func(views []*session.View) ([]*session.Change, error) {
			for i, v := range views {
				same(h, "session", v.Session, want[i].Session)
				same(h, "answer", v.Answer, want[i].Answer)
				same(h, "failed step", v.Failed, want[i].Failed)
			}
			return nil, nil
		}))
	}},
}

// failedSteps prove the checkpoint and the messages in a view of a failed step.
var failedSteps = []suiteCase{
	{"a view shows the last valid checkpoint before a failed step", func(h *harness) {
		h.runTurn(home, 1, "one")
		h.start(h.startOf(home))
		ref := h.claimOf(home)
		valid := h.commitOf(ref, 2)
		valid.Ops = []session.StateOp{{Key: "n", Kind: session.OpReplace, Value: "2"}}
		h.commit(valid)
		h.appendMessage(home, session.Message{ID: "stranger", Role: "assistant", RunID: "another", Step: 3})
		h.commit(h.failingCommit(ref, 3))
		f := h.failedStep(home)
		same(h, "valid checkpoint", *f.Checkpoint, h.checkpoints(home)[1])
		same(h, "state", f.State, `{"n":2}`)
		same(h, "messages", f.Messages, h.messages(home)[5:])
		same(h, "how many", len(f.Messages), 2)
	}},
	{"a run that failed in its first step has no valid checkpoint", func(h *harness) {
		h.runTurn(home, 1, "one")
		h.start(h.startOf(home))
		h.commit(h.failingCommit(h.claimOf(home), 2))
		same(h, "failed step", h.failedStep(home), session.FailedStep{Messages: h.messages(home)[3:]})
	}},
	{"a run that failed outside a step has no failed messages", func(h *harness) {
		h.start(h.startOf(home))
		ref := h.claimOf(home)
		h.commit(h.commitOf(ref, 1))
		h.fail(ref)
		valid := h.checkpoints(home)[0]
		same(h, "failed step", h.failedStep(home), session.FailedStep{Checkpoint: &valid, State: `{}`})
	}},
	{"a run that has not failed shows its last step", func(h *harness) {
		h.start(h.startOf(home))
		same(h, "queued", h.failedStep(home), session.FailedStep{})
		ref := h.claimOf(home)
		h.commit(h.suspendingCommit(ref, 1, "c1"))
		valid := h.checkpoints(home)[0]
		same(h, "suspended", h.failedStep(home), session.FailedStep{Checkpoint: &valid, State: `{}`, Messages: h.messages(home)[1:]})
		h.submit(h.submitOf(home, "c1"))
		same(h, "continued", h.failedStep(home), session.FailedStep{})
		last := h.consumingCommit(h.claimOf(home), 2, "c1")
		last.Outcome = &completed
		h.commit(last)
		valid = h.checkpoints(home)[0]
		same(h, "completed", h.failedStep(home), session.FailedStep{Checkpoint: &valid, State: `{}`, Messages: h.messages(home)[2:]})
	}},
	{"a failed step shows no removed messages", func(h *harness) {
		h.runTurn(home, 1, "one")
		h.start(h.startOf(home))
		ref := h.claimOf(home)
		h.commit(h.commitOf(ref, 2))
		h.commit(h.failingCommit(ref, 3))
		valid := h.checkpoints(home)[1]
		_, err := h.truncate(home, valid.MessageCount)
		h.must(err)
		same(h, "truncated to the valid step", h.failedStep(home), session.FailedStep{Checkpoint: &valid, State: `{"n":"one"}`})
		_, err = h.truncate(home, 1)
		h.must(err)
		same(h, "cut before the run", h.failedStep(home), session.FailedStep{})
	}},
	{"a failed step is shown without its state when that is not stored", func(h *harness) {
		h.start(h.startOf(home))
		ref := h.claimOf(home)
		h.commit(h.failingCommit(ref, 1))
		s, run := h.session(home)
		s.StepCount, run.StepCount = 2, 2
		lost := session.Checkpoint{
			ID: "lost", RunID: ref.RunID, Step: 2, Status: session.Active, StateVersion: s.Version + 5, StateBase: s.Version + 5,
		}
		h.write(home, &session.Change{Session: &s, Runs: []session.Run{run}, Checkpoint: &lost})
		same(h, "failed step", h.failedStep(home), session.FailedStep{Checkpoint: &lost, Messages: h.messages(home)[1:]})
	}},
	{"a session without runs has no failed step", func(h *harness) {
		h.create(h.createOf(home))
		if f := h.readView(home, session.Need{FailedStep: true}).Failed; f != nil {
			h.Errorf("got %+v, want none", f)
		}
	}},
}

// expectAnsweringRun fails the test unless a view shows the run's answer with the run and the
// messages before it.
func (h *harness) expectAnsweringRun(key session.Key, run session.Run, current bool, asked ...string) {
	h.Helper()
	a := h.readView(key, session.Need{AnswerID: run.MessageID}).Answer
	if a == nil || a.Run == nil {
		h.Fatalf("got no answer for message %q of run %q", run.MessageID, run.RunID)
	}
	same(h, "run of the answer", *a.Run, run)
	same(h, "whether the answer is current", a.QuestionInPlace, current)
	same(h, "messages before the answer", idsOf(a.Questions), asked)
}

// expectNoAnsweringRun fails the test if a view shows a run for the id.
func (h *harness) expectNoAnsweringRun(key session.Key, messageID string) {
	h.Helper()
	if a := h.readView(key, session.Need{AnswerID: messageID}).Answer; a == nil || a.Run != nil {
		h.Errorf("got the run %+v for message %q of %v, want none", a.Run, messageID, key)
	}
}

// appendMessage appends the message.
func (h *harness) appendMessage(key session.Key, m session.Message) {
	h.Helper()
	c := session.AppendMessages{Key: key, Messages: []session.Message{m}, Now: h.now}
	h.must(h.sendWidened(c.Key, c.Need(), capturing(new(session.Conversation), c.Decide)))
}

func (h *harness) failedStep(key session.Key) session.FailedStep {
	h.Helper()
	f := h.readView(key, session.Need{FailedStep: true}).Failed
	if f == nil {
		h.Fatalf("got no failed step of %v", key)
	}
	return *f
}

// failingCommit returns a commit with two messages to fail the run.
func (h *harness) failingCommit(ref session.ClaimRef, step int32) session.Commit {
	c := h.consumingCommit(ref, step)
	c.Ops = []session.StateOp{{Key: "n", Kind: session.OpReplace, Value: `"bad"`}}
	c.Outcome = &session.Outcome{Status: session.RunFailed, Failure: &session.Failure{Error: "it failed"}}
	return c
}
