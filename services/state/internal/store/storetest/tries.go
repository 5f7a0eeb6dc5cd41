package storetest

import (
	"fmt"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// triesAgain are about runs that have failed and are tried again.
var triesAgain = []test{
	{"a retry behind a truncated conversation begins where that ends", func(b *bench) {
		b.talk(home, 1, "one")
		b.start(b.startOf(home))
		b.commit(b.failing(b.claimOf(home), 2))
		_, err := b.truncate(home, 1)
		b.must(err)
		b.start(b.retryOf(home))
		s, run := b.session(home)
		same(b, "where the run begins", run.StartMessageCount, s.MessageCount)
	}},
	{"a retry of a run whose state was taken back", func(b *bench) {
		b.talk(home, 1, "one")
		_, err := b.saveState(session.SaveState{Key: home, State: `{"whole":1}`, Limits: limits, Now: b.now})
		b.must(err)
		b.start(b.startOf(home))
		b.commit(b.failing(b.claimOf(home), 2))
		_, err = b.rewind(home, b.checkpoints(home)[1].ID)
		b.must(err)
		b.force(home, session.Failed)
		c := b.retryOf(home)
		b.start(c)
		same(b, "state", b.snapshot(home).Session.State, `{"n":"one"}`)
	}},
	{"a retry goes back to where the run was good", func(b *bench) {
		first := b.talk(home, 1, "one")
		sent := b.startOf(home)
		b.start(sent)
		ref := b.claimOf(home)
		good := b.commitOf(ref, 2)
		good.Ops = []session.StateOp{{Key: "n", Kind: session.Replace, Value: "2"}}
		b.commit(good)
		bad := b.failing(ref, 3)
		bad.Messages = bad.Messages[:1] // no tool has run
		b.commit(bad)
		checkpoints := b.checkpoints(home)
		c := b.retryOf(home)
		c.RequestKey, c.RequestHash = "again", []byte("h")
		c.Messages = b.startOf(home).Messages
		c.Append = []session.Message{{ID: "note", Role: "system", CreatedAt: b.now, Body: []byte("x")}}
		c.Ops = []session.StateOp{{Key: "m", Kind: session.Replace, Value: "9"}}
		b.start(c)
		same(b, "messages", b.said(home), []string{first.message, first.answer, sent.Messages[0].ID, good.Messages[0].ID, "note", c.Messages[0].ID})
		s, run := b.session(home)
		same(b, "state", s.State, `{"n":2,"m":9}`)
		if s.Status != session.Active || s.Failure != nil || s.ResumeCount != 1 || s.StepCount != 3 || s.MessageCount != 6 || run.RunID != c.RunID || run.Entry != session.EntryResume || run.StartMessageCount != 5 {
			b.Errorf("got %+v,\n%+v", s, run)
		}
		same(b, "checkpoints", b.checkpoints(home), checkpoints[1:])
		if got := b.start(c); !got.Repeated || got.Run.RunID != c.RunID {
			b.Errorf("got %+v, want the first retry", got)
		}
		ref = b.claimOf(home)
		last := b.commitOf(ref, 4)
		last.Ops, last.Outcome = []session.StateOp{{Key: "o", Kind: session.Replace, Value: "4"}}, &completed
		b.commit(last)
		same(b, "state after its step", b.snapshot(home).Session.State, `{"n":2,"m":9,"o":4}`)
	}},
	{"a retry lets the calls of the failed step go, and those before it stay answered", func(b *bench) {
		b.suspended(home, "c1")
		b.submit(b.submitOf(home, "c1"))
		ref := b.claimOf(home)
		b.commit(b.takes(ref, 2, "c1"))
		b.fail(ref)
		before := b.said(home)
		b.start(b.retryOf(home))
		same(b, "messages", b.said(home), before)
		same(b, "newest checkpoint", b.snapshot(home).Session.CheckpointID, b.checkpoints(home)[0].ID)
		same(b, "answer", b.submit(b.submitOf(home, "c1")).Status, session.AlreadyCompleted)
		ref = b.claimOf(home)
		b.commit(b.suspending(ref, 3, "c2"))
		same(b, "calls", len(b.snapshot(home).Calls), 1)
	}},
	{"a retry of a first step takes the run back but for its messages", func(b *bench) {
		first := b.talk(home, 1, "one")
		sent := b.startOf(home)
		sent.Messages = append(sent.Messages, session.Message{ID: "second", Role: "user", RunID: sent.RunID, Body: []byte("and")})
		b.start(sent)
		ref := b.claimOf(home)
		bad := b.failing(ref, 2)
		bad.Messages = bad.Messages[:1]
		b.commit(bad)
		b.append(home, "aside")
		checkpoints := b.checkpoints(home)
		c := b.retryOf(home)
		b.start(c)
		messages := b.messages(home)
		same(b, "messages", idsOf(messages), []string{first.message, first.answer, sent.Messages[0].ID, "second", "aside"})
		for i, m := range messages {
			same(b, "ordinal", m.Ordinal, int64(i))
		}
		same(b, "runs of the messages", []string{messages[2].RunID, messages[3].RunID, messages[4].RunID}, []string{c.RunID, c.RunID, ""})
		s, run := b.session(home)
		same(b, "state", s.State, `{"n":"one"}`)
		same(b, "checkpoints", b.checkpoints(home), checkpoints[1:])
		if s.MessageCount != 5 || s.StepCount != 2 || run.StartMessageCount != 2 || run.TurnMessageCount != 2 || run.Entry != session.EntryResume {
			b.Errorf("got %+v,\n%+v", s, run)
		}
		ref = b.claimOf(home)
		bad = b.failing(ref, 3)
		bad.Messages = bad.Messages[:1]
		b.commit(bad)
		b.start(b.retryOf(home)) // once more, from the same state
		same(b, "messages after another failure", b.said(home), idsOf(messages))
		same(b, "state after another failure", b.snapshot(home).Session.State, `{"n":"one"}`)
	}},
	{"a retry takes nothing back when a tool has run, or no step is to be had", func(b *bench) {
		for name, fail := range map[string]func(session.Ref){
			"a tool has run": func(ref session.Ref) { b.commit(b.failing(ref, 2)) },
			"too many steps": func(ref session.Ref) {
				c := b.failing(ref, 2)
				c.Messages, c.Outcome.Failure.Code = c.Messages[:1], mostSteps
				b.commit(c)
			},
			"no step": func(ref session.Ref) { b.fail(ref) },
		} {
			key := at(name)
			b.talk(key, 1, "one")
			b.start(b.startOf(key))
			fail(b.claimOf(key))
			before, messages, checkpoints := b.snapshot(key).Session, b.messages(key), b.checkpoints(key)
			c := b.retryOf(key)
			c.Append = []session.Message{{ID: "note", Role: "system", CreatedAt: b.now, Body: []byte("x")}}
			b.start(c)
			s, run := b.session(key)
			same(b, name+": messages", b.messages(key)[:len(messages)], messages)
			same(b, name+": message that is appended", b.said(key)[len(messages):], []string{"note"})
			same(b, name+": state", fmt.Sprint(s.State, s.StateVersion), fmt.Sprint(before.State, before.StateVersion))
			same(b, name+": checkpoints", b.checkpoints(key), checkpoints)
			same(b, name+": where the run begins", run.StartMessageCount, int64(len(messages)+1))
		}
	}},
	{"a session that has not failed is not retried", func(b *bench) {
		b.start(b.startOf(home))
		_, err := b.try(b.retryOf(home))
		b.refuses(err, fault.Conflict, "SESSION_CHANGED")
		b.finish(b.claimOf(home))
		_, err = b.try(b.retryOf(home))
		b.refuses(err, fault.Conflict, "SESSION_CHANGED")
		_, err = b.try(b.retryOf(at("nobody")))
		b.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		b.suspended(at("aborted"), "c1")
		b.stop(at("aborted"), session.StopAbort, "why")
		_, err = b.try(b.retryOf(at("aborted")))
		b.refuses(err, fault.Conflict, "RUN_CANCELLED")
	}},
	{"a session that failed without a run is retried with one", func(b *bench) {
		b.create(b.createOf(home))
		b.append(home, "m1")
		b.force(home, session.Failed)
		c := b.retryOf(home)
		b.start(c)
		s, run := b.session(home)
		same(b, "messages", b.said(home), []string{"m1"})
		if s.Status != session.Active || run.RunID != c.RunID || run.StartMessageCount != 1 {
			b.Errorf("got %+v,\n%+v", s, run)
		}
	}},
	{"a retry brings no message that is there", func(b *bench) {
		sent := b.startOf(home)
		b.start(sent)
		ref := b.claimOf(home)
		good := b.commitOf(ref, 1)
		b.commit(good)
		bad := b.failing(ref, 2)
		bad.Messages = bad.Messages[:1]
		b.commit(bad)
		before := b.snapshot(home)
		c := b.retryOf(home)
		c.Append = []session.Message{{ID: good.Messages[0].ID, Role: "system"}}
		_, err := b.try(c)
		b.refuses(err, fault.Conflict, "MESSAGE_EXISTS")
		c.Append, c.Limits = nil, session.Limits{State: 10}
		c.Ops = []session.StateOp{{Key: "n", Kind: session.Replace, Value: `"too large"`}}
		_, err = b.try(c)
		b.refuses(err, fault.TooLarge, "STATE_SIZE_EXCEEDED")
		same(b, "snapshot", b.snapshot(home), before)
		c.Ops, c.Append = nil, []session.Message{{ID: bad.Messages[0].ID, Role: "system"}} // it goes away
		b.start(c)
		same(b, "messages", b.said(home), []string{sent.Messages[0].ID, good.Messages[0].ID, bad.Messages[0].ID})
	}},
}

// branchesOff are about runs that begin in a branch.
var branchesOff = []test{
	{"a run begins in a branch of another session", func(b *bench) {
		b.steps(home, 3)
		list, all, before := b.checkpoints(home), b.messages(home), b.snapshot(home)
		c := b.branchOffOf(home, list[1].ID, at("branch"))
		c.Append = []session.Message{{ID: "note", Role: "system", CreatedAt: b.now, Body: []byte("x")}}
		c.Ops = []session.StateOp{{Key: "m", Kind: session.Replace, Value: "9"}}
		c.Messages[0].ID = all[3].ID // the branch does not have it
		started := b.branchOff(c)
		want := append(all[:3:3], placed(c.Append[0], 3), placed(c.Messages[0], 4))
		same(b, "messages", b.messages(at("branch")), want)
		s, run := b.session(at("branch"))
		if !started.Created || started.Repeated || s.Status != session.Active || s.RootID != "branch" || s.ParentID != "" || s.Turn != 1 || s.MessageCount != 5 || s.UserID != "u" || s.OrganizationID != "org" {
			b.Errorf("got %+v of %+v", started, s)
		}
		same(b, "state", s.State, `{"log":[1,2],"m":9}`)
		if run.RunID != c.RunID || run.Status != session.RunQueued || run.Entry != session.EntryResume || run.StartMessageCount != 4 || run.Turn != 1 {
			b.Errorf("got %+v", run)
		}
		same(b, "started", started.Run, run)
		same(b, "source", b.snapshot(home), before)
		ref := b.claimOf(at("branch"))
		step := b.commitOf(ref, 1)
		step.Ops, step.Outcome = []session.StateOp{{Key: "log", Kind: session.Append, Value: "[5]"}}, &completed
		b.commit(step)
		same(b, "state after a step", b.snapshot(at("branch")).Session.State, `{"log":[1,2,5],"m":9}`)
		_, state, err := b.Store.Checkpoint(b.Context(), at("branch"), step.CheckpointID)
		b.must(err)
		same(b, "state of its checkpoint", state, `{"log":[1,2,5],"m":9}`)
	}},
	{"a branch with a run is made once by its request key", func(b *bench) {
		b.steps(home, 2)
		c := b.branchOffOf(home, b.checkpoints(home)[0].ID, at("branch"))
		c.RequestKey, c.RequestHash = "k", []byte("h")
		b.branchOff(c)
		before := b.snapshot(at("branch"))
		again := b.branchOffOf(home, c.CheckpointID, at("branch"))
		again.RequestKey, again.RequestHash = "k", []byte("h")
		if got := b.branchOff(again); !got.Repeated || got.Created || got.Run.RunID != c.RunID {
			b.Errorf("got %+v, want the first run", got)
		}
		again.RequestHash = []byte("another")
		_, err := b.tryBranchOff(again)
		b.refuses(err, fault.Conflict, "REQUEST_KEY_REUSED")
		again.RequestKey = "another"
		_, err = b.tryBranchOff(again)
		b.refuses(err, fault.Conflict, "SESSION_EXISTS")
		same(b, "snapshot", b.snapshot(at("branch")), before)
	}},
	{"a branch without a source makes no run", func(b *bench) {
		b.steps(home, 2)
		known := b.checkpoints(home)[1].ID
		_, err := b.tryBranchOff(b.branchOffOf(home, "nobody", at("branch")))
		b.refuses(err, fault.NotFound, "CHECKPOINT_NOT_FOUND")
		_, err = b.tryBranchOff(b.branchOffOf(at("nobody"), known, at("branch")))
		b.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		taken := b.branchOffOf(home, known, at("branch"))
		taken.Messages[0].ID = b.said(home)[0]
		_, err = b.tryBranchOff(taken)
		b.refuses(err, fault.Conflict, "MESSAGE_EXISTS")
		large := b.branchOffOf(home, known, at("branch"))
		large.Limits.State = 12
		large.Ops = []session.StateOp{{Key: "n", Kind: session.Replace, Value: `"too large"`}}
		_, err = b.tryBranchOff(large)
		b.refuses(err, fault.TooLarge, "STATE_SIZE_EXCEEDED")
		_, err = b.Store.Session(b.Context(), at("branch"))
		b.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
	}},
}

// branchOffOf is a command that begins a run with one message in a branch.
func (b *bench) branchOffOf(from session.Key, checkpointID string, key session.Key) session.BranchOff {
	c := b.startOf(key).Post
	c.Limits = limits
	return session.BranchOff{Post: c, From: from, CheckpointID: checkpointID}
}

func (b *bench) tryBranchOff(c session.BranchOff) (started session.Started, err error) {
	err = b.Store.Update(b.Context(), c.Targets(), weight, func(views []*session.View) (changes []*session.Change, err error) {
		var own *session.Change
		if own, started, err = c.Decide(views...); err != nil {
			return nil, err
		}
		return []*session.Change{own, nil}, nil
	})
	return started, err
}

func (b *bench) branchOff(c session.BranchOff) session.Started {
	b.Helper()
	started, err := b.tryBranchOff(c)
	b.must(err)
	return started
}

// placed is the message at a place of the conversation.
func placed(m session.Message, ordinal int64) session.Message {
	m.Ordinal = ordinal
	return m
}
