package storetest

import (
	"fmt"
	"sync/atomic"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

var answers = []suiteCase{
	{"a client's first answer wins", func(h *harness) {
		h.startSuspended(home, "c1", "c2")
		h.submit(h.submitOf(home, "c1"))
		before := h.snapshot(home)
		second := h.submitOf(home, "c1")
		second.Response = []byte("another")
		answer := h.submit(second)
		same(h, "second answer", answer.Status, session.AlreadyCompleted)
		same(h, "snapshot", h.snapshot(home), before)
		if call := before.Calls[0]; string(call.Response) != "answer to c1" || call.Answer != session.AnswerClient || call.Revision != 1 || call.AnsweredAt != h.now {
			h.Errorf("got %+v", call)
		}
	}},
	{"concurrent answers to a call: one is accepted", func(h *harness) {
		h.startSuspended(home, "c1")
		commands := make([]session.Submit, parallelism)
		for i := range commands {
			commands[i] = h.submitOf(home, "c1")
			commands[i].Response = []byte(commands[i].NewRunID)
		}
		var taken atomic.Int32
		concurrently(func(i int) {
			answer, err := h.trySubmit(commands[i])
			switch {
			case err != nil:
				h.Errorf("submit %d: %v", i, err)
			case answer.Status == session.Accepted:
				taken.Add(1)
				if answer.Continuation != session.ContinueNewRun || answer.RunID != commands[i].NewRunID {
					h.Errorf("submit %d: got %+v", i, answer)
				}
			case answer.Status != session.AlreadyCompleted || answer.Continuation != session.ContinueLiveRun:
				h.Errorf("submit %d: got %+v", i, answer)
			}
		})
		snapshot := h.snapshot(home)
		if taken.Load() != 1 || snapshot.Session.Turn != 2 || snapshot.Current.RunID != string(snapshot.Calls[0].Response) {
			h.Errorf("%d answers were accepted, %+v", taken.Load(), snapshot)
		}
	}},
	{"concurrent answers to all calls of a step continue it once", func(h *harness) {
		var ids []string
		for i := range parallelism {
			ids = append(ids, fmt.Sprint("c", i))
		}
		h.startSuspended(home, ids...)
		commands := make([]session.Submit, parallelism)
		for i := range commands {
			commands[i] = h.submitOf(home, ids[i])
		}
		var continued atomic.Int32
		concurrently(func(i int) {
			answer, err := h.trySubmit(commands[i])
			if err != nil || answer.Status != session.Accepted {
				h.Errorf("submit %d: got %+v, %v", i, answer, err)
			}
			if answer.Continuation == session.ContinueNewRun {
				continued.Add(1)
			}
		})
		if s := h.snapshot(home).Session; continued.Load() != 1 || s.Turn != 2 || s.Status != session.Active {
			h.Errorf("%d continuations, %+v", continued.Load(), s)
		}
	}},
	{"an answer of the wrong kind stores nothing", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		c := h.suspendingCommit(ref, 1, "tool", "approval")
		c.Calls[1].Kind, c.Calls[1].ApprovalID = session.Approval, "a"
		h.commit(c)
		before := h.snapshot(home)
		for _, wrong := range []session.Submit{
			{CallID: "tool", Kind: session.Approval, ApprovalID: "a"}, {CallID: "approval", Kind: session.ClientTool},
			{CallID: "approval", Kind: session.Approval, ApprovalID: "b"}, {CallID: "approval", Kind: session.Approval},
		} {
			wrong.Key, wrong.NewRunID, wrong.Now = home, h.id("run"), h.now
			_, err := h.trySubmit(wrong)
			h.refuses(err, fault.Invalid, "KIND_MISMATCH")
		}
		same(h, "snapshot", h.snapshot(home), before)
		right := h.submitOf(home, "approval")
		right.Kind, right.ApprovalID = session.Approval, "a"
		same(h, "answer", h.submit(right).Status, session.Accepted)
		_, err := h.trySubmit(h.submitOf(home, "unknown"))
		h.refuses(err, fault.NotFound, "UNKNOWN_TOOL_CALL")
	}},
	{"overdue calls are listed, the longest overdue first", func(h *harness) {
		for i, deadline := range []session.Millis{300, 100, 200, 0, 400} {
			key := session.Key{Tenant: fmt.Sprint("tenant", i%2), SessionID: fmt.Sprint(i)}
			h.start(h.startOf(key))
			c := h.suspendingCommit(h.claimOf(key), 1, "c", "other")
			if deadline > 0 {
				c.Calls[0].DeadlineAt, c.Calls[1].DeadlineAt = h.now+deadline, h.now+deadline+1
			}
			h.commit(c)
		}
		for _, want := range []struct {
			after session.Millis
			limit int
			ids   string
		}{{99, 9, ""}, {100, 9, "1"}, {300, 9, "120"}, {1000, 9, "1204"}, {1000, 2, "12"}} {
			keys, err := h.Store.Overdue(h.Context(), h.now+want.after, want.limit)
			h.must(err)
			ids := ""
			for _, key := range keys {
				ids += key.SessionID
			}
			same(h, fmt.Sprint("overdue after ", want.after), ids, want.ids)
		}
		first := session.Key{Tenant: "tenant1", SessionID: "1"}
		h.submit(h.submitOf(first, "c"))
		h.submit(h.submitOf(first, "other"))
		keys, err := h.Store.Overdue(h.Context(), h.now+1000, 1)
		h.must(err)
		same(h, "overdue once the first is answered", keys, []session.Key{{Tenant: "tenant0", SessionID: "2"}})
	}},
	{"a missed deadline answers the call and continues the session", func(h *harness) {
		h.suspendWithDeadline()
		same(h, "too early", len(h.timeout(home)), 0)
		h.now += 10
		late := h.timeout(home)
		if len(late) != 1 || late[0].Answer != session.AnswerTimeout || string(late[0].Response) != "timeout" || late[0].AnsweredAt != h.now {
			h.Errorf("got %+v", late)
		}
		same(h, "overdue calls after a repetition", len(h.timeout(home)), 0)
		if s, run := h.session(home); s.Status != session.Active || run.Entry != session.EntryContinuation {
			h.Errorf("got %+v", s)
		}
		if keys, err := h.Store.Overdue(h.Context(), h.now+1000, 9); err != nil || len(keys) != 0 {
			h.Errorf("got %v, %v; want none overdue", keys, err)
		}
	}},
	{"an answer replaces a timeout that no step has consumed", func(h *harness) {
		h.suspendWithDeadline()
		h.now += 10
		h.timeout(home)
		answer := h.submit(h.submitOf(home, "c1"))
		if answer.Status != session.Accepted || answer.Continuation != session.ContinueLiveRun || answer.Call.Revision != 2 || answer.Call.Answer != session.AnswerClient {
			h.Errorf("got %+v", answer)
		}
		next := h.claimOf(home)
		commit := h.commitOf(next, 2)
		commit.Consume = []session.Consume{{CallID: "c1", Revision: 1}}
		_, err := h.tryCommit(commit)
		h.refuses(err, fault.Stale, "ANSWER_CHANGED")
		commit.Consume[0].Revision = 2
		h.commit(commit)
		same(h, "answer once it is consumed", h.submit(h.submitOf(home, "c1")).Status, session.AlreadyCompleted)
	}},
	{"an answer after the deadline is accepted until the timeout is stored", func(h *harness) {
		h.suspendWithDeadline()
		h.now += 50
		same(h, "answer", h.submit(h.submitOf(home, "c1")).Status, session.Accepted)
		same(h, "timeouts", len(h.timeout(home)), 0)
	}},
	{"an answer after a consumed timeout is stored once and reported once", func(h *harness) {
		h.suspendWithDeadline()
		h.now += 10
		h.timeout(home)
		next := h.claimOf(home)
		commit := h.commitOf(next, 2)
		commit.Consume = []session.Consume{{CallID: "c1", Revision: 1}}
		h.commit(commit)
		for i := range 3 {
			late := h.submitOf(home, "c1")
			late.Response = fmt.Append(nil, "late ", i)
			same(h, "late answer", h.submit(late).Status, session.LateAnswer)
		}
		shown := h.readView(home, session.Need{Calls: true}).Calls
		if len(shown) != 1 || string(shown[0].Late) != "late 0" || shown[0].LateAt != h.now || string(shown[0].Response) != "timeout" {
			h.Fatalf("got %+v", shown)
		}
		commit = h.commitOf(next, 3)
		commit.LateReported = []string{"c1", "unknown"}
		h.commit(commit)
		same(h, "calls after the late answer was reported", len(h.readView(home, session.Need{Calls: true}).Calls), 0)
		same(h, "late answer after that", h.submit(h.submitOf(home, "c1")).Status, session.LateAnswer)
	}},
	{"a new message abandons the open calls", func(h *harness) {
		h.startSuspended(home, "open", "answered")
		h.submit(h.submitOf(home, "answered"))
		c := h.startOf(home)
		c.Abandon = func(call session.Call) []byte { return []byte("gone " + call.CallID) }
		h.start(c)
		snapshot := h.snapshot(home)
		if s := snapshot.Session; s.Status != session.Active || s.Suspension != nil || snapshot.Current.Entry != session.EntryStart {
			h.Errorf("got %+v", s)
		}
		for _, call := range snapshot.Calls {
			want := map[string]session.AnswerKind{"open": session.AnswerAbandoned, "answered": session.AnswerClient}[call.CallID]
			if call.Answer != want || call.Revision != 1 || (want == session.AnswerAbandoned) != (string(call.Response) == "gone open") {
				h.Errorf("got %+v", call)
			}
		}
		same(h, "answer", h.submit(h.submitOf(home, "open")).Status, session.AlreadyCompleted)
		next := h.claimOf(home)
		commit := h.commitOf(next, 2)
		commit.Consume = []session.Consume{{CallID: "open", Revision: 1}, {CallID: "answered", Revision: 1}}
		h.commit(commit)
	}},
}

// suspendWithDeadline suspends home on the call c1 with a deadline in ten milliseconds.
func (h *harness) suspendWithDeadline() session.ClaimRef {
	h.Helper()
	h.start(h.startOf(home))
	ref, _ := h.claim(executor)
	c := h.suspendingCommit(ref, 1, "c1")
	c.Calls[0].DeadlineAt = h.now + 10
	h.commit(c)
	return ref
}
