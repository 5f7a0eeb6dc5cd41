package storetest

import (
	"fmt"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// rewinds prove what remains after a rewind, and after a run with a journal at its end.
var rewinds = []suiteCase{
	{"a run that ends amid answered calls leaves none to run again", func(h *harness) {
		for name, end := range map[string]func(session.ClaimRef){
			"failed":      func(ref session.ClaimRef) { h.fail(ref) },
			"interrupted": func(ref session.ClaimRef) { h.must(h.interrupt(ref)) },
			"paused":      func(ref session.ClaimRef) { h.forceStatus(ref.Key, session.Paused) },
		} {
			key := at(name)
			h.startSuspended(key, "pay", "crunch", "beside")
			for _, id := range []string{"pay", "crunch", "beside"} {
				h.submit(h.submitOf(key, id))
			}
			ref := h.claimOf(key)
			h.must(h.tryPlan(ref, 2, "drain", "pay", "crunch"))
			_, err := h.tryResult(ref, 2, session.Result{CallID: "pay", Body: []byte("paid")})
			h.must(err)
			end(ref)
			h.start(h.startOf(key))
			_, d := h.claim(executor)
			var remaining []string
			for _, call := range d.View.Calls {
				remaining = append(remaining, call.CallID)
			}
			same(h, name+": calls that the next run is handed", remaining, []string{"beside"})
			same(h, name+": a repeated answer", h.submit(h.submitOf(key, "pay")).Status, session.AlreadyCompleted)
		}
	}},
	{"the last commit can be repeated after a rewind", func(h *harness) {
		sent := h.startOf(home)
		h.start(sent)
		ref, _ := h.claim(executor)
		last := h.commitOf(ref, 1)
		last.Outcome = &completed
		h.commit(last)
		h.start(h.regenerateOf(home, sent.Messages[0].ID))
		before := h.snapshot(home)
		repeat := h.commit(last)
		if repeat.ID != "" || repeat.Step != 1 || repeat.RunID != ref.RunID {
			h.Errorf("got %+v, want what the commit has answered, without a checkpoint", repeat)
		}
		same(h, "snapshot", h.snapshot(home), before)
	}},
	{"a session's newest checkpoint always exists", func(h *harness) {
		first, second := h.runTurn(home, 1, "one"), h.runTurn(home, 2, "two")
		list := h.checkpoints(home)
		newest := func(want string) {
			h.Helper()
			same(h, "newest checkpoint", h.snapshot(home).Session.CheckpointID, want)
		}
		newest(list[0].ID)
		h.start(h.regenerateOf(home, second.message))
		newest(list[1].ID)
		ref, _ := h.claim(executor)
		h.commit(h.commitOf(ref, 3))
		h.start(h.rollbackOf(home))
		h.must(h.interrupt(ref))
		newest(list[1].ID)
		ref, _ = h.claim(executor)
		h.finish(ref)
		_, err := h.truncate(home, 3)
		h.must(err)
		newest(list[1].ID)
		_, err = h.truncate(home, 1)
		h.must(err)
		newest("")
		h.start(h.regenerateOf(home, first.message))
		newest("")
		empty := h.startOf(at("empty"))
		empty.Messages = nil
		h.start(empty)
		ref = h.claimOf(at("empty"))
		step := h.commitOf(ref, 1)
		step.Messages = nil
		h.commit(step)
		h.commit(h.commitOf(ref, 2))
		h.finish(ref)
		_, err = h.truncate(at("empty"), 0)
		h.must(err)
		same(h, "newest checkpoint, of no message", h.snapshot(at("empty")).Session.CheckpointID, step.CheckpointID)
	}},
	{"a rolled-back first run leaves no checkpoint", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		h.commit(h.commitOf(ref, 1))
		h.start(h.rollbackOf(home))
		h.must(h.interrupt(ref))
		s, _ := h.session(home)
		if s.CheckpointID != "" || s.StepCount != 1 {
			h.Errorf("got %+v", s)
		}
	}},
	{"a call in the conversation outlives its checkpoint", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		ask := h.suspendingCommit(ref, 1, "c1")
		ask.Messages = append(ask.Messages, session.Message{ID: h.id("result"), Role: "tool", RunID: ref.RunID, Step: 1})
		h.commit(ask)
		h.submit(h.submitOf(home, "c1"))
		ref, _ = h.claim(executor)
		last := h.consumingCommit(ref, 2, "c1")
		last.Outcome = &completed
		h.commit(last)
		_, err := h.truncate(home, 2) // up to the question of step 1
		h.must(err)
		same(h, "checkpoints", len(h.checkpoints(home)), 0)
		sent := h.startOf(home)
		h.start(sent)
		h.finish(h.claimOf(home))
		h.start(h.regenerateOf(home, sent.Messages[0].ID))
		got, err := h.trySubmit(h.submitOf(home, "c1"))
		h.must(err)
		same(h, "the call that the conversation still asks", got.Status, session.AlreadyCompleted)
	}},
	{"an answer that a start carries replaces a timeout or is reported", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		ask := h.suspendingCommit(ref, 1, "consumed", "timed out", "open")
		ask.Calls[0].DeadlineAt, ask.Calls[1].DeadlineAt = h.now+10, h.now+10
		h.commit(ask)
		h.now += 20
		h.timeout(home)
		h.stop(home, session.StopInterrupt, "")
		resume := h.resumeOf(home)
		h.start(resume)
		ref, _ = h.claim(executor)
		taking := h.consumingCommit(ref, 2, "consumed")
		taking.Outcome = &completed
		h.commit(taking)
		c := h.startOf(home)
		c.Abandon = abandonedResponse
		for _, id := range []string{"consumed", "timed out", "unknown"} {
			c.Answers = append(c.Answers, session.Answer{CallID: id, Kind: session.ClientTool, Response: []byte("real")})
		}
		same(h, "abandoned", h.start(c).Abandoned, []string{"open"})
		_, d := h.claim(executor)
		got := map[string]string{}
		for _, call := range d.View.Calls {
			got[call.CallID] = fmt.Sprintf("%s %s %s", call.Answer, call.Response, call.Late)
		}
		same(h, "calls", got, map[string]string{"consumed": "timeout timeout real", "timed out": "client real ", "open": "abandoned gone "})
	}},
	{"a resumed run that consumes answers continues the previous message", func(h *harness) {
		first := h.startOf(home)
		h.start(first)
		ref, _ := h.claim(executor)
		h.commit(h.suspendingCommit(ref, 1, "c1"))
		h.stop(home, session.StopInterrupt, "")
		same(h, "continuation", h.submit(h.submitOf(home, "c1")).Continuation, session.CallerResumes)
		resume := h.resumeOf(home)
		h.start(resume)
		_, run := h.session(home)
		if run.RunID != resume.RunID || run.Entry != session.EntryResume || run.MessageID != first.MessageID {
			h.Errorf("got %+v, want the message %s", run, first.MessageID)
		}
		ref, _ = h.claim(executor)
		last := h.consumingCommit(ref, 2, "c1")
		last.Outcome = &session.Outcome{Status: session.RunInterrupted}
		h.commit(last)
		same(h, "continuation after a repetition", h.submit(h.submitOf(home, "c1")).Continuation, session.NoContinuation)
		repeat := h.resumeOf(home)
		h.start(repeat)
		_, run = h.session(home)
		same(h, "message of a run with nothing to take", run.MessageID, repeat.MessageID)
	}},
	{"a regenerate ends the sub-sessions that the session awaits", func(h *harness) {
		h.startTree()
		sent := h.messageIDs(at("root"))[0]
		h.awaitChildren("child")
		again := h.regenerateOf(at("root"), sent)
		again.OnBusy = session.BusyInterrupt
		h.start(again)
		for id, want := range map[string]session.Status{"root": session.Active, "child": session.Failed, "grandchild": session.Failed, "other": session.Active} {
			same(h, id, h.snapshot(at(id)).Session.Status, want)
		}
		root := h.snapshot(at("root"))
		same(h, "children", root.Session.Children, int32(2))
		for _, child := range root.Children {
			if child.SessionID == "child" && child.Status != session.Failed {
				h.Errorf("got %+v", child)
			}
		}
	}},
	{"a removed call is unknown and its id is free", func(h *harness) {
		for name, back := range map[string]func(key session.Key, checkpoint string){
			"rewound": func(key session.Key, checkpoint string) {
				_, err := h.rewind(key, checkpoint)
				h.must(err)
				h.start(h.startOf(key))
			},
			"resumed at a checkpoint": func(key session.Key, checkpoint string) { h.start(h.resumeAt(key, checkpoint)) },
		} {
			key := at(name)
			h.start(h.startOf(key))
			ref := h.claimOf(key)
			first := h.commit(h.commitOf(ref, 1))
			h.commit(h.suspendingCommit(ref, 2, "taken", "late", "answered"))
			for _, id := range []string{"taken", "late", "answered"} {
				h.submit(h.submitOf(key, id))
			}
			ref = h.claimOf(key)
			step := h.consumingCommit(ref, 3, "taken", "late")
			step.Outcome = &session.Outcome{Status: session.RunInterrupted}
			h.commit(step)
			back(key, first.ID)
			for _, id := range []string{"taken", "late", "answered"} {
				_, err := h.trySubmit(h.submitOf(key, id))
				h.refuses(err, fault.NotFound, "UNKNOWN_TOOL_CALL")
			}
			ref = h.claimOf(key)
			h.commit(h.suspendingCommit(ref, 4, "taken", "late"))
			for _, id := range []string{"taken", "late"} {
				same(h, "answer to the new call", h.submit(h.submitOf(key, id)).Status, session.Accepted)
			}
			h.finish(h.claimOf(key))
		}
	}},
	{"a rewind ends the sub-sessions that the session awaits", func(h *harness) {
		h.startTree()
		ref := h.claimOf(at("root"))
		first := h.commitOf(ref, 1)
		h.commit(first)
		h.commit(h.awaitingCommit(ref, 2, "child"))
		_, err := h.rewind(at("root"), first.CheckpointID)
		h.must(err)
		same(h, "child", h.snapshot(at("child")).Session.Status, session.Failed)
		same(h, "root", h.snapshot(at("root")).Session.Status, session.Paused)
	}},
}
