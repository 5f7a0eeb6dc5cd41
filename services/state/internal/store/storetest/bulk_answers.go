package storetest

import (
	"fmt"
	"sync/atomic"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// bulkAnswers prove the effects of a batch of answers, submitted or with a start.
var bulkAnswers = []suiteCase{
	{"a batch of answers continues a session once", func(h *harness) {
		ref := h.startSuspended(home, "c1", "c2", "c3")
		c := h.submitAllOf(home, "c3", "c1", "unknown", "c1", "c2")
		c.Answers[3].Response = []byte("another")
		got := h.submitAll(c)
		h.expectOutcomes(got, session.Accepted, session.Accepted, session.UnknownCall, session.AlreadyCompleted, session.Accepted)
		for i, one := range got {
			if one.Continuation != session.ContinueNewRun || one.RunID != c.NewRunID || one.Status != session.UnknownCall && one.Call.RunID != ref.RunID {
				h.Errorf("answer %d: got %+v", i, one)
			}
		}
		s, run := h.session(home)
		if s.Turn != 2 || s.Status != session.Active || run.RunID != c.NewRunID || run.Entry != session.EntryContinuation {
			h.Errorf("got %+v,\n%+v", s, run)
		}
		answers := map[string]string{}
		for _, call := range h.snapshot(home).Calls {
			answers[call.CallID] = fmt.Sprint(string(call.Response), call.Revision)
		}
		same(h, "answers", answers, map[string]string{"c1": "answer to c11", "c2": "answer to c21", "c3": "answer to c31"})
		before := h.snapshot(home)
		repeat := h.submitAll(h.submitAllOf(home, "c1", "c2"))
		h.expectOutcomes(repeat, session.AlreadyCompleted, session.AlreadyCompleted)
		same(h, "continuation of the repetition", repeat[0].Continuation, session.ContinueLiveRun)
		same(h, "snapshot", h.snapshot(home), before)
	}},
	{"answers to some calls leave the session suspended", func(h *harness) {
		h.startSuspended(home, "c1", "c2", "c3")
		got := h.submitAll(h.submitAllOf(home, "c1", "c2"))
		h.expectOutcomes(got, session.Accepted, session.Accepted)
		same(h, "continuation", got[0].Continuation, session.NoContinuation)
		shot := h.snapshot(home)
		same(h, "status", shot.Session.Status, session.SuspendedClientTool)
		same(h, "awaited calls", shot.AwaitedCalls, 1)
		same(h, "no answers", len(h.submitAll(h.submitAllOf(home))), 0)
		same(h, "snapshot", h.snapshot(home), shot)
	}},
	{"an answer of the wrong kind to an open call rejects the batch", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		ask := h.suspendingCommit(ref, 1, "tool", "approval")
		ask.Calls[1].Kind, ask.Calls[1].ApprovalID = session.Approval, "a"
		h.commit(ask)
		before := h.snapshot(home)
		c := h.submitAllOf(home, "tool", "approval")
		_, err := h.trySubmitAll(c)
		h.refuses(err, fault.Invalid, "KIND_MISMATCH")
		same(h, "snapshot", h.snapshot(home), before)
		c.Answers[1].Kind, c.Answers[1].ApprovalID = session.Approval, "a"
		h.expectOutcomes(h.submitAll(c), session.Accepted, session.Accepted)
		c.Answers[0].Kind, c.Answers[1].Kind = session.Approval, session.ClientTool
		h.expectOutcomes(h.submitAll(c), session.AlreadyCompleted, session.AlreadyCompleted) // of any kind
		ref, _ = h.claim(executor)
		h.commit(h.consumingCommit(ref, 2, "tool", "approval"))
		h.expectOutcomes(h.submitAll(c), session.AlreadyCompleted, session.AlreadyCompleted)
	}},
	{"late answers report why they are late", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		ask := h.suspendingCommit(ref, 1, "replaced", "told", "late", "open")
		for i := range 3 {
			ask.Calls[i].DeadlineAt = h.now + 10
		}
		h.commit(ask)
		h.now += 20
		h.timeout(home)
		h.submit(h.submitOf(home, "open"))
		ref, _ = h.claim(executor)
		h.commit(h.consumingCommit(ref, 2, "told", "late"))
		wrong := h.submitAllOf(home, "told")
		wrong.Answers[0].Kind = session.Approval
		h.expectOutcomes(h.submitAll(wrong), session.AlreadyCompleted)
		got := h.submitAll(h.submitAllOf(home, "late", "late", "replaced", "open"))
		h.expectOutcomes(got, session.LateAnswer, session.LateAnswer, session.Accepted, session.AlreadyCompleted)
		same(h, "continuation", got[0].Continuation, session.ContinueLiveRun)
		same(h, "revision of what was replaced", got[2].Call.Revision, int32(2))
		h.finish(ref)
		h.start(h.startOf(home))
		_, d := h.claim(executor)
		late := map[string]bool{}
		for _, call := range d.View.Calls {
			late[call.CallID] = call.LateAt > 0
		}
		same(h, "calls that the next run is handed", late, map[string]bool{"late": true, "replaced": false, "open": false})
	}},
	{"answers to an ended session change nothing", func(h *harness) {
		h.startSuspended(home, "kept", "dropped")
		h.submit(h.submitOf(home, "kept"))
		h.stop(home, session.StopAbort, "")
		before := h.snapshot(home)
		h.expectOutcomes(h.submitAll(h.submitAllOf(home, "kept", "dropped")), session.AlreadyCompleted, session.UnknownCall)
		h.startSuspended(at("stashed"), "c1")
		h.forceStatus(at("stashed"), session.Completed)
		got := h.submitAll(h.submitAllOf(at("stashed"), "c1"))
		h.expectOutcomes(got, session.NotContinuable)
		wrong := h.submitAllOf(at("stashed"), "c1")
		wrong.Answers[0].Kind = session.Approval
		h.expectOutcomes(h.submitAll(wrong), session.NotContinuable)
		same(h, "snapshot", h.snapshot(home), before)
		_, err := h.trySubmitAll(h.submitAllOf(at("unknown"), "c1"))
		h.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
	}},
	{"concurrent batches of answers continue a session once", func(h *harness) {
		var ids []string
		for i := range parallelism {
			ids = append(ids, fmt.Sprint("c", i))
		}
		h.startSuspended(home, ids...)
		commands := make([]session.SubmitAll, parallelism)
		for i := range commands {
			commands[i] = h.submitAllOf(home, ids[i], ids[(i+1)%parallelism], ids[(i+2)%parallelism])
		}
		var taken, continued atomic.Int32
		concurrently(func(i int) {
			got, err := h.trySubmitAll(commands[i])
			if err != nil {
				h.Errorf("submit %d: %v", i, err)
				return
			}
			for _, one := range got {
				if one.Status == session.Accepted {
					taken.Add(1)
				}
			}
			if got[0].Continuation == session.ContinueNewRun {
				continued.Add(1)
			}
		})
		same(h, "accepted answers", taken.Load(), int32(parallelism))
		same(h, "continuations", continued.Load(), int32(1))
		same(h, "turn", h.snapshot(home).Session.Turn, int32(2))
	}},
	{"a start applies its answers before it abandons the other calls", func(h *harness) {
		h.startSuspended(home, "given", "left", "done")
		h.submit(h.submitOf(home, "done"))
		c := h.abandoningStart(home, "done", "given", "given", "unknown")
		c.Answers[2].Response = []byte("another")
		started := h.start(c)
		same(h, "abandoned", started.Abandoned, []string{"left"})
		answers := map[string]string{}
		for _, call := range h.snapshot(home).Calls {
			answers[call.CallID] = fmt.Sprint(call.Answer, " ", string(call.Response))
		}
		same(h, "answers", answers, map[string]string{"given": "client given", "left": "abandoned gone", "done": "client answer to done"})
		s, run := h.session(home)
		if s.Status != session.Active || s.Turn != 2 || run.RunID != c.RunID || run.Entry != session.EntryStart {
			h.Errorf("got %+v,\n%+v", s, run)
		}
	}},
	{"a start ignores invalid answers and abandons their calls", func(h *harness) {
		h.startSuspended(home, "c1", "c2")
		c := h.abandoningStart(home, "c1", "c2")
		c.Answers[0].Kind = session.Approval
		same(h, "abandoned", h.start(c).Abandoned, []string{"c1"})
		answers := map[string]session.AnswerKind{}
		for _, call := range h.snapshot(home).Calls {
			answers[call.CallID] = call.Answer
		}
		same(h, "answers", answers, map[string]session.AnswerKind{"c1": session.AnswerAbandoned, "c2": session.AnswerClient})
	}},
	{"a start answers calls of an interrupted session", func(h *harness) {
		h.startSuspended(home, "c1", "c2")
		h.stop(home, session.StopInterrupt, "")
		c := h.abandoningStart(home, "c2")
		c.RequestKey, c.RequestHash = "k", []byte("h")
		same(h, "abandoned", h.start(c).Abandoned, []string{"c1"})
		before := h.snapshot(home)
		c.RunID, c.Answers = h.id("run"), nil
		repeat := h.start(c)
		if !repeat.Repeated || len(repeat.Abandoned) != 0 {
			h.Errorf("got %+v, want the first one", repeat)
		}
		same(h, "snapshot", h.snapshot(home), before)
		for _, call := range before.Calls {
			same(h, "answer to "+call.CallID, call.Answer, map[string]session.AnswerKind{"c1": session.AnswerAbandoned, "c2": session.AnswerClient}[call.CallID])
		}
	}},
	{"a waiting start applies its answers at once", func(h *harness) {
		h.startSuspended(home, "c1", "c2")
		h.stop(home, session.StopInterrupt, "")
		h.start(h.startOf(home))
		h.claim(executor)
		c := h.waitingOf(home)
		c.Abandon, c.Answers = abandonedResponse, []session.Answer{{CallID: "c2", Kind: session.ClientTool, Response: []byte("given")}}
		started := h.start(c)
		if !started.Waiting || len(started.Abandoned) != 0 {
			h.Errorf("got %+v, want it to wait", started)
		}
		for _, call := range h.snapshot(home).Calls {
			same(h, "answer to "+call.CallID, call.Answer, map[string]session.AnswerKind{"c1": "", "c2": session.AnswerClient}[call.CallID])
		}
	}},
}

// submitAllOf returns a command to answer the calls of a session.
func (h *harness) submitAllOf(key session.Key, callIDs ...string) session.SubmitAll {
	c := session.SubmitAll{Key: key, NewRunID: h.id("run"), Now: h.now}
	for _, id := range callIDs {
		c.Answers = append(c.Answers, session.Answer{CallID: id, Kind: session.ClientTool, Response: []byte("answer to " + id)})
	}
	return c
}

func (h *harness) trySubmitAll(c session.SubmitAll) (got []session.Submitted, err error) {
	err = h.sendWidened(c.Key, c.Need(), capturing(&got, c.Decide))
	return got, err
}

func (h *harness) submitAll(c session.SubmitAll) []session.Submitted {
	h.Helper()
	got, err := h.trySubmitAll(c)
	h.must(err)
	return got
}

func (h *harness) expectOutcomes(got []session.Submitted, want ...session.SubmitStatus) {
	h.Helper()
	var statuses []session.SubmitStatus
	for _, one := range got {
		statuses = append(statuses, one.Status)
	}
	same(h, "outcomes", statuses, want)
}

// abandoningStart returns a start with answers to the calls. It abandons the other calls.
func (h *harness) abandoningStart(key session.Key, callIDs ...string) session.Send {
	c := h.startOf(key)
	c.Abandon = abandonedResponse
	for _, id := range callIDs {
		c.Answers = append(c.Answers, session.Answer{CallID: id, Kind: session.ClientTool, Response: []byte(id)})
	}
	return c
}
