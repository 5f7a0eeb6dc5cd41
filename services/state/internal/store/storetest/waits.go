package storetest

import (
	"sync/atomic"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// waits are the tests of waiting runs.
var waits = []test{
	{"a run that waits begins with the end of the one before", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		b.now++
		second, third := b.waitingOf(home), b.waitingOf(home)
		third.Messages = append(third.Messages, session.Message{ID: b.id("msg"), Role: "user", RunID: third.RunID, CreatedAt: b.now, Body: []byte("be brief")})
		third.DeadlineAt = b.now + 1000
		got := b.start(second)
		if !got.Waiting || got.Run.Status != session.RunWaiting || got.Run.Turn != 0 || got.Session.Turn != 1 || got.Session.MessageCount != 1 || got.Session.Status != session.Active {
			b.Errorf("got %+v, want it to wait", got)
		}
		b.start(third)
		b.waiting(home, second.RunID, third.RunID)
		same(b, "messages while they wait", len(b.messages(home)), 1)
		b.commit(b.commitOf(ref, 1))
		b.finish(ref)
		s, run := b.session(home)
		if s.Status != session.Active || s.Turn != 2 || s.CurrentRunID != second.RunID || run.Status != session.RunQueued || run.Turn != 2 || s.Output != "" {
			b.Errorf("got %+v,\n%+v; want the second run queued", s, run)
		}
		same(b, "where it began", run.StartMessageCount, int64(2))
		b.waiting(home, third.RunID)
		next, _ := b.claim(executor)
		same(b, "claimed run", next.RunID, second.RunID)
		b.finish(next)
		last, d := b.claim(executor)
		same(b, "claimed run", last.RunID, third.RunID)
		same(b, "deadline", d.View.Run.DeadlineAt, third.DeadlineAt)
		same(b, "where it began", d.View.Run.StartMessageCount, int64(3))
		var ids []string
		for i, m := range b.messages(home) {
			same(b, "ordinal", m.Ordinal, int64(i))
			ids = append(ids, m.ID)
		}
		same(b, "last messages", ids[2:], []string{second.Messages[0].ID, third.Messages[0].ID, third.Messages[1].ID})
		b.waiting(home)
		runs, err := b.Store.Runs(b.Context(), home, 0, 10)
		b.must(err)
		for i, r := range runs {
			same(b, "turn", r.Turn, int32(3-i))
		}
	}},
	{"the commit that ends a run queues the one that waits, and is repeated as before", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		next := b.start(b.waitingOf(home)).Run
		commit := b.commitOf(ref, 1)
		commit.Outcome, commit.Ops = &completed, []session.StateOp{{Key: "n", Kind: session.Replace, Value: "1"}}
		want := b.commit(commit)
		same(b, "answer to the repetition", b.commit(commit), want)
		same(b, "status of the checkpoint", want.Status, session.Completed)
		s, run := b.session(home)
		if run.RunID != next.RunID || run.Status != session.RunQueued || s.MessageCount != 3 || s.State != `{"n":1}` {
			b.Errorf("got %+v of %+v", run, s)
		}
		checkpoint, state, err := b.Store.Checkpoint(b.Context(), home, "")
		b.must(err)
		same(b, "checkpoint", *checkpoint, want)
		same(b, "its state", state, `{"n":1}`)
		same(b, "answer to a repetition", b.commit(commit), want)
		b.claim(executor)
		same(b, "answer once the next is claimed", b.commit(commit), want)
		same(b, "messages", len(b.messages(home)), 3)
	}},
	{"whatever ends a run lets the next one begin", func(b *bench) {
		for name, end := range map[string]func(session.Ref){
			"completed": func(ref session.Ref) { b.finish(ref) },
			"failed": func(ref session.Ref) {
				_, err := b.tryFinish(ref, session.Outcome{Status: session.RunFailed, Failure: &session.Failure{Error: "no"}})
				b.must(err)
			},
			"interrupted": func(ref session.Ref) {
				commit := b.commitOf(ref, 1)
				commit.Outcome = &session.Outcome{Status: session.RunInterrupted}
				b.commit(commit)
			},
			"paused by a host":    func(ref session.Ref) { b.force(ref.Key, session.Paused) },
			"completed by a host": func(ref session.Ref) { b.force(ref.Key, session.Completed) },
			"stopped while it suspended": func(ref session.Ref) {
				b.stop(ref.Key, session.StopAbort, "enough")
				b.commit(b.suspending(ref, 1, "call of "+ref.SessionID))
			},
			"suspended and stopped": func(ref session.Ref) {
				b.commit(b.suspending(ref, 1, "call of "+ref.SessionID))
				same(b, "stop", b.stop(ref.Key, session.StopInterrupt, "enough").Effect, session.StopDone)
			},
			"suspended and given up": func(ref session.Ref) {
				b.commit(b.suspending(ref, 1, "call of "+ref.SessionID))
				same(b, "stop", b.stop(ref.Key, session.StopAbort, "enough").Effect, session.StopDone)
			},
			"suspended and taken back": func(ref session.Ref) {
				b.commit(b.commitOf(ref, 1))
				b.commit(b.suspending(ref, 2, "call of "+ref.SessionID))
				_, err := b.rewind(ref.Key, b.checkpoints(ref.Key)[1].ID)
				b.must(err)
			},
		} {
			key := at(name)
			b.start(b.startOf(key))
			ref, _ := b.claim(executor)
			next := b.waitingOf(key)
			b.start(next)
			end(ref)
			s, run := b.session(key)
			if s.Status != session.Active || run.RunID != next.RunID || run.Status != session.RunQueued || s.Waiting != 0 || s.Suspension != nil || s.Interruption != nil {
				b.Errorf("%s: got %+v,\n%+v", name, s, run)
			}
			list := b.messages(key)
			same(b, name+": last message", list[len(list)-1].ID, next.Messages[0].ID)
			last, _ := b.claim(executor)
			same(b, name+": claimed run", last.RunID, next.RunID)
			b.finish(last)
		}
	}},
	{"a session that is failed or given up from outside takes those that wait with it", func(b *bench) {
		for name, end := range map[string]func(session.Key){
			"failed by a host": func(key session.Key) { b.force(key, session.Failed) },
			"expired": func(key session.Key) {
				_, err := b.update(session.UpdateSession{Key: key, ExpiresAt: &b.now, Now: b.now})
				b.must(err)
				became, err := b.expire(key)
				b.must(err)
				same(b, "expiry", became, session.ExpiryMarked)
			},
		} {
			key := at(name)
			b.start(b.startOf(key))
			b.claim(executor)
			first, second := b.start(b.waitingOf(key)).Run, b.start(b.waitingOf(key)).Run
			end(key)
			b.waiting(key)
			s, run := b.session(key)
			if s.Status != session.Failed || run.Turn != 1 || s.MessageCount != 1 || s.Waiting != 0 {
				b.Errorf("%s: got %+v,\n%+v", name, s, run)
			}
			for _, waited := range []session.Run{first, second} {
				got, err := b.Store.Run(b.Context(), key, waited.RunID)
				b.must(err)
				if got.Status != session.RunFailed || got.Turn != 0 || got.Outcome.Failure == nil || *got.Outcome.Failure != *s.Failure || got.CompletedAt != b.now {
					b.Errorf("%s: got %+v, want it failed with the session", name, got)
				}
			}
			same(b, name+": what is kept of them", b.Rows(b.T, key)["held_runs"], 0)
		}
	}},
	{"a sub-session that fails with its parent takes those that wait with it", func(b *bench) {
		b.start(b.startOf(home))
		b.claim(executor)
		child := b.startOf(at("child"))
		child.New.ParentID = home.SessionID
		b.start(child)
		waits := b.start(b.waitingOf(at("child"))).Run
		b.force(home, session.Failed)
		got, err := b.Store.Run(b.Context(), at("child"), waits.RunID)
		b.must(err)
		if s := b.snapshot(at("child")).Session; got.Status != session.RunFailed || got.Outcome.Failure.Reason != session.ParentFailed || s.Status != session.Failed || s.Waiting != 0 {
			b.Errorf("got %+v of %+v", got, s)
		}
	}},
	{"a run that waits is given up by its id", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		first, second := b.waitingOf(home), b.waitingOf(home)
		first.RequestKey, first.RequestHash = "k", []byte("h")
		b.start(first)
		b.start(second)
		command := session.RequestStop{Key: home, RunID: first.RunID, Kind: session.StopAbort, Reason: "never mind", Now: b.now}
		for range 2 {
			got, err := b.tryStop(command)
			b.must(err)
			same(b, "answer", got, session.Stopped{RunID: first.RunID, Effect: session.StopDone})
		}
		b.waiting(home, second.RunID)
		got, err := b.Store.Run(b.Context(), home, first.RunID)
		b.must(err)
		if got.Status != session.RunInterrupted || got.Stop.Reason != "never mind" {
			b.Errorf("got %+v, want it interrupted", got)
		}
		again := b.start(first)
		if !again.Repeated || again.Waiting || again.Run.Status != session.RunInterrupted {
			b.Errorf("got %+v, want the run that was given up", again)
		}
		b.finish(ref)
		_, run := b.session(home)
		same(b, "next run", run.RunID, second.RunID)
		b.message(home, first.Messages[0].ID, 0)
		b.message(home, second.Messages[0].ID, 1)
		reused := b.waitingOf(home)
		reused.Messages[0].ID = first.Messages[0].ID // it was never appended
		b.start(reused)
	}},
	{"a repeated request key finds the run that waits", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		first := b.waitingOf(home)
		first.RequestKey, first.RequestHash = "k", []byte("h")
		b.start(first)
		again := b.waitingOf(home)
		again.RequestKey, again.RequestHash = "k", []byte("h")
		if got := b.start(again); !got.Repeated || !got.Waiting || got.Run.RunID != first.RunID {
			b.Errorf("got %+v, want the first one", got)
		}
		b.waiting(home, first.RunID)
		again.RequestHash = []byte("other")
		_, err := b.try(again)
		b.refuses(err, fault.Conflict, "REQUEST_KEY_REUSED")
		b.finish(ref)
		again.RequestHash = []byte("h")
		if got := b.start(again); !got.Repeated || got.Waiting || got.Run.Status != session.RunQueued {
			b.Errorf("got %+v, want the first one queued", got)
		}
		same(b, "messages", len(b.messages(home)), 2)
	}},
	{"the ids of messages that wait are taken", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		waits := b.waitingOf(home)
		waits.Messages[0].ID = "mine"
		waits.Messages = append(waits.Messages, session.Message{ID: "second", Role: "user", RunID: waits.RunID})
		b.start(waits)
		for _, id := range []string{"mine", "second"} {
			other := b.waitingOf(home)
			other.Messages[0].ID, other.RequestHash = id, []byte("other")
			_, err := b.try(other)
			b.refuses(err, fault.Conflict, "MESSAGE_EXISTS")
			commit := b.commitOf(ref, 1)
			commit.Messages[0].ID = id
			_, err = b.tryCommit(commit)
			b.refuses(err, fault.Conflict, "MESSAGE_EXISTS")
			_, err = b.tryAppend(home, id)
			b.refuses(err, fault.Conflict, "MESSAGE_EXISTS")
		}
		b.commit(b.commitOf(ref, 1)) // others are free
	}},
	{"only so many runs wait", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		for range limits.Waiting {
			b.start(b.waitingOf(home))
		}
		_, err := b.try(b.waitingOf(home))
		b.refuses(err, fault.Exhausted, "TOO_MANY_WAITING")
		b.finish(ref)
		b.start(b.waitingOf(home))
	}},
	{"an agent's policy stands for requests that name none", func(b *bench) {
		b.start(b.startOf(home))
		_, err := b.try(b.startOf(home))
		b.refuses(err, fault.Conflict, "SESSION_BUSY")
		b.must(b.Store.Announce(b.Context(), executor, []session.Agent{{Type: agent, OnBusy: session.BusyEnqueue}}, b.now))
		unnamed := b.waitingOf(home)
		unnamed.AgentType, unnamed.OnBusy = "", ""
		got := b.start(unnamed)
		if !got.Waiting || got.Run.OnBusy != session.BusyEnqueue {
			b.Errorf("got %+v, want it to wait", got)
		}
		refused := b.startOf(home)
		refused.OnBusy = session.BusyReject
		_, err = b.try(refused)
		b.refuses(err, fault.Conflict, "SESSION_BUSY")
		agents, err := b.Store.Agents(b.Context())
		b.must(err)
		same(b, "agents", agents, []session.Agent{{Type: agent, OnBusy: session.BusyEnqueue}})
	}},
	{"a request that rests on what the session is does not wait", func(b *bench) {
		b.start(b.startOf(home))
		resumes, expects, has := b.resumeOf(home), b.waitingOf(home), b.waitingOf(home)
		resumes.OnBusy = session.BusyEnqueue
		expects.Expect.Statuses = []session.Status{session.Active}
		_, run := b.session(home)
		has.Seen = run.RunID
		for _, c := range []intent{resumes, expects, has} {
			_, err := b.try(c)
			b.refuses(err, fault.Conflict, "SESSION_BUSY")
		}
	}},
	{"what waits is still there after a crash", func(b *bench) {
		if b.Reopen == nil {
			return
		}
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		waits := b.rollingBack(home)
		waits.RequestKey, waits.RequestHash = "k", []byte("h")
		waits.Messages[0].Body = []byte{0, 255, '"'}
		b.start(waits)
		b.commit(b.commitOf(ref, 1))
		b.Store = b.Reopen(b.T)
		b.waiting(home, waits.RunID)
		if again := b.start(waits); !again.Repeated || !again.Waiting { // its caller never heard of the first
			b.Errorf("got %+v, want the run that waits", again)
		}
		for range 2 { // nor the executor of the end
			b.finish(ref)
		}
		s, run := b.session(home)
		if run.RunID != waits.RunID || s.MessageCount != 2 {
			b.Errorf("got %+v,\n%+v", s, run)
		}
		same(b, "body of the message", string(b.messages(home)[1].Body), string(waits.Messages[0].Body))
	}},
	{"a session that is deleted takes those that wait with it", func(b *bench) {
		b.start(b.startOf(home))
		waits := b.start(b.waitingOf(home)).Run
		b.must(b.delete(home))
		for table, n := range b.Rows(b.T, home) {
			same(b, "rows of "+table, n, 0)
		}
		_, err := b.Store.Waiting(b.Context(), home)
		b.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		again := b.startOf(home)
		again.RunID = waits.RunID // another session under the id
		b.start(again)
		b.waiting(home)
	}},
	{"those that wait bear with a suspension", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		waits := b.start(b.waitingOf(home)).Run
		b.commit(b.suspending(ref, 1, "c1"))
		b.waiting(home, waits.RunID)
		s, _ := b.session(home)
		same(b, "status", s.Status, session.SuspendedClientTool)
		answer := b.submit(b.submitOf(home, "c1"))
		same(b, "continuation", answer.Continuation, session.NewRun)
		next, d := b.claim(executor)
		same(b, "claimed run", next.RunID, answer.RunID)
		same(b, "turn", d.View.Run.Turn, int32(2))
		b.waiting(home, waits.RunID)
		commit := b.commitOf(next, 2)
		commit.Outcome, commit.Consume = &completed, []session.Consume{{CallID: "c1", Revision: 1}}
		b.commit(commit)
		_, run := b.session(home)
		if run.RunID != waits.RunID || run.Turn != 3 {
			b.Errorf("got %+v, want the one that has waited", run)
		}
	}},
	{"nobody who abandons the calls goes before those that wait", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		first := b.waitingOf(home)
		b.start(first)
		b.commit(b.suspending(ref, 1, "c1"))
		plain := b.waitingOf(home)
		_, err := b.try(plain)
		b.refuses(err, fault.Conflict, "SESSION_SUSPENDED")
		second := b.waitingOf(home)
		second.OnBusy = ""
		second.Abandon = func(session.Call) []byte { return []byte("gone") }
		if got := b.start(second); !got.Waiting {
			b.Errorf("got %+v, want it to wait", got)
		}
		b.waiting(home, second.RunID)
		s, run := b.session(home)
		if s.Status != session.Active || run.RunID != first.RunID || run.Status != session.RunQueued || s.Waiting != 1 {
			b.Errorf("got %+v,\n%+v; want the first one queued", s, run)
		}
		if call := b.snapshot(home).Calls[0]; call.Answer != session.AnswerAbandoned {
			b.Errorf("got %+v, want it abandoned", call)
		}
	}},
	{"an interrupt asks the live run to stop in the same write", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		c := b.waitingOf(home)
		c.OnBusy = session.BusyInterrupt
		waits := b.start(c).Run
		_, run := b.session(home)
		same(b, "stop", run.Stop, &session.Stop{Kind: session.StopInterrupt, Reason: "superseded by run " + waits.RunID, At: b.now})
		stops, err := b.Store.Stops(b.Context(), "nobody", executor)
		b.must(err)
		same(b, "stops", len(stops), 1)
		b.commit(b.commitOf(ref, 1))
		_, err = b.tryFinish(ref, session.Outcome{Status: session.RunInterrupted})
		b.must(err)
		_, run = b.session(home)
		same(b, "next run", run.RunID, waits.RunID)
		same(b, "messages", len(b.messages(home)), 3)
	}},
	{"no message that is sent to a busy session is lost or appended twice", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		commands := make([]session.Send, crowd)
		for i := range commands {
			commands[i] = b.waitingOf(home)
			commands[i].Limits.Waiting = crowd
		}
		var sent atomic.Int32
		together(func(i int) {
			if _, err := b.try(commands[i]); err != nil {
				b.Errorf("start %d: %v", i, err)
			}
			if sent.Add(1) == crowd/2 {
				b.finish(ref) // in the midst of them
			}
		})
		for range crowd {
			next, _ := b.claim(executor)
			b.finish(next)
		}
		for _, c := range commands {
			b.message(home, c.Messages[0].ID, 1)
		}
		s, _ := b.session(home)
		if s.Status != session.Completed || s.Turn != crowd+1 || s.Waiting != 0 {
			b.Errorf("got %+v", s)
		}
	}},
}
