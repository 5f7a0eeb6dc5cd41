package storetest

import (
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

var calls = []suiteCase{
	{"a suspending step is visible as a whole", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		c := h.suspendingCommit(ref, 1, "c1", "c2")
		c.Calls[1].Kind, c.Calls[1].ApprovalID, c.Calls[1].Stash, c.Calls[1].DeadlineAt = session.Approval, "a2", []byte("stash"), h.now+90
		c.Suspension.Tracing = &session.Tracing{TraceID: "t", RootSpanID: "s"}
		c.ExpireAfter = 50
		checkpoint := h.commit(c)
		snapshot := h.snapshot(home)
		s := snapshot.Session
		if s.Status != session.SuspendedClientTool || s.StepCount != 1 || s.MessageCount != 2 || s.CheckpointID != checkpoint.ID || s.ExpiresAt != h.now+90 {
			h.Errorf("got %+v", s)
		}
		same(h, "suspension", s.Suspension, c.Suspension)
		same(h, "run", snapshot.Current.Status, session.RunSuspendedClientTool)
		var want []session.Call
		for _, call := range c.Calls {
			call.SessionID, call.RunID, call.Step, call.CreatedAt = home.SessionID, ref.RunID, 1, h.now
			want = append(want, call)
		}
		same(h, "calls", snapshot.Calls, want)
		same(h, "checkpoint's status", checkpoint.Status, session.SuspendedClientTool)
		same(h, "answer to the repetition", h.commit(c), checkpoint)
		same(h, "owners", h.owners(home, "c2", "c3", "c1", "c2"), map[string]string{"c1": home.SessionID, "c2": home.SessionID})
		same(h, "owners of no calls", len(h.owners(home)), 0)
		_, err := h.Store.Owners(h.Context(), at("unknown"), []string{"c1"})
		h.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		_, err = h.tryStart(h.startOf(home))
		h.refuses(err, fault.Conflict, "SESSION_SUSPENDED")
	}},
	{"a suspension needs a pending call or child", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		before := h.snapshot(home)
		for _, status := range []session.RunStatus{session.RunSuspendedClientTool, session.RunSuspendedStepPartial, session.RunSuspendedAwaitingChildren} {
			c := h.suspendingCommit(ref, 1)
			c.Outcome.Status = status
			_, err := h.tryCommit(c)
			h.refuses(err, fault.Invalid, "OUTCOME_INVALID")
			_, err = h.tryFinish(ref, session.Outcome{Status: status})
			h.refuses(err, fault.Invalid, "OUTCOME_INVALID")
		}
		same(h, "snapshot", h.snapshot(home), before)
	}},
	{"the last answer continues the session", func(h *harness) {
		h.create(h.createOf(home))
		h.append(home, "before")
		start := h.startOf(home)
		start.Traceparent, start.Tracestate, start.DeadlineAt = "00-aa-bb-01", "v=1", h.now+5000
		h.start(start)
		ref, _ := h.claim(executor)
		h.commit(h.suspendingCommit(ref, 1, "c1", "c2"))
		version := h.snapshot(home).Session.Version
		answer := h.submit(h.submitOf(home, "c2"))
		if answer.Status != session.Accepted || answer.Continuation != session.NoContinuation || answer.RunID != "" {
			h.Errorf("got %+v for the first answer", answer)
		}
		same(h, "version", h.snapshot(home).Session.Version, version)
		c := h.submitOf(home, "c1")
		answer = h.submit(c)
		if answer.Status != session.Accepted || answer.Continuation != session.ContinueNewRun || answer.RunID != c.NewRunID {
			h.Errorf("got %+v for the last answer", answer)
		}
		snapshot := h.snapshot(home)
		s, run := snapshot.Session, snapshot.Current
		if s.Status != session.Active || s.Turn != 2 || s.ResumeCount != 1 || s.Suspension != nil || s.ExpiresAt != 0 || s.Version != version+1 || s.CurrentRunID != c.NewRunID {
			h.Errorf("got %+v", s)
		}
		if run.Entry != session.EntryContinuation || run.Status != session.RunQueued || run.MessageID != start.MessageID || run.Traceparent != "00-aa-bb-01" ||
			run.Tracestate != "v=1" || run.Turn != 2 || run.StartPosition != s.Position || run.DeadlineAt != start.DeadlineAt ||
			run.TurnMessageCount != 1 || run.StartMessageCount != s.MessageCount {
			h.Errorf("got %+v", run)
		}
		next, d := h.claim(executor)
		same(h, "calls that a claim shows", len(d.View.Calls), 2)
		commit := h.commitOf(next, 2)
		commit.Consume = []session.Consume{{CallID: "c1", Revision: 1}, {CallID: "c2", Revision: 1}}
		h.commit(commit)
		same(h, "calls once they are consumed", len(h.snapshot(home).Calls), 0)
		same(h, "owner of a tombstone", h.owners(home, "c1"), map[string]string{"c1": home.SessionID})
	}},
	{"an answer is consumed once, at its revision", func(h *harness) {
		h.startSuspended(at("s2"), "theirs")
		h.submit(h.submitOf(at("s2"), "theirs"))
		h.startSuspended(home, "c1", "open")
		h.submit(h.submitOf(home, "c1"))
		h.stop(home, session.StopInterrupt, "")
		h.start(h.startOf(home))
		ref := h.claimOf(home)
		before := h.snapshot(home)
		for _, c := range []struct {
			consume session.Consume
			kind    fault.Kind
			reason  string
		}{
			{session.Consume{CallID: "unknown", Revision: 1}, fault.NotFound, "UNKNOWN_TOOL_CALL"},
			{session.Consume{CallID: "theirs", Revision: 1}, fault.NotFound, "UNKNOWN_TOOL_CALL"},
			{session.Consume{CallID: "open", Revision: 1}, fault.Conflict, "CALL_UNANSWERED"},
			{session.Consume{CallID: "c1", Revision: 2}, fault.Stale, "ANSWER_CHANGED"},
		} {
			commit := h.commitOf(ref, 2)
			commit.Consume = []session.Consume{c.consume}
			_, err := h.tryCommit(commit)
			h.refuses(err, c.kind, c.reason)
		}
		same(h, "snapshot after refusals", h.snapshot(home), before)
		commit := h.commitOf(ref, 2)
		commit.Consume = []session.Consume{{CallID: "c1", Revision: 1}}
		h.commit(commit)
		commit = h.commitOf(ref, 3)
		commit.Consume = []session.Consume{{CallID: "c1", Revision: 1}}
		_, err := h.tryCommit(commit)
		h.refuses(err, fault.Conflict, "CALL_CONSUMED")
	}},
	{"call ids are unique in a family", func(h *harness) {
		h.startTree()
		ref := h.claimOf(at("child"))
		h.commit(h.suspendingCommit(ref, 1, "c1"))
		root := h.claimOf(at("root"))
		for _, ids := range [][]string{{"c1"}, {"c2", "c2"}} {
			_, err := h.tryCommit(h.suspendingCommit(root, 1, ids...))
			h.refuses(err, fault.Conflict, "CALL_EXISTS")
		}
		h.commit(h.suspendingCommit(root, 1, "c2"))
		h.startSuspended(at("stranger"), "c1")
		for _, key := range []session.Key{at("root"), at("child"), at("grandchild")} {
			same(h, "owners", h.owners(key, "c1", "c2"), map[string]string{"c1": "child", "c2": "root"})
			same(h, "awaited calls of the family", h.snapshot(key).AwaitedCalls, 2)
		}
		same(h, "owners among strangers", h.owners(at("stranger"), "c1", "c2"), map[string]string{"c1": "stranger"})
		ids := ""
		for _, call := range h.snapshot(at("root")).Calls {
			ids += call.CallID + " of " + call.SessionID + ", "
		}
		same(h, "calls of the root's whole family", ids, "c1 of child, c2 of root, ")
		same(h, "calls of the child", len(h.snapshot(at("child")).Calls), 1)
		same(h, "calls of the grandchild", len(h.snapshot(at("grandchild")).Calls), 0)
	}},
	{"calls are ordered by creation time, then id", func(h *harness) {
		h.startSuspended(home, "z", "y")
		h.stop(home, session.StopInterrupt, "")
		h.now++
		h.start(h.startOf(home))
		h.commit(h.suspendingCommit(h.claimOf(home), 2, "b", "a"))
		ids := ""
		for _, call := range h.snapshot(home).Calls {
			ids += call.CallID
		}
		same(h, "order", ids, "yzab")
	}},
	{"a failed run drops its open calls", func(h *harness) {
		h.startSuspended(home, "answered", "former")
		h.submit(h.submitOf(home, "answered"))
		h.stop(home, session.StopInterrupt, "")
		h.start(h.startOf(home))
		ref := h.claimOf(home)
		c := h.suspendingCommit(ref, 2, "mine", "stashed")
		c.Calls[1].Stash = []byte("a message")
		c.Outcome, c.Suspension = nil, nil // a step may add calls without suspending
		h.commit(c)
		_, err := h.tryFinish(ref, session.Outcome{Status: session.RunFailed, Failure: &session.Failure{Error: "no"}})
		h.must(err)
		ids := ""
		for _, call := range h.snapshot(home).Calls {
			ids += call.CallID + " "
		}
		same(h, "remaining calls", ids, "answered former stashed ")
		_, err = h.trySubmit(h.submitOf(home, "mine"))
		h.refuses(err, fault.NotFound, "UNKNOWN_TOOL_CALL")
		_, err = h.trySubmit(h.submitOf(home, "former"))
		h.refuses(err, fault.Conflict, "OWNER_NOT_CONTINUABLE")
	}},
}

// owners returns the owning sessions by call id.
func (h *harness) owners(key session.Key, callIDs ...string) map[string]string {
	h.Helper()
	owners, err := h.Store.Owners(h.Context(), key, callIDs)
	h.must(err)
	return owners
}
