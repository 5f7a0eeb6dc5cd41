package storetest

import (
	"fmt"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// returns are about what is left when a session has gone back, or a run has ended with
// work in its journal.
var returns = []test{
	{"a run that ends in the middle of answered calls leaves none of them to run again", func(b *bench) {
		for name, end := range map[string]func(session.Ref){
			"failed":      func(ref session.Ref) { b.fail(ref) },
			"interrupted": func(ref session.Ref) { b.must(b.interrupt(ref)) },
			"set aside":   func(ref session.Ref) { b.force(ref.Key, session.Paused) },
		} {
			key := at(name)
			b.suspended(key, "pay", "crunch", "beside")
			for _, id := range []string{"pay", "crunch", "beside"} {
				b.submit(b.submitOf(key, id))
			}
			ref := b.claimOf(key)
			b.must(b.tryPlan(ref, 2, "drain", "pay", "crunch"))
			_, err := b.tryResult(ref, 2, session.Result{CallID: "pay", Body: []byte("paid")})
			b.must(err)
			end(ref)
			b.start(b.startOf(key))
			_, d := b.claim(executor)
			var left []string
			for _, call := range d.View.Calls {
				left = append(left, call.CallID)
			}
			same(b, name+": calls that the next run is handed", left, []string{"beside"})
			same(b, name+": a repeated answer", b.submit(b.submitOf(key, "pay")).Status, session.AlreadyCompleted)
		}
	}},
	{"the last commit is repeated when the session was taken back since", func(b *bench) {
		sent := b.startOf(home)
		b.start(sent)
		ref, _ := b.claim(executor)
		last := b.commitOf(ref, 1)
		last.Outcome = &completed
		b.commit(last)
		b.start(b.regenerateOf(home, sent.Messages[0].ID))
		before := b.snapshot(home)
		again := b.commit(last)
		if again.ID != "" || again.Step != 1 || again.RunID != ref.RunID {
			b.Errorf("got %+v, want what the commit has answered, without a checkpoint", again)
		}
		same(b, "snapshot", b.snapshot(home), before)
	}},
	{"the newest checkpoint of a session is one that there is", func(b *bench) {
		first, second := b.talk(home, 1, "one"), b.talk(home, 2, "two")
		list := b.checkpoints(home)
		newest := func(want string) {
			b.Helper()
			same(b, "newest checkpoint", b.snapshot(home).Session.CheckpointID, want)
		}
		newest(list[0].ID)
		b.start(b.regenerateOf(home, second.message))
		newest(list[1].ID)
		ref, _ := b.claim(executor)
		b.commit(b.commitOf(ref, 3))
		b.start(b.rollingBack(home))
		b.must(b.interrupt(ref))
		newest(list[1].ID)
		ref, _ = b.claim(executor)
		b.finish(ref)
		_, err := b.truncate(home, 3)
		b.must(err)
		newest(list[1].ID)
		_, err = b.truncate(home, 1)
		b.must(err)
		newest("")
		b.start(b.regenerateOf(home, first.message))
		newest("")
		empty := b.startOf(at("empty"))
		empty.Messages = nil
		b.start(empty)
		ref = b.claimOf(at("empty"))
		step := b.commitOf(ref, 1)
		step.Messages = nil
		b.commit(step)
		b.commit(b.commitOf(ref, 2))
		b.finish(ref)
		_, err = b.truncate(at("empty"), 0)
		b.must(err)
		same(b, "newest checkpoint, of no message", b.snapshot(at("empty")).Session.CheckpointID, step.CheckpointID)
	}},
	{"a first run that is taken back leaves no checkpoint", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		b.commit(b.commitOf(ref, 1))
		b.start(b.rollingBack(home))
		b.must(b.interrupt(ref))
		s, _ := b.session(home)
		if s.CheckpointID != "" || s.StepCount != 1 {
			b.Errorf("got %+v", s)
		}
	}},
	{"a call that the conversation asks stays when its checkpoint was truncated", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		ask := b.suspending(ref, 1, "c1")
		ask.Messages = append(ask.Messages, session.Message{ID: b.id("result"), Role: "tool", RunID: ref.RunID, Step: 1})
		b.commit(ask)
		b.submit(b.submitOf(home, "c1"))
		ref, _ = b.claim(executor)
		last := b.takes(ref, 2, "c1")
		last.Outcome = &completed
		b.commit(last)
		_, err := b.truncate(home, 2) // up to the question, of step 1
		b.must(err)
		same(b, "checkpoints", len(b.checkpoints(home)), 0)
		sent := b.startOf(home)
		b.start(sent)
		b.finish(b.claimOf(home))
		b.start(b.regenerateOf(home, sent.Messages[0].ID))
		got, err := b.trySubmit(b.submitOf(home, "c1"))
		b.must(err)
		same(b, "the call that the conversation still asks", got.Status, session.AlreadyCompleted)
	}},
	{"an answer that comes with a start takes the place of a timeout, or is told of", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		ask := b.suspending(ref, 1, "consumed", "timed out", "open")
		ask.Calls[0].DeadlineAt, ask.Calls[1].DeadlineAt = b.now+10, b.now+10
		b.commit(ask)
		b.now += 20
		b.timeout(home)
		b.stop(home, session.StopInterrupt, "")
		resume := b.resumeOf(home)
		b.start(resume)
		ref, _ = b.claim(executor)
		taking := b.takes(ref, 2, "consumed")
		taking.Outcome = &completed
		b.commit(taking)
		c := b.startOf(home)
		c.Abandon = gone
		for _, id := range []string{"consumed", "timed out", "nobody"} {
			c.Answers = append(c.Answers, session.Answer{CallID: id, Kind: session.ClientTool, Response: []byte("real")})
		}
		same(b, "abandoned", b.start(c).Abandoned, []string{"open"})
		_, d := b.claim(executor)
		got := map[string]string{}
		for _, call := range d.View.Calls {
			got[call.CallID] = fmt.Sprintf("%s %s %s", call.Answer, call.Response, call.Late)
		}
		same(b, "calls", got, map[string]string{"consumed": "timeout timeout real", "timed out": "client real ", "open": "abandoned gone "})
	}},
	{"a resumed run that takes answers goes on in the message of the run before it", func(b *bench) {
		first := b.startOf(home)
		b.start(first)
		ref, _ := b.claim(executor)
		b.commit(b.suspending(ref, 1, "c1"))
		b.stop(home, session.StopInterrupt, "")
		same(b, "who goes on", b.submit(b.submitOf(home, "c1")).Continuation, session.CallerResumes)
		resume := b.resumeOf(home)
		b.start(resume)
		_, run := b.session(home)
		if run.RunID != resume.RunID || run.Entry != session.EntryResume || run.MessageID != first.MessageID {
			b.Errorf("got %+v, want the message %s", run, first.MessageID)
		}
		ref, _ = b.claim(executor)
		last := b.takes(ref, 2, "c1")
		last.Outcome = &session.Outcome{Status: session.RunInterrupted}
		b.commit(last)
		same(b, "who goes on after a repetition", b.submit(b.submitOf(home, "c1")).Continuation, session.NoContinuation)
		again := b.resumeOf(home)
		b.start(again)
		_, run = b.session(home)
		same(b, "message of a run with nothing to take", run.MessageID, again.MessageID)
	}},
	{"the sub-sessions that a session waits for end when it goes back", func(b *bench) {
		b.tree()
		sent := b.said(at("root"))[0]
		b.await("child")
		b.start(b.regenerateOf(at("root"), sent))
		for id, want := range map[string]session.Status{"root": session.Active, "child": session.Failed, "grandchild": session.Failed, "other": session.Active} {
			same(b, id, b.snapshot(at(id)).Session.Status, want)
		}
		root := b.snapshot(at("root"))
		same(b, "children", root.Session.Children, int32(2))
		for _, child := range root.Children {
			if child.SessionID == "child" && child.Status != session.Failed {
				b.Errorf("got %+v", child)
			}
		}
	}},
	{"a call that was taken back is unknown, and another may have its id", func(b *bench) {
		for name, back := range map[string]func(key session.Key, checkpoint string){
			"rewound": func(key session.Key, checkpoint string) {
				_, err := b.rewind(key, checkpoint)
				b.must(err)
				b.start(b.startOf(key))
			},
			"resumed at a checkpoint": func(key session.Key, checkpoint string) { b.start(b.resumeAt(key, checkpoint)) },
		} {
			key := at(name)
			b.start(b.startOf(key))
			ref := b.claimOf(key)
			first := b.commit(b.commitOf(ref, 1))
			b.commit(b.suspending(ref, 2, "taken", "late", "answered"))
			for _, id := range []string{"taken", "late", "answered"} {
				b.submit(b.submitOf(key, id))
			}
			ref = b.claimOf(key)
			step := b.takes(ref, 3, "taken", "late")
			step.Outcome = &session.Outcome{Status: session.RunInterrupted}
			b.commit(step)
			back(key, first.ID)
			for _, id := range []string{"taken", "late", "answered"} {
				_, err := b.trySubmit(b.submitOf(key, id))
				b.refuses(err, fault.NotFound, "UNKNOWN_TOOL_CALL")
			}
			ref = b.claimOf(key)
			b.commit(b.suspending(ref, 4, "taken", "late"))
			for _, id := range []string{"taken", "late"} {
				same(b, "answer to the new call", b.submit(b.submitOf(key, id)).Status, session.Accepted)
			}
			b.finish(b.claimOf(key))
		}
	}},
	{"a session that is rewound ends what it waits for", func(b *bench) {
		b.tree()
		ref := b.claimOf(at("root"))
		first := b.commitOf(ref, 1)
		b.commit(first)
		wait := b.suspending(ref, 2)
		wait.Outcome.Status = session.RunSuspendedAwaitingChildren
		wait.Suspension.Children = map[string]session.ChildWait{"child": {CallID: "call of child"}}
		b.commit(wait)
		_, err := b.rewind(at("root"), first.CheckpointID)
		b.must(err)
		same(b, "child", b.snapshot(at("child")).Session.Status, session.Failed)
		same(b, "root", b.snapshot(at("root")).Session.Status, session.Paused)
	}},
}
