package storetest

import (
	"fmt"
	"sync/atomic"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// bulks are about many answers that come together: submitted, or with a start.
var bulks = []test{
	{"answers that come together continue a session once", func(b *bench) {
		ref := b.suspended(home, "c1", "c2", "c3")
		c := b.submitAllOf(home, "c3", "c1", "nobody", "c1", "c2")
		c.Answers[3].Response = []byte("another")
		got := b.submitAll(c)
		b.outcomes(got, session.Accepted, session.Accepted, session.UnknownCall, session.AlreadyCompleted, session.Accepted)
		for i, one := range got {
			if one.Continuation != session.NewRun || one.RunID != c.NewRunID || one.Status != session.UnknownCall && one.Call.RunID != ref.RunID {
				b.Errorf("answer %d: got %+v", i, one)
			}
		}
		s, run := b.session(home)
		if s.Turn != 2 || s.Status != session.Active || run.RunID != c.NewRunID || run.Entry != session.EntryContinuation {
			b.Errorf("got %+v,\n%+v", s, run)
		}
		answers := map[string]string{}
		for _, call := range b.snapshot(home).Calls {
			answers[call.CallID] = fmt.Sprint(string(call.Response), call.Revision)
		}
		same(b, "answers", answers, map[string]string{"c1": "answer to c11", "c2": "answer to c21", "c3": "answer to c31"})
		before := b.snapshot(home)
		again := b.submitAll(b.submitAllOf(home, "c1", "c2"))
		b.outcomes(again, session.AlreadyCompleted, session.AlreadyCompleted)
		same(b, "continuation of the repetition", again[0].Continuation, session.LiveRun)
		same(b, "snapshot", b.snapshot(home), before)
	}},
	{"answers to some of the calls leave the session waiting", func(b *bench) {
		b.suspended(home, "c1", "c2", "c3")
		got := b.submitAll(b.submitAllOf(home, "c1", "c2"))
		b.outcomes(got, session.Accepted, session.Accepted)
		same(b, "continuation", got[0].Continuation, session.NoContinuation)
		shot := b.snapshot(home)
		same(b, "status", shot.Session.Status, session.SuspendedClientTool)
		same(b, "awaited calls", shot.Open, 1)
		same(b, "no answers", len(b.submitAll(b.submitAllOf(home))), 0)
		same(b, "snapshot", b.snapshot(home), shot)
	}},
	{"an answer of the wrong kind to an open call keeps all others out", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		ask := b.suspending(ref, 1, "tool", "approval")
		ask.Calls[1].Kind, ask.Calls[1].ApprovalID = session.Approval, "a"
		b.commit(ask)
		before := b.snapshot(home)
		c := b.submitAllOf(home, "tool", "approval")
		_, err := b.trySubmitAll(c)
		b.refuses(err, fault.Invalid, "KIND_MISMATCH")
		same(b, "snapshot", b.snapshot(home), before)
		c.Answers[1].Kind, c.Answers[1].ApprovalID = session.Approval, "a"
		b.outcomes(b.submitAll(c), session.Accepted, session.Accepted)
		c.Answers[0].Kind, c.Answers[1].Kind = session.Approval, session.ClientTool
		b.outcomes(b.submitAll(c), session.AlreadyCompleted, session.AlreadyCompleted) // whatever the kind
		ref, _ = b.claim(executor)
		b.commit(b.takes(ref, 2, "tool", "approval"))
		b.outcomes(b.submitAll(c), session.AlreadyCompleted, session.AlreadyCompleted)
	}},
	{"answers come too late, each in its own way", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		ask := b.suspending(ref, 1, "replaced", "told", "late", "open")
		for i := range 3 {
			ask.Calls[i].DeadlineAt = b.now + 10
		}
		b.commit(ask)
		b.now += 20
		b.timeout(home)
		b.submit(b.submitOf(home, "open"))
		ref, _ = b.claim(executor)
		b.commit(b.takes(ref, 2, "told", "late"))
		wrong := b.submitAllOf(home, "told")
		wrong.Answers[0].Kind = session.Approval
		b.outcomes(b.submitAll(wrong), session.AlreadyCompleted)
		got := b.submitAll(b.submitAllOf(home, "late", "late", "replaced", "open"))
		b.outcomes(got, session.LateAnswer, session.LateAnswer, session.Accepted, session.AlreadyCompleted)
		same(b, "continuation", got[0].Continuation, session.LiveRun)
		same(b, "revision of what was replaced", got[2].Call.Revision, int32(2))
		b.finish(ref)
		b.start(b.startOf(home))
		_, d := b.claim(executor)
		late := map[string]bool{}
		for _, call := range d.View.Calls {
			late[call.CallID] = call.LateAt > 0
		}
		same(b, "calls that the next run is handed", late, map[string]bool{"late": true, "replaced": false, "open": false})
	}},
	{"answers to a session that is over change nothing", func(b *bench) {
		b.suspended(home, "kept", "dropped")
		b.submit(b.submitOf(home, "kept"))
		b.stop(home, session.StopAbort, "")
		before := b.snapshot(home)
		b.outcomes(b.submitAll(b.submitAllOf(home, "kept", "dropped")), session.AlreadyCompleted, session.UnknownCall)
		b.suspended(at("stashed"), "c1")
		b.force(at("stashed"), session.Completed)
		got := b.submitAll(b.submitAllOf(at("stashed"), "c1"))
		b.outcomes(got, session.NotContinuable)
		wrong := b.submitAllOf(at("stashed"), "c1")
		wrong.Answers[0].Kind = session.Approval
		b.outcomes(b.submitAll(wrong), session.NotContinuable)
		same(b, "snapshot", b.snapshot(home), before)
		_, err := b.trySubmitAll(b.submitAllOf(at("nobody"), "c1"))
		b.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
	}},
	{"answers of many at once continue a session once", func(b *bench) {
		var ids []string
		for i := range crowd {
			ids = append(ids, fmt.Sprint("c", i))
		}
		b.suspended(home, ids...)
		commands := make([]session.SubmitAll, crowd)
		for i := range commands {
			commands[i] = b.submitAllOf(home, ids[i], ids[(i+1)%crowd], ids[(i+2)%crowd])
		}
		var taken, continued atomic.Int32
		together(func(i int) {
			got, err := b.trySubmitAll(commands[i])
			if err != nil {
				b.Errorf("submit %d: %v", i, err)
				return
			}
			for _, one := range got {
				if one.Status == session.Accepted {
					taken.Add(1)
				}
			}
			if got[0].Continuation == session.NewRun {
				continued.Add(1)
			}
		})
		same(b, "answers that were taken", taken.Load(), int32(crowd))
		same(b, "continuations", continued.Load(), int32(1))
		same(b, "turn", b.snapshot(home).Session.Turn, int32(2))
	}},
	{"a start takes the answers that it brings before it abandons the rest", func(b *bench) {
		b.suspended(home, "given", "left", "done")
		b.submit(b.submitOf(home, "done"))
		c := b.abandoning(home, "done", "given", "given", "nobody")
		c.Answers[2].Response = []byte("another")
		started := b.start(c)
		same(b, "abandoned", started.Abandoned, []string{"left"})
		answers := map[string]string{}
		for _, call := range b.snapshot(home).Calls {
			answers[call.CallID] = fmt.Sprint(call.Answer, " ", string(call.Response))
		}
		same(b, "answers", answers, map[string]string{"given": "client given", "left": "abandoned gone", "done": "client answer to done"})
		s, run := b.session(home)
		if s.Status != session.Active || s.Turn != 2 || run.RunID != c.RunID || run.Entry != session.EntryStart {
			b.Errorf("got %+v,\n%+v", s, run)
		}
	}},
	{"a start passes over answers that do not fit, and abandons their calls", func(b *bench) {
		b.suspended(home, "c1", "c2")
		c := b.abandoning(home, "c1", "c2")
		c.Answers[0].Kind = session.Approval
		same(b, "abandoned", b.start(c).Abandoned, []string{"c1"})
		answers := map[string]session.AnswerKind{}
		for _, call := range b.snapshot(home).Calls {
			answers[call.CallID] = call.Answer
		}
		same(b, "answers", answers, map[string]session.AnswerKind{"c1": session.AnswerAbandoned, "c2": session.AnswerClient})
	}},
	{"a start brings answers to a session that was interrupted", func(b *bench) {
		b.suspended(home, "c1", "c2")
		b.stop(home, session.StopInterrupt, "")
		c := b.abandoning(home, "c2")
		c.RequestKey, c.RequestHash = "k", []byte("h")
		same(b, "abandoned", b.start(c).Abandoned, []string{"c1"})
		before := b.snapshot(home)
		c.RunID, c.Answers = b.id("run"), nil
		again := b.start(c)
		if !again.Repeated || len(again.Abandoned) != 0 {
			b.Errorf("got %+v, want the first one", again)
		}
		same(b, "snapshot", b.snapshot(home), before)
		for _, call := range before.Calls {
			same(b, "answer to "+call.CallID, call.Answer, map[string]session.AnswerKind{"c1": session.AnswerAbandoned, "c2": session.AnswerClient}[call.CallID])
		}
	}},
	{"a start that waits brings its answers at once", func(b *bench) {
		b.suspended(home, "c1", "c2")
		b.stop(home, session.StopInterrupt, "")
		b.start(b.startOf(home))
		b.claim(executor)
		c := b.waitingOf(home)
		c.Abandon, c.Answers = gone, []session.Answer{{CallID: "c2", Kind: session.ClientTool, Response: []byte("given")}}
		started := b.start(c)
		if !started.Waiting || len(started.Abandoned) != 0 {
			b.Errorf("got %+v, want it to wait", started)
		}
		for _, call := range b.snapshot(home).Calls {
			same(b, "answer to "+call.CallID, call.Answer, map[string]session.AnswerKind{"c1": "", "c2": session.AnswerClient}[call.CallID])
		}
	}},
}

// submitAllOf is a command that answers the calls of a session.
func (b *bench) submitAllOf(key session.Key, callIDs ...string) session.SubmitAll {
	c := session.SubmitAll{Key: key, NewRunID: b.id("run"), Now: b.now}
	for _, id := range callIDs {
		c.Answers = append(c.Answers, session.Answer{CallID: id, Kind: session.ClientTool, Response: []byte("answer to " + id)})
	}
	return c
}

func (b *bench) trySubmitAll(c session.SubmitAll) (got []session.Submitted, err error) {
	err = b.all(c.Key, c.Need(), answered(&got, c.Decide))
	return got, err
}

func (b *bench) submitAll(c session.SubmitAll) []session.Submitted {
	b.Helper()
	got, err := b.trySubmitAll(c)
	b.must(err)
	return got
}

func (b *bench) outcomes(got []session.Submitted, want ...session.SubmitStatus) {
	b.Helper()
	var statuses []session.SubmitStatus
	for _, one := range got {
		statuses = append(statuses, one.Status)
	}
	same(b, "outcomes", statuses, want)
}

// abandoning is a start that answers the calls, and abandons the others.
func (b *bench) abandoning(key session.Key, callIDs ...string) session.Send {
	c := b.startOf(key)
	c.Abandon = gone
	for _, id := range callIDs {
		c.Answers = append(c.Answers, session.Answer{CallID: id, Kind: session.ClientTool, Response: []byte(id)})
	}
	return c
}
