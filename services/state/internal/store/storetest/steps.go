package storetest

import (
	"fmt"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

var steps = []test{
	{"the first plan of a step stands", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		b.refuses(b.tryPlan(ref, 2, "plan"), fault.Stale, "STEP_STALE")
		b.refuses(b.tryPlan(ref, 0, "plan"), fault.Stale, "STEP_STALE")
		b.must(b.tryPlan(ref, 1, "plan", "c1"))
		b.must(b.tryPlan(ref, 1, "plan", "c1"))
		b.refuses(b.tryPlan(ref, 1, "another plan", "c1"), fault.Stale, "PLAN_EXISTS")
	}},
	{"the first result of a call stands", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		_, err := b.tryResult(ref, 1, session.Result{CallID: "c1"})
		b.refuses(err, fault.Conflict, "CALL_UNKNOWN")
		b.must(b.tryPlan(ref, 1, "plan", "c1", "c2"))
		_, err = b.tryResult(ref, 1, session.Result{CallID: "c3"})
		b.refuses(err, fault.Conflict, "CALL_UNKNOWN")
		_, err = b.tryResult(ref, 2, session.Result{CallID: "c1"})
		b.refuses(err, fault.Stale, "STEP_STALE")
		for i, want := range []bool{false, true, false, true} {
			id := []string{"c2", "c2", "c1", "c2"}[i]
			repeated, err := b.tryResult(ref, 1, session.Result{CallID: id, Body: []byte{byte(i)}})
			if err != nil || repeated != want {
				b.Errorf("result %d: got repeated %v, %v; want %v", i, repeated, err, want)
			}
		}
		b.must(b.tryRelease(ref))
		_, d := b.claim(executor)
		var bodies []byte
		for _, r := range d.View.Journal.Results {
			bodies = append(bodies, r.Body...)
		}
		same(b, "results in the order of their recording", bodies, []byte{0, 2})
	}},
	{"a step commits as a whole", func(b *bench) {
		c := b.startOf(home)
		c.New.State = `{"log": ["x"], "n": 1, "gone": true}`
		b.start(c)
		ref, _ := b.claim(executor)
		b.must(b.tryPlan(ref, 1, "plan", "c1", "c2"))
		for _, id := range []string{"c2", "c1"} {
			_, err := b.tryResult(ref, 1, session.Result{
				CallID: id, Body: []byte(id), Usage: []session.Usage{tool(id)},
				Ops: []session.StateOp{{Key: "log", Kind: session.Append, Value: `["` + id + `"]`}, {Key: "n", Kind: session.Replace, Value: `"` + id + `"`}},
			})
			b.must(err)
		}
		b.now += 10
		commit := b.commitOf(ref, 1)
		commit.Ops = []session.StateOp{{Key: "gone", Kind: session.Delete}, {Key: "n", Kind: session.Append, Value: `[0]`}}
		commit.Usage = []session.Usage{{Kind: session.UsageTokens, Source: "agent", Model: "m2", PromptTokens: 1, CompletionTokens: 2, ReasoningTokens: 3, CachedTokens: 4, TotalTokens: 5}}
		checkpoint := b.commit(commit)
		s, run := b.session(home)
		if s.State != `{"log":["x","c1","c2"],"n":[0]}` {
			b.Errorf("got state %s", s.State)
		}
		if s.Version != 2 || s.StepCount != 1 || s.MessageCount != 2 || s.Status != session.Active || s.UpdatedAt != b.now {
			b.Errorf("got session %+v", s)
		}
		if run.StepCount != 1 || run.Status != session.RunRunning {
			b.Errorf("got run %+v", run)
		}
		messages := b.messages(home)
		commit.Messages[0].Ordinal = 1
		same(b, "committed message", messages[1], commit.Messages[0])
		want := session.Checkpoint{ID: commit.CheckpointID, RunID: ref.RunID, Step: 1, Epoch: 1, Version: 2, MessageCount: 2,
			Status: session.Active, StateVersion: 2, StateBase: 2, Warnings: checkpoint.Warnings, CreatedAt: b.now}
		same(b, "checkpoint", checkpoint, want)
		if len(checkpoint.Warnings) != 1 || !strings.Contains(checkpoint.Warnings[0], `"n"`) {
			b.Errorf("got warnings %q, want one about n", checkpoint.Warnings)
		}
		same(b, "stored checkpoints", b.checkpoints(home), []session.Checkpoint{want})
		entry := func(place int32, u session.Usage) session.UsageEntry {
			return session.UsageEntry{RunID: ref.RunID, Step: 1, Position: place, At: b.now, Usage: u}
		}
		same(b, "usage", b.usage(home), []session.UsageEntry{
			entry(0, tokens(5)),
			entry(1, tool("c1")),
			entry(2, tool("c2")),
			entry(3, commit.Usage[0]),
		})
		b.must(b.tryPlan(ref, 2, "the next plan")) // the journal is clear
	}},
	{"the writes of a plan are applied by the commit that has them", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		add := func(what string) []session.StateOp {
			return []session.StateOp{{Key: "log", Kind: session.Append, Value: `["` + what + `"]`}}
		}
		step := int32(0)
		for _, c := range []struct {
			results bool
			ops     []session.StateOp
			want    string
		}{
			{true, add("own 1"), `{"log":["call 1","own 1"]}`},
			{false, nil, `{"log":["call 1","own 1"]}`},
			{true, nil, `{"log":["call 1","own 1","call 3"]}`},
		} {
			step++
			b.must(b.tryPlanWith(ref, step, "plan", add(fmt.Sprint("plan ", step)), "c1"))
			b.must(b.tryPlanWith(ref, step, "plan", add("of a repetition"), "c1"))
			if c.results {
				_, err := b.tryResult(ref, step, session.Result{CallID: "c1", Ops: add(fmt.Sprint("call ", step))})
				b.must(err)
			}
			commit := b.commitOf(ref, step)
			commit.Ops = c.ops
			b.commit(commit)
			s, _ := b.session(home)
			same(b, "state", s.State, c.want)
		}
		b.refuses(b.tryPlanWith(ref, step+1, "plan", add(strings.Repeat("x", limits.State)), "c1"), fault.TooLarge, "STATE_SIZE_EXCEEDED")
		b.must(b.tryPlan(ref, step+1, "plan", "c1"))
	}},
	{"a repeated commit is answered as before", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		first := b.commitOf(ref, 1)
		first.Ops = []session.StateOp{{Key: "n", Kind: session.Append, Value: `[1]`}}
		want := b.commit(first)
		again := first
		again.CheckpointID = b.id("cp")
		b.now += 10
		again.Now = b.now
		same(b, "answer", b.commit(again), want)
		if s, _ := b.session(home); s.State != `{"n":[1]}` || s.MessageCount != 2 || s.Version != 2 {
			b.Errorf("the repetition changed the session: %+v", s)
		}
		for _, step := range []int32{0, 3, -1} {
			_, err := b.tryCommit(b.commitOf(ref, step))
			b.refuses(err, fault.Stale, "STEP_STALE")
		}
		b.must(b.tryRelease(ref))
		next, _ := b.claim(executor)
		late := first
		late.Ref = next
		_, err := b.tryCommit(late) // another epoch's step
		b.refuses(err, fault.Stale, "STEP_STALE")
		b.commit(b.commitOf(next, 2))
		_, err = b.tryCommit(late) // not the last one any more
		b.refuses(err, fault.Stale, "STEP_STALE")
	}},
	{"a commit that repeats a message id writes nothing", func(b *bench) {
		c := b.startOf(home)
		b.start(c)
		ref, _ := b.claim(executor)
		b.must(b.tryPlan(ref, 1, "plan", "c1"))
		commit := b.commitOf(ref, 1)
		good := commit.Messages[0]
		commit.Messages = append(commit.Messages, c.Messages[0])
		_, err := b.tryCommit(commit)
		b.refuses(err, fault.Conflict, "MESSAGE_EXISTS")
		if s, _ := b.session(home); s.StepCount != 0 || s.MessageCount != 1 {
			b.Errorf("got %d steps, %d messages; want 0, 1", s.StepCount, s.MessageCount)
		}
		b.refuses(b.tryPlan(ref, 1, "another plan"), fault.Stale, "PLAN_EXISTS")
		commit.Messages = []session.Message{good}
		b.commit(commit)
	}},
	{"a state above the limit is refused where it is written", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		b.must(b.tryPlan(ref, 1, "plan", "c1", "c2", "c3"))
		half := session.StateOp{Key: "log", Kind: session.Append, Value: `["` + strings.Repeat("x", limits.State/2) + `"]`}
		_, err := b.tryResult(ref, 1, session.Result{CallID: "c1", Ops: []session.StateOp{half}})
		b.must(err)
		_, err = b.tryResult(ref, 1, session.Result{CallID: "c2", Ops: []session.StateOp{half}})
		b.refuses(err, fault.TooLarge, "STATE_SIZE_EXCEEDED")
		f, _ := fault.From(err)
		same(b, "changed keys", f.Meta["changedKeys"]+" "+f.Meta["limitBytes"], "log 1000")
		_, err = b.tryResult(ref, 1, session.Result{CallID: "c2", Body: []byte("too large")})
		b.must(err)
		_, err = b.tryResult(ref, 1, session.Result{CallID: "c3", Body: make([]byte, limits.Journal)})
		b.refuses(err, fault.TooLarge, "RESULT_TOO_LARGE")
		commit := b.commitOf(ref, 1)
		commit.Ops = []session.StateOp{half}
		_, err = b.tryCommit(commit)
		b.refuses(err, fault.TooLarge, "STATE_SIZE_EXCEEDED")
		commit.Ops = nil
		b.commit(commit)
	}},
	{"a state that does not change is kept once", func(b *bench) {
		c := b.startOf(home)
		c.New.State = `{"big": "` + strings.Repeat("x", 500) + `"}`
		b.start(c)
		ref, _ := b.claim(executor)
		for step := int32(1); step <= 10; step++ {
			commit := b.commitOf(ref, step)
			if step == 5 {
				commit.Ops = []session.StateOp{{Key: "n", Kind: session.Replace, Value: "5"}}
			}
			b.commit(commit)
		}
		list, states := b.checkpoints(home), b.Rows(b.T, home)["states"]
		if states != 2 || len(list) != 10 {
			b.Fatalf("got %d states for %d checkpoints, want 2 for 10", states, len(list))
		}
		for _, c := range list {
			if want := int64(1); c.Step >= 5 {
				want = 6 // the version of the fifth step
				same(b, "state after", c.StateVersion, want)
			} else {
				same(b, "state before", c.StateVersion, want)
			}
		}
	}},
	{"what was committed is there after the store was opened again", func(b *bench) {
		if b.Reopen == nil {
			return // a store that keeps nothing has nothing to show
		}
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		b.commit(b.commitOf(ref, 1))
		b.must(b.tryPlan(ref, 2, "plan", "c1"))
		session1, run1 := b.session(home)
		messages := b.messages(home)
		b.Store = b.Reopen(b.T)
		session2, run2 := b.session(home)
		same(b, "session", session2, session1)
		same(b, "run", run2, run1)
		same(b, "messages", b.messages(home), messages)
		b.refuses(b.tryPlan(ref, 2, "another"), fault.Stale, "PLAN_EXISTS")
	}},
}

// tool is a measurement of a tool call.
func tool(name string) session.Usage {
	return session.Usage{Kind: session.UsageTool, Source: "tool", Tool: name, Success: true, DurationMS: 9}
}
