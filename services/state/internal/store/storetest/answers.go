package storetest

import (
	"fmt"
	"sync/atomic"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

var answers = []test{
	{"the first answer of a client stands", func(b *bench) {
		b.suspended(home, "c1", "c2")
		b.submit(b.submitOf(home, "c1"))
		before := b.snapshot(home)
		second := b.submitOf(home, "c1")
		second.Response = []byte("another")
		answer := b.submit(second)
		same(b, "second answer", answer.Status, session.AlreadyCompleted)
		same(b, "snapshot", b.snapshot(home), before)
		if call := before.Calls[0]; string(call.Response) != "answer to c1" || call.Answer != session.AnswerClient || call.Revision != 1 || call.AnsweredAt != b.now {
			b.Errorf("got %+v", call)
		}
	}},
	{"of answers that come at once one is taken", func(b *bench) {
		b.suspended(home, "c1")
		commands := make([]session.Submit, crowd)
		for i := range commands {
			commands[i] = b.submitOf(home, "c1")
			commands[i].Response = []byte(commands[i].NewRunID)
		}
		var taken atomic.Int32
		together(func(i int) {
			answer, err := b.trySubmit(commands[i])
			switch {
			case err != nil:
				b.Errorf("submit %d: %v", i, err)
			case answer.Status == session.Accepted:
				taken.Add(1)
				if answer.Continuation != session.NewRun || answer.RunID != commands[i].NewRunID {
					b.Errorf("submit %d: got %+v", i, answer)
				}
			case answer.Status != session.AlreadyCompleted || answer.Continuation != session.LiveRun:
				b.Errorf("submit %d: got %+v", i, answer)
			}
		})
		snapshot := b.snapshot(home)
		if taken.Load() != 1 || snapshot.Session.Turn != 2 || snapshot.Current.RunID != string(snapshot.Calls[0].Response) {
			b.Errorf("%d answers were taken, %+v", taken.Load(), snapshot)
		}
	}},
	{"answers to all calls of a step at once continue it once", func(b *bench) {
		var ids []string
		for i := range crowd {
			ids = append(ids, fmt.Sprint("c", i))
		}
		b.suspended(home, ids...)
		commands := make([]session.Submit, crowd)
		for i := range commands {
			commands[i] = b.submitOf(home, ids[i])
		}
		var continued atomic.Int32
		together(func(i int) {
			answer, err := b.trySubmit(commands[i])
			if err != nil || answer.Status != session.Accepted {
				b.Errorf("submit %d: got %+v, %v", i, answer, err)
			}
			if answer.Continuation == session.NewRun {
				continued.Add(1)
			}
		})
		if s := b.snapshot(home).Session; continued.Load() != 1 || s.Turn != 2 || s.Status != session.Active {
			b.Errorf("%d continuations, %+v", continued.Load(), s)
		}
	}},
	{"an answer of the wrong kind stores nothing", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		c := b.suspending(ref, 1, "tool", "approval")
		c.Calls[1].Kind, c.Calls[1].ApprovalID = session.Approval, "a"
		b.commit(c)
		before := b.snapshot(home)
		for _, wrong := range []session.Submit{
			{CallID: "tool", Kind: session.Approval, ApprovalID: "a"}, {CallID: "approval", Kind: session.ClientTool},
			{CallID: "approval", Kind: session.Approval, ApprovalID: "b"}, {CallID: "approval", Kind: session.Approval},
		} {
			wrong.Key, wrong.NewRunID, wrong.Now = home, b.id("run"), b.now
			_, err := b.trySubmit(wrong)
			b.refuses(err, fault.Invalid, "KIND_MISMATCH")
		}
		same(b, "snapshot", b.snapshot(home), before)
		right := b.submitOf(home, "approval")
		right.Kind, right.ApprovalID = session.Approval, "a"
		same(b, "answer", b.submit(right).Status, session.Accepted)
		_, err := b.trySubmit(b.submitOf(home, "nobody"))
		b.refuses(err, fault.NotFound, "UNKNOWN_TOOL_CALL")
	}},
	{"overdue calls are found, the longest overdue first", func(b *bench) {
		for i, deadline := range []session.Millis{300, 100, 200, 0, 400} {
			key := session.Key{Tenant: fmt.Sprint("tenant", i%2), SessionID: fmt.Sprint(i)}
			b.start(b.startOf(key))
			c := b.suspending(b.claimOf(key), 1, "c", "other")
			if deadline > 0 {
				c.Calls[0].DeadlineAt, c.Calls[1].DeadlineAt = b.now+deadline, b.now+deadline+1
			}
			b.commit(c)
		}
		for _, want := range []struct {
			after session.Millis
			limit int
			ids   string
		}{{99, 9, ""}, {100, 9, "1"}, {300, 9, "120"}, {1000, 9, "1204"}, {1000, 2, "12"}} {
			keys, err := b.Store.Overdue(b.Context(), b.now+want.after, want.limit)
			b.must(err)
			ids := ""
			for _, key := range keys {
				ids += key.SessionID
			}
			same(b, fmt.Sprint("overdue after ", want.after), ids, want.ids)
		}
		first := session.Key{Tenant: "tenant1", SessionID: "1"}
		b.submit(b.submitOf(first, "c"))
		b.submit(b.submitOf(first, "other"))
		keys, err := b.Store.Overdue(b.Context(), b.now+1000, 1)
		b.must(err)
		same(b, "overdue once the first is answered", keys, []session.Key{{Tenant: "tenant0", SessionID: "2"}})
	}},
	{"a deadline that passes answers the call and continues the session", func(b *bench) {
		b.withDeadline()
		same(b, "too early", len(b.timeout(home)), 0)
		b.now += 10
		late := b.timeout(home)
		if len(late) != 1 || late[0].Answer != session.AnswerTimeout || string(late[0].Response) != "timeout" || late[0].AnsweredAt != b.now {
			b.Errorf("got %+v", late)
		}
		same(b, "again", len(b.timeout(home)), 0)
		if s, run := b.session(home); s.Status != session.Active || run.Entry != session.EntryContinuation {
			b.Errorf("got %+v", s)
		}
		if keys, err := b.Store.Overdue(b.Context(), b.now+1000, 9); err != nil || len(keys) != 0 {
			b.Errorf("got %v, %v; want none overdue", keys, err)
		}
	}},
	{"a real answer takes the place of a timeout that no step has taken", func(b *bench) {
		b.withDeadline()
		b.now += 10
		b.timeout(home)
		answer := b.submit(b.submitOf(home, "c1"))
		if answer.Status != session.Accepted || answer.Continuation != session.LiveRun || answer.Call.Revision != 2 || answer.Call.Answer != session.AnswerClient {
			b.Errorf("got %+v", answer)
		}
		next := b.claimOf(home)
		commit := b.commitOf(next, 2)
		commit.Consume = []session.Consume{{CallID: "c1", Revision: 1}}
		_, err := b.tryCommit(commit)
		b.refuses(err, fault.Stale, "ANSWER_CHANGED")
		commit.Consume[0].Revision = 2
		b.commit(commit)
		same(b, "answer once it is consumed", b.submit(b.submitOf(home, "c1")).Status, session.AlreadyCompleted)
	}},
	{"an answer after the deadline that nobody has stored yet is taken", func(b *bench) {
		b.withDeadline()
		b.now += 50
		same(b, "answer", b.submit(b.submitOf(home, "c1")).Status, session.Accepted)
		same(b, "timeouts", len(b.timeout(home)), 0)
	}},
	{"an answer that comes after a timeout was taken is kept once and told once", func(b *bench) {
		b.withDeadline()
		b.now += 10
		b.timeout(home)
		next := b.claimOf(home)
		commit := b.commitOf(next, 2)
		commit.Consume = []session.Consume{{CallID: "c1", Revision: 1}}
		b.commit(commit)
		for i := range 3 {
			late := b.submitOf(home, "c1")
			late.Response = fmt.Append(nil, "late ", i)
			same(b, "late answer", b.submit(late).Status, session.LateAnswer)
		}
		shown := b.view(home, session.Need{Calls: true}).Calls
		if len(shown) != 1 || string(shown[0].Late) != "late 0" || shown[0].LateAt != b.now || string(shown[0].Response) != "timeout" {
			b.Fatalf("got %+v", shown)
		}
		commit = b.commitOf(next, 3)
		commit.Told = []string{"c1", "nobody"}
		b.commit(commit)
		same(b, "calls once the model was told", len(b.view(home, session.Need{Calls: true}).Calls), 0)
		same(b, "late answer after that", b.submit(b.submitOf(home, "c1")).Status, session.LateAnswer)
	}},
	{"a new message abandons the open calls", func(b *bench) {
		b.suspended(home, "open", "answered")
		b.submit(b.submitOf(home, "answered"))
		c := b.startOf(home)
		c.Abandon = func(call session.Call) []byte { return []byte("gone " + call.CallID) }
		b.start(c)
		snapshot := b.snapshot(home)
		if s := snapshot.Session; s.Status != session.Active || s.Suspension != nil || snapshot.Current.Entry != session.EntryStart {
			b.Errorf("got %+v", s)
		}
		for _, call := range snapshot.Calls {
			want := map[string]session.AnswerKind{"open": session.AnswerAbandoned, "answered": session.AnswerClient}[call.CallID]
			if call.Answer != want || call.Revision != 1 || (want == session.AnswerAbandoned) != (string(call.Response) == "gone open") {
				b.Errorf("got %+v", call)
			}
		}
		same(b, "answer", b.submit(b.submitOf(home, "open")).Status, session.AlreadyCompleted)
		next := b.claimOf(home)
		commit := b.commitOf(next, 2)
		commit.Consume = []session.Consume{{CallID: "open", Revision: 1}, {CallID: "answered", Revision: 1}}
		b.commit(commit)
	}},
}

// withDeadline suspends home on the call c1 for ten milliseconds.
func (b *bench) withDeadline() session.Ref {
	b.Helper()
	b.start(b.startOf(home))
	ref, _ := b.claim(executor)
	c := b.suspending(ref, 1, "c1")
	c.Calls[0].DeadlineAt = b.now + 10
	b.commit(c)
	return ref
}
