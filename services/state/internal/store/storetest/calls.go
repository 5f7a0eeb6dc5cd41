package storetest

import (
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

var calls = []test{
	{"a step that suspends shows all that it leaves at once", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		c := b.suspending(ref, 1, "c1", "c2")
		c.Calls[1].Kind, c.Calls[1].ApprovalID, c.Calls[1].Stash, c.Calls[1].DeadlineAt = session.Approval, "a2", []byte("stash"), b.now+90
		c.Suspension.Tracing = &session.Tracing{TraceID: "t", RootSpanID: "s"}
		c.ExpireAfter = 50
		checkpoint := b.commit(c)
		snapshot := b.snapshot(home)
		s := snapshot.Session
		if s.Status != session.SuspendedClientTool || s.StepCount != 1 || s.MessageCount != 2 || s.CheckpointID != checkpoint.ID || s.ExpiresAt != b.now+90 {
			b.Errorf("got %+v", s)
		}
		same(b, "suspension", s.Suspension, c.Suspension)
		same(b, "run", snapshot.Current.Status, session.RunSuspendedClientTool)
		var want []session.Call
		for _, call := range c.Calls {
			call.SessionID, call.RunID, call.Step, call.CreatedAt = home.SessionID, ref.RunID, 1, b.now
			want = append(want, call)
		}
		same(b, "calls", snapshot.Calls, want)
		same(b, "checkpoint's status", checkpoint.Status, session.SuspendedClientTool)
		same(b, "answer to the repetition", b.commit(c), checkpoint)
		same(b, "owners", b.owners(home, "c2", "c3", "c1", "c2"), map[string]string{"c1": home.SessionID, "c2": home.SessionID})
		same(b, "owners of no calls", len(b.owners(home)), 0)
		_, err := b.Store.Owners(b.Context(), at("nobody"), []string{"c1"})
		b.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		_, err = b.try(b.startOf(home))
		b.refuses(err, fault.Conflict, "SESSION_SUSPENDED")
	}},
	{"a step that suspends waits for something", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		before := b.snapshot(home)
		for _, status := range []session.RunStatus{session.RunSuspendedClientTool, session.RunSuspendedStepPartial, session.RunSuspendedAwaitingChildren} {
			c := b.suspending(ref, 1)
			c.Outcome.Status = status
			_, err := b.tryCommit(c)
			b.refuses(err, fault.Invalid, "OUTCOME_INVALID")
			_, err = b.tryFinish(ref, session.Outcome{Status: status})
			b.refuses(err, fault.Invalid, "OUTCOME_INVALID")
		}
		same(b, "snapshot", b.snapshot(home), before)
	}},
	{"the last answer continues the session", func(b *bench) {
		b.create(b.createOf(home))
		b.append(home, "before")
		start := b.startOf(home)
		start.Traceparent, start.Tracestate, start.DeadlineAt = "00-aa-bb-01", "v=1", b.now+5000
		b.start(start)
		ref, _ := b.claim(executor)
		b.commit(b.suspending(ref, 1, "c1", "c2"))
		version := b.snapshot(home).Session.Version
		answer := b.submit(b.submitOf(home, "c2"))
		if answer.Status != session.Accepted || answer.Continuation != session.NoContinuation || answer.RunID != "" {
			b.Errorf("got %+v for the first answer", answer)
		}
		same(b, "version", b.snapshot(home).Session.Version, version)
		c := b.submitOf(home, "c1")
		answer = b.submit(c)
		if answer.Status != session.Accepted || answer.Continuation != session.NewRun || answer.RunID != c.NewRunID {
			b.Errorf("got %+v for the last answer", answer)
		}
		snapshot := b.snapshot(home)
		s, run := snapshot.Session, snapshot.Current
		if s.Status != session.Active || s.Turn != 2 || s.ResumeCount != 1 || s.Suspension != nil || s.ExpiresAt != 0 || s.Version != version+1 || s.CurrentRunID != c.NewRunID {
			b.Errorf("got %+v", s)
		}
		if run.Entry != session.EntryContinuation || run.Status != session.RunQueued || run.MessageID != start.MessageID || run.Traceparent != "00-aa-bb-01" ||
			run.Tracestate != "v=1" || run.Turn != 2 || run.StartPosition != s.Position || run.DeadlineAt != start.DeadlineAt ||
			run.TurnMessageCount != 1 || run.StartMessageCount != s.MessageCount {
			b.Errorf("got %+v", run)
		}
		next, d := b.claim(executor)
		same(b, "calls that a claim shows", len(d.View.Calls), 2)
		commit := b.commitOf(next, 2)
		commit.Consume = []session.Consume{{CallID: "c1", Revision: 1}, {CallID: "c2", Revision: 1}}
		b.commit(commit)
		same(b, "calls once they are consumed", len(b.snapshot(home).Calls), 0)
		same(b, "owner of a tombstone", b.owners(home, "c1"), map[string]string{"c1": home.SessionID})
	}},
	{"an answer is taken once and by its revision", func(b *bench) {
		b.suspended(at("s2"), "theirs")
		b.submit(b.submitOf(at("s2"), "theirs"))
		ref := b.suspended(home, "c1", "open")
		b.submit(b.submitOf(home, "c1"))
		b.stop(home, session.StopInterrupt, "")
		b.start(b.startOf(home))
		ref = b.claimOf(home)
		before := b.snapshot(home)
		for _, c := range []struct {
			consume session.Consume
			kind    fault.Kind
			reason  string
		}{
			{session.Consume{CallID: "nobody", Revision: 1}, fault.NotFound, "UNKNOWN_TOOL_CALL"},
			{session.Consume{CallID: "theirs", Revision: 1}, fault.NotFound, "UNKNOWN_TOOL_CALL"},
			{session.Consume{CallID: "open", Revision: 1}, fault.Conflict, "CALL_UNANSWERED"},
			{session.Consume{CallID: "c1", Revision: 2}, fault.Stale, "ANSWER_CHANGED"},
		} {
			commit := b.commitOf(ref, 2)
			commit.Consume = []session.Consume{c.consume}
			_, err := b.tryCommit(commit)
			b.refuses(err, c.kind, c.reason)
		}
		same(b, "snapshot after refusals", b.snapshot(home), before)
		commit := b.commitOf(ref, 2)
		commit.Consume = []session.Consume{{CallID: "c1", Revision: 1}}
		b.commit(commit)
		commit = b.commitOf(ref, 3)
		commit.Consume = []session.Consume{{CallID: "c1", Revision: 1}}
		_, err := b.tryCommit(commit)
		b.refuses(err, fault.Conflict, "CALL_CONSUMED")
	}},
	{"a call id is used once in a family", func(b *bench) {
		b.tree()
		ref := b.claimOf(at("child"))
		b.commit(b.suspending(ref, 1, "c1"))
		root := b.claimOf(at("root"))
		for _, ids := range [][]string{{"c1"}, {"c2", "c2"}} {
			_, err := b.tryCommit(b.suspending(root, 1, ids...))
			b.refuses(err, fault.Conflict, "CALL_EXISTS")
		}
		b.commit(b.suspending(root, 1, "c2"))
		b.suspended(at("stranger"), "c1")
		for _, key := range []session.Key{at("root"), at("child"), at("grandchild")} {
			same(b, "owners", b.owners(key, "c1", "c2"), map[string]string{"c1": "child", "c2": "root"})
			same(b, "awaited calls of the family", b.snapshot(key).Open, 2)
		}
		same(b, "owners among strangers", b.owners(at("stranger"), "c1", "c2"), map[string]string{"c1": "stranger"})
		ids := ""
		for _, call := range b.snapshot(at("root")).Calls {
			ids += call.CallID + " of " + call.SessionID + ", "
		}
		same(b, "calls of the root's whole family", ids, "c1 of child, c2 of root, ")
		same(b, "calls of the child", len(b.snapshot(at("child")).Calls), 1)
		same(b, "calls of the grandchild", len(b.snapshot(at("grandchild")).Calls), 0)
	}},
	{"calls come by their time, then their id", func(b *bench) {
		b.suspended(home, "z", "y")
		b.stop(home, session.StopInterrupt, "")
		b.now++
		b.start(b.startOf(home))
		b.commit(b.suspending(b.claimOf(home), 2, "b", "a"))
		ids := ""
		for _, call := range b.snapshot(home).Calls {
			ids += call.CallID
		}
		same(b, "order", ids, "yzab")
	}},
	{"a run that fails takes its open calls with it", func(b *bench) {
		ref := b.suspended(home, "answered", "former")
		b.submit(b.submitOf(home, "answered"))
		b.stop(home, session.StopInterrupt, "")
		b.start(b.startOf(home))
		ref = b.claimOf(home)
		c := b.suspending(ref, 2, "mine", "stashed")
		c.Calls[1].Stash = []byte("a message")
		c.Outcome, c.Suspension = nil, nil // a step may leave calls without suspending
		b.commit(c)
		_, err := b.tryFinish(ref, session.Outcome{Status: session.RunFailed, Failure: &session.Failure{Error: "no"}})
		b.must(err)
		ids := ""
		for _, call := range b.snapshot(home).Calls {
			ids += call.CallID + " "
		}
		same(b, "calls that are left", ids, "answered former stashed ")
		_, err = b.trySubmit(b.submitOf(home, "mine"))
		b.refuses(err, fault.NotFound, "UNKNOWN_TOOL_CALL")
		_, err = b.trySubmit(b.submitOf(home, "former"))
		b.refuses(err, fault.Conflict, "OWNER_NOT_CONTINUABLE")
	}},
}

// owners returns which sessions own the calls.
func (b *bench) owners(key session.Key, callIDs ...string) map[string]string {
	b.Helper()
	owners, err := b.Store.Owners(b.Context(), key, callIDs)
	b.must(err)
	return owners
}
