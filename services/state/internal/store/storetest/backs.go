package storetest

import (
	"fmt"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// goesBack are about starts that take the conversation back to a message of a user.
var goesBack = []test{
	{"a start takes the conversation back to a message and answers it again", func(b *bench) {
		first := b.talk(home, 1, "one")
		second := b.talk(home, 2, "two")
		before := b.checkpoints(home)
		c := b.regenerateOf(home, second.message)
		c.RequestKey, c.RequestHash = "again", []byte("h")
		started := b.start(c)
		s, run := b.session(home)
		same(b, "messages", b.said(home), []string{first.message, first.answer, second.message})
		same(b, "state", s.State, `{"n":"one"}`)
		if s.Status != session.Active || s.Turn != 3 || s.StepCount != 2 || s.MessageCount != 3 || run.RunID != c.RunID || run.Entry != session.EntryStart ||
			run.MessageID != c.MessageID || run.StartMessageCount != 2 || run.TurnMessageCount != 2 || s.CheckpointID != before[1].ID {
			b.Errorf("got %+v,\n%+v", s, run)
		}
		same(b, "run of the message", b.messages(home)[2].RunID, c.RunID)
		same(b, "checkpoints", b.checkpoints(home), before[1:])
		again := b.regenerateOf(home, "whatever")
		again.RequestKey, again.RequestHash = "again", []byte("h")
		repeated := b.start(again)
		if !repeated.Repeated || repeated.Run.RunID != started.Run.RunID {
			b.Errorf("got %+v, want the first run again", repeated)
		}
		ref, _ := b.claim(executor)
		last := b.commitOf(ref, 3)
		last.Ops = []session.StateOp{{Key: "m", Kind: session.Replace, Value: "3"}}
		last.Outcome = &completed
		b.commit(last)
		same(b, "state after the step", b.snapshot(home).Session.State, `{"n":"one","m":3}`)
		b.start(b.regenerateOf(home, second.message))
		same(b, "state when it is answered once more", b.snapshot(home).Session.State, `{"n":"one"}`)
		same(b, "usage stays", len(b.usage(home)), 2)
	}},
	{"a start puts another message in the place of one", func(b *bench) {
		b.talk(home, 1, "one")
		b.talk(home, 2, "two")
		same(b, "messages", len(b.said(home)), 4)
		c := b.editOf(home, b.said(home)[0])
		c.Messages = []session.Message{{ID: b.said(home)[0], Role: "user", RunID: c.RunID, Body: []byte("anew")}, {ID: b.said(home)[3], Role: "user", RunID: c.RunID}}
		want := idsOf(c.Messages)
		b.start(c)
		s, run := b.session(home)
		same(b, "messages", b.said(home), want)
		same(b, "the new one", string(b.messages(home)[0].Body), "anew")
		same(b, "state", s.State, `{}`)
		same(b, "where the run begins", run.StartMessageCount, int64(0))
		same(b, "checkpoints", len(b.checkpoints(home)), 0)
		same(b, "newest checkpoint", s.CheckpointID, "")
	}},
	{"a message that goes leaves its id, one that stays does not", func(b *bench) {
		first, second := b.talk(home, 1, "one"), b.talk(home, 2, "two")
		before := b.snapshot(home)
		for _, id := range []string{first.message, first.answer} {
			c := b.editOf(home, second.message)
			c.Messages = []session.Message{{ID: id, Role: "user"}}
			_, err := b.try(c)
			b.refuses(err, fault.Conflict, "MESSAGE_EXISTS")
		}
		same(b, "snapshot", b.snapshot(home), before)
		c := b.editOf(home, second.message)
		c.Messages[0].ID = second.answer
		b.start(c)
		same(b, "messages", b.said(home), []string{first.message, first.answer, second.answer})
	}},
	{"a session is taken back to messages that users see, and to no others", func(b *bench) {
		turn := b.talk(home, 1, "one")
		b.append(home, "hidden")
		for _, id := range []string{"nobody", turn.answer, "hidden"} {
			_, err := b.try(b.regenerateOf(home, id))
			b.refuses(err, fault.NotFound, "MESSAGE_NOT_FOUND")
		}
		_, err := b.try(b.regenerateOf(at("nobody"), turn.message))
		b.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		stranger := session.Key{Tenant: "other", SessionID: home.SessionID}
		b.start(b.startOf(stranger))
		b.finish(b.claimOf(stranger))
		_, err = b.try(b.regenerateOf(stranger, turn.message))
		b.refuses(err, fault.NotFound, "MESSAGE_NOT_FOUND")
	}},
	{"a session is taken back whatever it is, but not while it is busy", func(b *bench) {
		for name, end := range map[string]func(session.Ref){
			"completed":   func(ref session.Ref) { b.finish(ref) },
			"failed":      func(ref session.Ref) { b.fail(ref) },
			"interrupted": func(ref session.Ref) { b.must(b.interrupt(ref)) },
			"paused":      func(ref session.Ref) { b.force(ref.Key, session.Paused) },
			"suspended":   func(ref session.Ref) { b.commit(b.suspending(ref, 1, "c1")) },
		} {
			key := at(name)
			sent := b.startOf(key)
			b.start(sent)
			_, err := b.try(b.editOf(key, sent.Messages[0].ID))
			b.refuses(err, fault.Conflict, "SESSION_BUSY")
			ref := b.claimOf(key)
			end(ref)
			c := b.regenerateOf(key, sent.Messages[0].ID)
			c.OnBusy = session.BusyEnqueue
			b.start(c)
			s, _ := b.session(key)
			same(b, name, s.Status, session.Active)
			same(b, name+": messages", b.said(key), []string{sent.Messages[0].ID})
			same(b, name+": calls", len(b.snapshot(key).Calls), 0)
			if s.Failure != nil || s.Interruption != nil || s.Suspension != nil || s.ExpiresAt != 0 {
				b.Errorf("%s: got %+v", name, s)
			}
			_, err = b.try(b.editOf(key, sent.Messages[0].ID))
			b.refuses(err, fault.Conflict, "SESSION_BUSY")
			same(b, name+": run of another such request", b.start(b.regenerateOf(key, sent.Messages[0].ID)).Run.RunID, c.RunID)
		}
	}},
	{"a session with runs that wait is not taken back", func(b *bench) {
		sent := b.startOf(home)
		b.start(sent)
		ref, _ := b.claim(executor)
		b.start(b.waitingOf(home))
		b.commit(b.suspending(ref, 1, "c1"))
		_, err := b.try(b.regenerateOf(home, sent.Messages[0].ID))
		b.refuses(err, fault.Conflict, "SESSION_BUSY")
	}},
	{"the calls behind the message go, and answers find them unknown", func(b *bench) {
		sent := b.startOf(home)
		b.start(sent)
		ref, _ := b.claim(executor)
		c := b.suspending(ref, 1, "consumed", "late")
		c.Calls[1].DeadlineAt = b.now + 10
		b.commit(c)
		b.submit(b.submitOf(home, "consumed"))
		b.now += 20
		b.timeout(home)
		ref, _ = b.claim(executor)
		b.commit(b.takes(ref, 2, "consumed", "late"))
		same(b, "late answer", b.submit(b.submitOf(home, "late")).Status, session.LateAnswer)
		b.commit(b.suspending(ref, 3, "open", "answered"))
		b.submit(b.submitOf(home, "answered"))
		b.start(b.regenerateOf(home, sent.Messages[0].ID))
		same(b, "calls", len(b.snapshot(home).Calls), 0)
		same(b, "owners", len(b.owners(home, "consumed", "late", "open", "answered")), 0)
		for _, id := range []string{"consumed", "late", "open", "answered"} {
			_, err := b.trySubmit(b.submitOf(home, id))
			b.refuses(err, fault.NotFound, "UNKNOWN_TOOL_CALL")
		}
		ref, _ = b.claim(executor)
		b.commit(b.suspending(ref, 4, "consumed", "open")) // their ids are free
		same(b, "answer", b.submit(b.submitOf(home, "open")).Status, session.Accepted)
	}},
	{"the results of calls before the message stay", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		late := b.suspending(ref, 1, "yes", "late", "open", "given")
		late.Calls[1].DeadlineAt = b.now + 10
		b.commit(late)
		b.submit(b.submitOf(home, "yes"))
		b.now += 20
		b.timeout(home)
		b.stop(home, session.StopInterrupt, "why")
		second := b.startOf(home)
		b.start(second)
		ref, _ = b.claim(executor)
		c := b.takes(ref, 2, "yes", "late")
		result := c.Messages[1].ID
		b.commit(c)
		same(b, "late answer", b.submit(b.submitOf(home, "late")).Status, session.LateAnswer)
		told := b.takes(ref, 3)
		told.Told, told.Outcome = []string{"late"}, &completed
		b.commit(told)
		before := len(b.said(home))

		again := b.regenerateOf(home, second.Messages[0].ID)
		again.Abandon, again.Answers = gone, []session.Answer{{CallID: "given", Kind: session.ClientTool, Response: []byte("given")}}
		started := b.start(again)
		same(b, "abandoned", started.Abandoned, []string{"open"})
		same(b, "messages that went", before-len(b.said(home)), 3)
		same(b, "messages", b.said(home)[2:], []string{second.Messages[0].ID, result})
		_, d := b.claim(executor)
		left := map[string]string{}
		for _, call := range d.View.Calls {
			left[call.CallID] = fmt.Sprintf("%s %s %v %v", call.Answer, call.Response, call.ConsumedAt > 0, call.Told)
		}
		same(b, "calls", left, map[string]string{"open": "abandoned gone false false", "given": "client given false false", "late": "timeout timeout true false"})
	}},
	{"open calls before the message go when nobody abandons them", func(b *bench) {
		b.suspended(home, "open", "answered")
		b.submit(b.submitOf(home, "answered"))
		b.append(home, "m2")
		b.start(b.regenerateOf(home, "m2"))
		_, d := b.claim(executor)
		if len(d.View.Calls) != 1 || d.View.Calls[0].CallID != "answered" {
			b.Errorf("got %+v, want the answered one", d.View.Calls)
		}
		_, err := b.trySubmit(b.submitOf(home, "open"))
		b.refuses(err, fault.NotFound, "UNKNOWN_TOOL_CALL")
	}},
	{"a branch is taken back to where its state is known", func(b *bench) {
		first := b.talk(home, 1, "one")
		b.talk(home, 2, "two")
		_, err := b.branch(home, b.checkpoints(home)[0].ID, at("branch"))
		b.must(err)
		_, err = b.try(b.regenerateOf(at("branch"), first.message))
		b.refuses(err, fault.NotFound, "CHECKPOINT_NOT_FOUND")
		b.talk(at("branch"), 1, "three")
		_, err = b.try(b.regenerateOf(at("branch"), first.message))
		b.refuses(err, fault.NotFound, "CHECKPOINT_NOT_FOUND")
		b.append(at("branch"), "aside")
		b.talk(at("branch"), 2, "four")
		b.start(b.regenerateOf(at("branch"), "aside"))
		same(b, "state", b.snapshot(at("branch")).Session.State, `{"n":"three"}`)
		same(b, "messages", len(b.said(at("branch"))), 7)
		same(b, "checkpoints", len(b.checkpoints(at("branch"))), 1)
	}},
	{"of messages sent at once each takes back to its own run's state", func(b *bench) {
		c := b.startOf(home)
		c.Messages = append(c.Messages, session.Message{ID: "second", Role: "user", RunID: c.RunID})
		b.start(c)
		ref, _ := b.claim(executor)
		step := b.commitOf(ref, 1)
		step.Ops, step.Outcome = []session.StateOp{{Key: "n", Kind: session.Replace, Value: "1"}}, &completed
		b.commit(step)
		back := b.editOf(home, "second")
		back.Messages = []session.Message{{ID: "third", Role: "user", RunID: back.RunID}}
		b.start(back)
		same(b, "messages", b.said(home), []string{c.Messages[0].ID, "third"})
		same(b, "state", b.snapshot(home).Session.State, `{}`)
	}},
	{"a session that is taken back is told to its parent, and survives", func(b *bench) {
		b.tree()
		b.await("child")
		sent := b.said(at("child"))[0]
		b.must(b.interrupt(b.claimOf(at("child"))))
		same(b, "parent's knowledge", b.snapshot(at("root")).Session.Suspension.Children["child"].Status, session.Interrupted)
		b.start(b.regenerateOf(at("child"), sent))
		same(b, "parent's knowledge", b.snapshot(at("root")).Session.Suspension.Children["child"].Status, session.Active)
		if b.Reopen != nil {
			b.Store = b.Reopen(b.T)
			same(b, "messages", b.said(at("child")), []string{sent})
		}
	}},
}

// turn is what a talk has said.
type turn struct{ message, answer string }

// talk starts a run that answers with one step, and writes the value to the state.
func (b *bench) talk(key session.Key, step int32, value string) turn {
	b.Helper()
	sent := b.startOf(key)
	b.start(sent)
	ref := b.claimOf(key)
	c := b.commitOf(ref, step)
	c.Ops = []session.StateOp{{Key: "n", Kind: session.Replace, Value: `"` + value + `"`}}
	c.Usage, c.Outcome = []session.Usage{tokens(1)}, &completed
	b.commit(c)
	return turn{sent.Messages[0].ID, c.Messages[0].ID}
}

// said are the ids of the conversation.
func (b *bench) said(key session.Key) []string {
	b.Helper()
	return idsOf(b.messages(key))
}

func (b *bench) interrupt(ref session.Ref) error {
	_, err := b.tryFinish(ref, session.Outcome{Status: session.RunInterrupted})
	return err
}

func (b *bench) fail(ref session.Ref) {
	b.Helper()
	_, err := b.tryFinish(ref, session.Outcome{Status: session.RunFailed, Failure: &session.Failure{Error: "no"}})
	b.must(err)
}
