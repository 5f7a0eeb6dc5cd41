package storetest

import (
	"sync/atomic"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// waitingRuns prove how runs wait, begin and end.
var waitingRuns = []suiteCase{
	{"a waiting run begins when the previous one ends", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		h.now++
		second, third := h.waitingOf(home), h.waitingOf(home)
		third.Messages = append(third.Messages, session.Message{ID: h.id("msg"), Role: "user", RunID: third.RunID, CreatedAt: h.now, Body: []byte("be brief")})
		third.DeadlineAt = h.now + 1000
		got := h.start(second)
		if !got.Waiting || got.Run.Status != session.RunWaiting || got.Run.Turn != 0 || got.Session.Turn != 1 || got.Session.MessageCount != 1 || got.Session.Status != session.Active {
			h.Errorf("got %+v, want it to wait", got)
		}
		h.start(third)
		h.expectWaiting(home, second.RunID, third.RunID)
		same(h, "messages while they wait", len(h.messages(home)), 1)
		h.commit(h.commitOf(ref, 1))
		h.finish(ref)
		s, run := h.session(home)
		if s.Status != session.Active || s.Turn != 2 || s.CurrentRunID != second.RunID || run.Status != session.RunQueued || run.Turn != 2 || s.Output != "" {
			h.Errorf("got %+v,\n%+v; want the second run queued", s, run)
		}
		same(h, "where it began", run.StartMessageCount, int64(2))
		h.expectWaiting(home, third.RunID)
		next, _ := h.claim(executor)
		same(h, "claimed run", next.RunID, second.RunID)
		h.finish(next)
		last, d := h.claim(executor)
		same(h, "claimed run", last.RunID, third.RunID)
		same(h, "deadline", d.View.Run.DeadlineAt, third.DeadlineAt)
		same(h, "where it began", d.View.Run.StartMessageCount, int64(3))
		var ids []string
		for i, m := range h.messages(home) {
			same(h, "ordinal", m.Ordinal, int64(i))
			ids = append(ids, m.ID)
		}
		same(h, "last messages", ids[2:], []string{second.Messages[0].ID, third.Messages[0].ID, third.Messages[1].ID})
		h.expectWaiting(home)
		runs, err := h.Store.Runs(h.Context(), home, 0, 10)
		h.must(err)
		for i, r := range runs {
			same(h, "turn", r.Turn, int32(3-i))
		}
	}},
	{"a final commit starts the waiting run and can be repeated", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		next := h.start(h.waitingOf(home)).Run
		commit := h.commitOf(ref, 1)
		commit.Outcome, commit.Ops = &completed, []session.StateOp{{Key: "n", Kind: session.OpReplace, Value: "1"}}
		want := h.commit(commit)
		same(h, "answer to the repetition", h.commit(commit), want)
		same(h, "status of the checkpoint", want.Status, session.Completed)
		s, run := h.session(home)
		if run.RunID != next.RunID || run.Status != session.RunQueued || s.MessageCount != 3 || s.State != `{"n":1}` {
			h.Errorf("got %+v of %+v", run, s)
		}
		checkpoint, state, err := h.Store.Checkpoint(h.Context(), home, "")
		h.must(err)
		same(h, "checkpoint", *checkpoint, want)
		same(h, "its state", state, `{"n":1}`)
		same(h, "answer to a repetition", h.commit(commit), want)
		h.claim(executor)
		same(h, "answer once the next is claimed", h.commit(commit), want)
		same(h, "messages", len(h.messages(home)), 3)
	}},
	{"every end of a run starts the next one", func(h *harness) {
		for name, end := range map[string]func(session.ClaimRef){
			"completed": func(ref session.ClaimRef) { h.finish(ref) },
			"failed":    func(ref session.ClaimRef) { h.fail(ref) },
			"interrupted": func(ref session.ClaimRef) {
				commit := h.commitOf(ref, 1)
				commit.Outcome = &session.Outcome{Status: session.RunInterrupted}
				h.commit(commit)
			},
			"paused by a host":    func(ref session.ClaimRef) { h.forceStatus(ref.Key, session.Paused) },
			"completed by a host": func(ref session.ClaimRef) { h.forceStatus(ref.Key, session.Completed) },
			"stopped while it suspended": func(ref session.ClaimRef) {
				h.stop(ref.Key, session.StopAbort, "enough")
				h.commit(h.suspendingCommit(ref, 1, "call of "+ref.SessionID))
			},
			"suspended and stopped": func(ref session.ClaimRef) {
				h.commit(h.suspendingCommit(ref, 1, "call of "+ref.SessionID))
				same(h, "stop", h.stop(ref.Key, session.StopInterrupt, "enough").Effect, session.StopDone)
			},
			"suspended and given up": func(ref session.ClaimRef) {
				h.commit(h.suspendingCommit(ref, 1, "call of "+ref.SessionID))
				same(h, "stop", h.stop(ref.Key, session.StopAbort, "enough").Effect, session.StopDone)
			},
			"suspended and rewound": func(ref session.ClaimRef) {
				h.commit(h.commitOf(ref, 1))
				h.commit(h.suspendingCommit(ref, 2, "call of "+ref.SessionID))
				h.must(onlyError(h.rewind(ref.Key, h.checkpoints(ref.Key)[1].ID)))
			},
		} {
			key := at(name)
			h.start(h.startOf(key))
			ref, _ := h.claim(executor)
			next := h.waitingOf(key)
			h.start(next)
			end(ref)
			s, run := h.session(key)
			if s.Status != session.Active || run.RunID != next.RunID || run.Status != session.RunQueued || s.Waiting != 0 || s.Suspension != nil || s.Interruption != nil {
				h.Errorf("%s: got %+v,\n%+v", name, s, run)
			}
			ids := h.messageIDs(key)
			same(h, name+": last message", ids[len(ids)-1], next.Messages[0].ID)
			claimed, _ := h.claim(executor)
			same(h, name+": claimed run", claimed.RunID, next.RunID)
			h.finish(claimed)
		}
	}},
	{"failing a session from outside ends its waiting runs", func(h *harness) {
		for name, end := range map[string]func(session.Key){
			"failed by a host": func(key session.Key) { h.forceStatus(key, session.Failed) },
			"expired": func(key session.Key) {
				_, err := h.update(session.UpdateSession{Key: key, ExpiresAt: &h.now, Now: h.now})
				h.must(err)
				became, err := h.expire(key)
				h.must(err)
				same(h, "expiry", became, session.ExpiryMarked)
			},
		} {
			key := at(name)
			h.start(h.startOf(key))
			h.claim(executor)
			first, second := h.start(h.waitingOf(key)).Run, h.start(h.waitingOf(key)).Run
			end(key)
			h.expectWaiting(key)
			s, run := h.session(key)
			if s.Status != session.Failed || run.Turn != 1 || s.MessageCount != 1 || s.Waiting != 0 {
				h.Errorf("%s: got %+v,\n%+v", name, s, run)
			}
			for _, waited := range []session.Run{first, second} {
				got, err := h.Store.Run(h.Context(), key, waited.RunID)
				h.must(err)
				if got.Status != session.RunFailed || got.Turn != 0 || got.Outcome.Failure == nil || *got.Outcome.Failure != *s.Failure || got.CompletedAt != h.now {
					h.Errorf("%s: got %+v, want it failed with the session", name, got)
				}
			}
			same(h, name+": rows of held runs", h.Rows(h.T, key)["held_runs"], 0)
		}
	}},
	{"a sub-session that fails with its parent ends its waiting runs", func(h *harness) {
		h.start(h.startOf(home))
		h.claim(executor)
		child := h.startOf(at("child"))
		child.NewSession.ParentID = home.SessionID
		h.start(child)
		waits := h.start(h.waitingOf(at("child"))).Run
		h.forceStatus(home, session.Failed)
		got, err := h.Store.Run(h.Context(), at("child"), waits.RunID)
		h.must(err)
		if s := h.snapshot(at("child")).Session; got.Status != session.RunFailed || got.Outcome.Failure.Reason != session.ParentFailed || s.Status != session.Failed || s.Waiting != 0 {
			h.Errorf("got %+v of %+v", got, s)
		}
	}},
	{"a waiting run is cancelled by its id", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		first, second := h.waitingOf(home), h.waitingOf(home)
		first.RequestKey, first.RequestHash = "k", []byte("h")
		h.start(first)
		h.start(second)
		command := session.RequestStop{Key: home, RunID: first.RunID, Kind: session.StopAbort, Reason: "never mind", Now: h.now}
		for range 2 {
			got, err := h.tryStop(command)
			h.must(err)
			same(h, "answer", got, session.Stopped{RunID: first.RunID, Effect: session.StopDone})
		}
		h.expectWaiting(home, second.RunID)
		got, err := h.Store.Run(h.Context(), home, first.RunID)
		h.must(err)
		if got.Status != session.RunInterrupted || got.Stop.Reason != "never mind" {
			h.Errorf("got %+v, want it interrupted", got)
		}
		repeat := h.start(first)
		if !repeat.Repeated || repeat.Waiting || repeat.Run.Status != session.RunInterrupted {
			h.Errorf("got %+v, want the run that was given up", repeat)
		}
		h.finish(ref)
		_, run := h.session(home)
		same(h, "next run", run.RunID, second.RunID)
		h.expectMessageCount(home, first.Messages[0].ID, 0)
		h.expectMessageCount(home, second.Messages[0].ID, 1)
		reused := h.waitingOf(home)
		reused.Messages[0].ID = first.Messages[0].ID // the message was never appended
		h.start(reused)
	}},
	{"a repeated request key returns the waiting run", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		first := h.waitingOf(home)
		first.RequestKey, first.RequestHash = "k", []byte("h")
		h.start(first)
		repeat := h.waitingOf(home)
		repeat.RequestKey, repeat.RequestHash = "k", []byte("h")
		if got := h.start(repeat); !got.Repeated || !got.Waiting || got.Run.RunID != first.RunID {
			h.Errorf("got %+v, want the first one", got)
		}
		h.expectWaiting(home, first.RunID)
		repeat.RequestHash = []byte("other")
		_, err := h.tryStart(repeat)
		h.refuses(err, fault.Conflict, "REQUEST_KEY_REUSED")
		h.finish(ref)
		repeat.RequestHash = []byte("h")
		if got := h.start(repeat); !got.Repeated || got.Waiting || got.Run.Status != session.RunQueued {
			h.Errorf("got %+v, want the first one queued", got)
		}
		same(h, "messages", len(h.messages(home)), 2)
	}},
	{"the ids of waiting messages are reserved", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		waits := h.waitingOf(home)
		waits.Messages[0].ID = "mine"
		waits.Messages = append(waits.Messages, session.Message{ID: "second", Role: "user", RunID: waits.RunID})
		h.start(waits)
		for _, id := range []string{"mine", "second"} {
			other := h.waitingOf(home)
			other.Messages[0].ID, other.RequestHash = id, []byte("other")
			_, err := h.tryStart(other)
			h.refuses(err, fault.Conflict, "MESSAGE_EXISTS")
			commit := h.commitOf(ref, 1)
			commit.Messages[0].ID = id
			_, err = h.tryCommit(commit)
			h.refuses(err, fault.Conflict, "MESSAGE_EXISTS")
			_, err = h.tryAppend(home, id)
			h.refuses(err, fault.Conflict, "MESSAGE_EXISTS")
		}
		h.commit(h.commitOf(ref, 1)) // other ids are free
	}},
	{"the number of waiting runs is limited", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		for range limits.Waiting {
			h.start(h.waitingOf(home))
		}
		_, err := h.tryStart(h.waitingOf(home))
		h.refuses(err, fault.Exhausted, "TOO_MANY_WAITING")
		h.finish(ref)
		h.start(h.waitingOf(home))
	}},
	{"an agent's policy applies to requests without one", func(h *harness) {
		h.start(h.startOf(home))
		_, err := h.tryStart(h.startOf(home))
		h.refuses(err, fault.Conflict, "SESSION_BUSY")
		h.must(h.Store.Announce(h.Context(), executor, []session.Agent{{Type: agent, OnBusy: session.BusyEnqueue}}, h.now))
		unnamed := h.waitingOf(home)
		unnamed.AgentType, unnamed.OnBusy = "", ""
		got := h.start(unnamed)
		if !got.Waiting || got.Run.OnBusy != session.BusyEnqueue {
			h.Errorf("got %+v, want it to wait", got)
		}
		refused := h.startOf(home)
		refused.OnBusy = session.BusyReject
		_, err = h.tryStart(refused)
		h.refuses(err, fault.Conflict, "SESSION_BUSY")
		agents, err := h.Store.Agents(h.Context())
		h.must(err)
		same(h, "agents", agents, []session.Agent{{Type: agent, OnBusy: session.BusyEnqueue}})
	}},
	{"a request that depends on the session's status does not wait", func(h *harness) {
		h.start(h.startOf(home))
		resumes, expects, has := h.resumeOf(home), h.waitingOf(home), h.waitingOf(home)
		resumes.OnBusy = session.BusyEnqueue
		expects.Expect.Statuses = []session.Status{session.Active}
		_, run := h.session(home)
		has.LastSeenRunID = run.RunID
		for _, c := range []intent{resumes, expects, has} {
			_, err := h.tryStart(c)
			h.refuses(err, fault.Conflict, "SESSION_BUSY")
		}
	}},
	{"waiting runs survive a crash", func(h *harness) {
		if h.Reopen == nil {
			return
		}
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		waits := h.rollbackOf(home)
		waits.RequestKey, waits.RequestHash = "k", []byte("h")
		waits.Messages[0].Body = []byte{0, 255, '"'}
		h.start(waits)
		h.commit(h.commitOf(ref, 1))
		h.Store = h.Reopen(h.T)
		h.expectWaiting(home, waits.RunID)
		if repeat := h.start(waits); !repeat.Repeated || !repeat.Waiting { // the caller missed the first answer
			h.Errorf("got %+v, want the run that waits", repeat)
		}
		for range 2 { // the executor missed the first answer
			h.finish(ref)
		}
		s, run := h.session(home)
		if run.RunID != waits.RunID || s.MessageCount != 2 {
			h.Errorf("got %+v,\n%+v", s, run)
		}
		same(h, "body of the message", string(h.messages(home)[1].Body), string(waits.Messages[0].Body))
	}},
	{"deleting a session deletes its waiting runs", func(h *harness) {
		h.start(h.startOf(home))
		waits := h.start(h.waitingOf(home)).Run
		h.must(h.delete(home))
		for table, n := range h.Rows(h.T, home) {
			same(h, "rows of "+table, n, 0)
		}
		_, err := h.Store.Waiting(h.Context(), home)
		h.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		repeat := h.startOf(home)
		repeat.RunID = waits.RunID // a new session with the id
		h.start(repeat)
		h.expectWaiting(home)
	}},
	{"waiting runs survive a suspension", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		waits := h.start(h.waitingOf(home)).Run
		h.commit(h.suspendingCommit(ref, 1, "c1"))
		h.expectWaiting(home, waits.RunID)
		s, _ := h.session(home)
		same(h, "status", s.Status, session.SuspendedClientTool)
		answer := h.submit(h.submitOf(home, "c1"))
		same(h, "continuation", answer.Continuation, session.ContinueNewRun)
		next, d := h.claim(executor)
		same(h, "claimed run", next.RunID, answer.RunID)
		same(h, "turn", d.View.Run.Turn, int32(2))
		h.expectWaiting(home, waits.RunID)
		commit := h.commitOf(next, 2)
		commit.Outcome, commit.Consume = &completed, []session.Consume{{CallID: "c1", Revision: 1}}
		h.commit(commit)
		_, run := h.session(home)
		if run.RunID != waits.RunID || run.Turn != 3 {
			h.Errorf("got %+v, want the one that has waited", run)
		}
	}},
	{"a start that abandons calls does not overtake waiting runs", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		first := h.waitingOf(home)
		h.start(first)
		h.commit(h.suspendingCommit(ref, 1, "c1"))
		plain := h.waitingOf(home)
		_, err := h.tryStart(plain)
		h.refuses(err, fault.Conflict, "SESSION_SUSPENDED")
		second := h.waitingOf(home)
		second.OnBusy = ""
		second.Abandon = func(session.Call) []byte { return []byte("gone") }
		if got := h.start(second); !got.Waiting {
			h.Errorf("got %+v, want it to wait", got)
		}
		h.expectWaiting(home, second.RunID)
		s, run := h.session(home)
		if s.Status != session.Active || run.RunID != first.RunID || run.Status != session.RunQueued || s.Waiting != 1 {
			h.Errorf("got %+v,\n%+v; want the first one queued", s, run)
		}
		if call := h.snapshot(home).Calls[0]; call.Answer != session.AnswerAbandoned {
			h.Errorf("got %+v, want it abandoned", call)
		}
	}},
	{"an interrupt requests the stop of the live run in the same write", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		c := h.waitingOf(home)
		c.OnBusy = session.BusyInterrupt
		waits := h.start(c).Run
		_, run := h.session(home)
		same(h, "stop", run.Stop, &session.Stop{Kind: session.StopInterrupt, Reason: "superseded by run " + waits.RunID, At: h.now})
		stops, err := h.Store.Stops(h.Context(), "unknown", executor)
		h.must(err)
		same(h, "stops", len(stops), 1)
		h.commit(h.commitOf(ref, 1))
		_, err = h.tryFinish(ref, session.Outcome{Status: session.RunInterrupted})
		h.must(err)
		_, run = h.session(home)
		same(h, "next run", run.RunID, waits.RunID)
		same(h, "messages", len(h.messages(home)), 3)
	}},
	{"no message to a busy session is lost or appended twice", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		commands := make([]session.Send, parallelism)
		for i := range commands {
			commands[i] = h.waitingOf(home)
			commands[i].Limits.Waiting = parallelism
		}
		var sent atomic.Int32
		concurrently(func(i int) {
			if _, err := h.tryStart(commands[i]); err != nil {
				h.Errorf("start %d: %v", i, err)
			}
			if sent.Add(1) == parallelism/2 {
				h.finish(ref) // amid the starts
			}
		})
		for range parallelism {
			next, _ := h.claim(executor)
			h.finish(next)
		}
		for _, c := range commands {
			h.expectMessageCount(home, c.Messages[0].ID, 1)
		}
		s, _ := h.session(home)
		if s.Status != session.Completed || s.Turn != parallelism+1 || s.Waiting != 0 {
			h.Errorf("got %+v", s)
		}
	}},
	{"calls that are open when a waiting run begins are abandoned", func(h *harness) {
		for name, end := range map[string]func(session.ClaimRef){
			"stopped while it suspended": func(ref session.ClaimRef) {
				interrupts := h.waitingOf(ref.Key)
				interrupts.OnBusy = session.BusyInterrupt
				h.start(interrupts)
				h.commit(h.suspendingCommit(ref, 1, "a of "+ref.SessionID, "b of "+ref.SessionID))
			},
			"suspended and stopped": func(ref session.ClaimRef) {
				h.start(h.waitingOf(ref.Key))
				h.commit(h.suspendingCommit(ref, 1, "a of "+ref.SessionID, "b of "+ref.SessionID))
				h.stop(ref.Key, session.StopInterrupt, "enough")
			},
		} {
			key := at(name)
			h.start(h.startOf(key))
			ref, _ := h.claim(executor)
			end(ref)
			next, d := h.claim(executor)
			same(h, name+": calls", len(d.View.Calls), 2)
			c := h.commitOf(next, 2)
			for _, call := range d.View.Calls {
				same(h, name+": answer", call.Answer, session.AnswerAbandoned)
				same(h, name+": response", string(call.Response), "gone")
				c.Consume = append(c.Consume, session.Consume{CallID: call.CallID, Revision: 1})
			}
			same(h, name+": later answer", h.submit(h.submitOf(key, "a of "+name)).Status, session.AlreadyCompleted)
			h.commit(c)
			h.finish(next)
		}
	}},
}
