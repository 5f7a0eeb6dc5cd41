package storetest

import (
	"slices"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// answerRuns are about the run of an answer, as a command is shown it.
var answerRuns = []test{
	{"an answer is shown with its run and the messages before it", func(b *bench) {
		first := b.talk(home, 1, "one")
		_, one := b.session(home)
		b.append(home, "between")
		second := b.talk(home, 2, "two")
		_, two := b.session(home)
		b.answers(home, one, true, first.message)
		b.answers(home, two, true, second.message, "between", first.message)
		messages := b.messages(home)
		asked := b.view(home, session.Need{Answer: two.MessageID}).Answer.Asked
		same(b, "messages as a whole", asked, []session.Message{messages[3], messages[2], messages[0]})
	}},
	{"of an answer that several runs have written the newest is shown", func(b *bench) {
		ref := b.suspended(home, "c1")
		b.submit(b.submitOf(home, "c1"))
		next := b.claimOf(home)
		c := b.takes(next, 2, "c1")
		c.Outcome = &completed
		b.commit(c)
		first, err := b.Store.Run(b.Context(), home, ref.RunID)
		b.must(err)
		_, last := b.session(home)
		if last.RunID == first.RunID || last.MessageID != first.MessageID {
			b.Fatalf("got %+v after %+v, want its continuation", last, first)
		}
		b.answers(home, last, true, b.said(home)[0])
	}},
	{"a run that has not begun has no answer", func(b *bench) {
		b.start(b.startOf(home))
		ref := b.claimOf(home)
		given, kept := b.waitingOf(home), b.waitingOf(home)
		b.start(given)
		b.start(kept)
		b.unanswered(home, given.MessageID)
		_, err := b.tryStop(session.RequestStop{Key: home, RunID: given.RunID, Kind: session.StopInterrupt, Now: b.now})
		b.must(err)
		b.finish(ref)
		b.unanswered(home, given.MessageID)
		_, run := b.session(home)
		same(b, "run that has begun", run.RunID, kept.RunID)
		messages := b.said(home)
		b.answers(home, run, true, messages[1], messages[0])
	}},
	{"an answer stands until another message takes its place", func(b *bench) {
		first := b.talk(home, 1, "one")
		second := b.talk(home, 2, "two")
		_, gone := b.session(home)
		b.start(b.regenerateOf(home, second.message))
		_, run := b.session(home)
		b.answers(home, gone, false, first.message)
		b.answers(home, run, true, second.message, first.message)
		b.finish(b.claimOf(home))
		for _, left := range []int64{2, 1, 0} {
			_, err := b.truncate(home, left)
			b.must(err)
			var want []string
			if left > 0 {
				want = []string{first.message}
			}
			b.answers(home, gone, true, want...)
		}
	}},
	{"what comes while an answer is written stands behind it", func(b *bench) {
		sent := b.startOf(home)
		b.start(sent)
		ref, question := b.claimOf(home), sent.Messages[0].ID
		b.append(home, "early")
		c := b.takes(ref, 1)
		c.Messages[1].Role = "user"
		b.commit(c)
		b.append(home, "late")
		b.finish(ref)
		_, first := b.session(home)
		b.answers(home, first, true, question)
		second := b.talk(home, 2, "two")
		_, last := b.session(home)
		b.answers(home, last, true, second.message, "late", "early", question)
	}},
	{"a message of the run itself behind its first step stands behind its answer", func(b *bench) {
		turn := b.talk(home, 1, "one")
		_, run := b.session(home)
		b.appendWhole(home, session.Message{ID: "note", Role: "user", RunID: run.RunID})
		b.answers(home, run, true, turn.message)
	}},
	{"of the messages before an answer the newest are shown", func(b *bench) {
		c := b.startOf(home)
		for range session.MostAsked + 5 {
			c.Messages = append(c.Messages, session.Message{ID: b.id("msg"), Role: "user", RunID: c.RunID})
		}
		c.Messages = append(c.Messages, session.Message{ID: "system", Role: "system", RunID: c.RunID})
		b.start(c)
		b.finish(b.claimOf(home))
		_, run := b.session(home)
		want := idsOf(c.Messages[6 : session.MostAsked+6])
		slices.Reverse(want)
		b.answers(home, run, true, want...)
	}},
	{"an answer is found in its own session only", func(b *bench) {
		b.talk(home, 1, "one")
		_, run := b.session(home)
		b.unanswered(home, "nobody")
		_, err := b.branch(home, b.checkpoints(home)[0].ID, at("branch"))
		b.must(err)
		b.unanswered(at("branch"), run.MessageID)
		stranger := session.Key{Tenant: "other", SessionID: home.SessionID}
		b.create(b.createOf(stranger))
		b.unanswered(stranger, run.MessageID)
		same(b, "view of nobody", *b.view(at("nobody"), session.Need{Answer: run.MessageID, Retry: true}), session.View{})
	}},
	{"sessions that are shown together keep their answers and failed steps apart", func(b *bench) {
		var targets []session.Target
		var want []*session.View
		for _, key := range []session.Key{home, at("s2"), at("s3")} {
			b.talk(key, 1, key.SessionID)
			_, run := b.session(key)
			need := session.Need{Answer: run.MessageID, Retry: true}
			if key == at("s2") {
				need = session.Need{}
			}
			targets, want = append(targets, session.Target{Key: key, Need: need}), append(want, b.view(key, need))
		}
		b.must(b.Store.Update(b.Context(), targets, weight, func(views []*session.View) ([]*session.Change, error) {
			for i, v := range views {
				same(b, "session", v.Session, want[i].Session)
				same(b, "answer", v.Answer, want[i].Answer)
				same(b, "failed step", v.Failed, want[i].Failed)
			}
			return nil, nil
		}))
	}},
}

// failedSteps are about where a run can be tried again, as a command is shown it.
var failedSteps = []test{
	{"a run that a step has failed is shown with what was good before", func(b *bench) {
		b.talk(home, 1, "one")
		b.start(b.startOf(home))
		ref := b.claimOf(home)
		good := b.commitOf(ref, 2)
		good.Ops = []session.StateOp{{Key: "n", Kind: session.Replace, Value: "2"}}
		b.commit(good)
		b.appendWhole(home, session.Message{ID: "stranger", Role: "assistant", RunID: "another", Step: 3})
		b.commit(b.failing(ref, 3))
		f := b.failed(home)
		same(b, "good checkpoint", *f.Good, b.checkpoints(home)[1])
		same(b, "state", f.State, `{"n":2}`)
		same(b, "messages", f.Messages, b.messages(home)[5:])
		same(b, "how many", len(f.Messages), 2)
	}},
	{"a run whose first step has failed it has nothing good", func(b *bench) {
		b.talk(home, 1, "one")
		b.start(b.startOf(home))
		b.commit(b.failing(b.claimOf(home), 2))
		same(b, "failed step", b.failed(home), session.FailedStep{Messages: b.messages(home)[3:]})
	}},
	{"a run that has failed outside of a step is shown without messages", func(b *bench) {
		b.start(b.startOf(home))
		ref := b.claimOf(home)
		b.commit(b.commitOf(ref, 1))
		b.fail(ref)
		good := b.checkpoints(home)[0]
		same(b, "failed step", b.failed(home), session.FailedStep{Good: &good, State: `{}`})
	}},
	{"a run that has not failed is shown with its last step", func(b *bench) {
		b.start(b.startOf(home))
		same(b, "queued", b.failed(home), session.FailedStep{})
		ref := b.claimOf(home)
		b.commit(b.suspending(ref, 1, "c1"))
		good := b.checkpoints(home)[0]
		same(b, "suspended", b.failed(home), session.FailedStep{Good: &good, State: `{}`, Messages: b.messages(home)[1:]})
		b.submit(b.submitOf(home, "c1"))
		same(b, "continued", b.failed(home), session.FailedStep{})
		last := b.takes(b.claimOf(home), 2, "c1")
		last.Outcome = &completed
		b.commit(last)
		good = b.checkpoints(home)[0]
		same(b, "completed", b.failed(home), session.FailedStep{Good: &good, State: `{}`, Messages: b.messages(home)[2:]})
	}},
	{"a failed step shows no messages that have gone", func(b *bench) {
		b.talk(home, 1, "one")
		b.start(b.startOf(home))
		ref := b.claimOf(home)
		b.commit(b.commitOf(ref, 2))
		b.commit(b.failing(ref, 3))
		good := b.checkpoints(home)[1]
		_, err := b.truncate(home, good.MessageCount)
		b.must(err)
		same(b, "cut to the good step", b.failed(home), session.FailedStep{Good: &good, State: `{"n":"one"}`})
		_, err = b.truncate(home, 1)
		b.must(err)
		same(b, "cut before the run", b.failed(home), session.FailedStep{})
	}},
	{"a failed step is shown though its good state is not kept", func(b *bench) {
		b.start(b.startOf(home))
		ref := b.claimOf(home)
		b.commit(b.failing(ref, 1))
		s, run := b.session(home)
		s.StepCount, run.StepCount = 2, 2
		lost := session.Checkpoint{ID: "lost", RunID: ref.RunID, Step: 2, Status: session.Active, StateVersion: s.Version + 5, StateBase: s.Version + 5}
		b.write(home, &session.Change{Session: &s, Runs: []session.Run{run}, Checkpoint: &lost})
		same(b, "failed step", b.failed(home), session.FailedStep{Good: &lost, Messages: b.messages(home)[1:]})
	}},
	{"a session without runs has no failed step", func(b *bench) {
		b.create(b.createOf(home))
		if f := b.view(home, session.Need{Retry: true}).Failed; f != nil {
			b.Errorf("got %+v, want none", f)
		}
	}},
}

// answers fails the test unless the message that the run has written is shown with the
// run, and with these messages before it.
func (b *bench) answers(key session.Key, run session.Run, stands bool, asked ...string) {
	b.Helper()
	a := b.view(key, session.Need{Answer: run.MessageID}).Answer
	if a == nil || a.Run == nil {
		b.Fatalf("got no answer for message %q of run %q", run.MessageID, run.RunID)
	}
	same(b, "run of the answer", *a.Run, run)
	same(b, "whether the answer stands", a.Stands, stands)
	same(b, "messages before the answer", idsOf(a.Asked), asked)
}

// unanswered fails the test if a run is shown for the id.
func (b *bench) unanswered(key session.Key, messageID string) {
	b.Helper()
	if a := b.view(key, session.Need{Answer: messageID}).Answer; a == nil || a.Run != nil {
		b.Errorf("got the run %+v for message %q of %v, want none", a.Run, messageID, key)
	}
}

// appendWhole appends a message that the caller makes.
func (b *bench) appendWhole(key session.Key, m session.Message) {
	b.Helper()
	c := session.AppendMessages{Key: key, Messages: []session.Message{m}, Now: b.now}
	b.must(b.all(c.Key, c.Need(), answered(new(int64), c.Decide)))
}

func (b *bench) failed(key session.Key) session.FailedStep {
	b.Helper()
	f := b.view(key, session.Need{Retry: true}).Failed
	if f == nil {
		b.Fatalf("got no failed step of %v", key)
	}
	return *f
}

// failing is the commit of a step with two messages that fails its run.
func (b *bench) failing(ref session.Ref, step int32) session.Commit {
	c := b.takes(ref, step)
	c.Ops = []session.StateOp{{Key: "n", Kind: session.Replace, Value: `"bad"`}}
	c.Outcome = &session.Outcome{Status: session.RunFailed, Failure: &session.Failure{Error: "it failed"}}
	return c
}
