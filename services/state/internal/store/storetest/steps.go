package storetest

import (
	"strings"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

var steps = []suiteCase{
	{"a step commits as a whole", func(h *harness) {
		c := h.startOf(home)
		c.NewSession.State = `{"log": ["x"], "n": 1, "gone": true}`
		h.start(c)
		ref, _ := h.claim(executor)
		h.must(h.tryPlan(ref, 1, "plan", "c1", "c2"))
		for _, id := range []string{"c2", "c1"} {
			_, err := h.tryResult(ref, 1, session.Result{
				CallID: id, Body: []byte(id), Usage: []session.Usage{toolUsage(id)},
				Ops: []session.StateOp{
					{Key: "log", Kind: session.OpAppend, Value: `["` + id + `"]`}, {Key: "n", Kind: session.OpReplace, Value: `"` + id + `"`},
				},
			})
			h.must(err)
		}
		h.now += 10
		commit := h.commitOf(ref, 1)
		commit.Ops = []session.StateOp{{Key: "gone", Kind: session.OpDelete}, {Key: "n", Kind: session.OpAppend, Value: `[0]`}}
		commit.Usage = []session.Usage{
			{Kind: session.UsageTokens, Source: "agent", Model: "m2", PromptTokens: 1, CompletionTokens: 2, ReasoningTokens: 3, CachedTokens: 4,
				TotalTokens: 5},
		}
		checkpoint := h.commit(commit)
		s, run := h.session(home)
		if s.State != `{"log":["x","c1","c2"],"n":[0]}` {
			h.Errorf("got state %s", s.State)
		}
		if s.Version != 2 || s.StepCount != 1 || s.MessageCount != 2 || s.Status != session.Active || s.UpdatedAt != h.now {
			h.Errorf("got session %+v", s)
		}
		if run.StepCount != 1 || run.Status != session.RunRunning {
			h.Errorf("got run %+v", run)
		}
		messages := h.messages(home)
		commit.Messages[0].Ordinal = 1
		same(h, "committed message", messages[1], commit.Messages[0])
		want := session.Checkpoint{ID: commit.CheckpointID, RunID: ref.RunID, Step: 1, Epoch: 1, Version: 2, MessageCount: 2,
			Status: session.Active, StateVersion: 2, StateBase: 2, Warnings: checkpoint.Warnings, CreatedAt: h.now}
		same(h, "checkpoint", checkpoint, want)
		if len(checkpoint.Warnings) != 1 || !strings.Contains(checkpoint.Warnings[0], `"n"`) {
			h.Errorf("got warnings %q, want one about n", checkpoint.Warnings)
		}
		same(h, "stored checkpoints", h.checkpoints(home), []session.Checkpoint{want})
		entry := func(place int32, u session.Usage) session.UsageEntry {
			return session.UsageEntry{RunID: ref.RunID, Step: 1, Position: place, At: h.now, Usage: u}
		}
		usage := []session.UsageEntry{entry(0, modelUsage(5)), entry(1, toolUsage("c1")), entry(2, toolUsage("c2")), entry(3, commit.Usage[0])}
		same(h, "usage", h.usage(home), usage)
		h.must(h.tryPlan(ref, 2, "the next plan")) // the journal is empty
	}},
	{"a repeated commit returns the same answer", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		first := h.commitOf(ref, 1)
		first.Ops = []session.StateOp{{Key: "n", Kind: session.OpAppend, Value: `[1]`}}
		want := h.commit(first)
		repeat := first
		repeat.CheckpointID = h.id("cp")
		h.now += 10
		repeat.Now = h.now
		same(h, "answer", h.commit(repeat), want)
		if s, _ := h.session(home); s.State != `{"n":[1]}` || s.MessageCount != 2 || s.Version != 2 {
			h.Errorf("the repetition changed the session: %+v", s)
		}
		for _, step := range []int32{0, 3, -1} {
			_, err := h.tryCommit(h.commitOf(ref, step))
			h.refuses(err, fault.Stale, "STEP_STALE")
		}
		h.must(h.tryRelease(ref))
		next, _ := h.claim(executor)
		late := first
		late.ClaimRef = next
		_, err := h.tryCommit(late) // another epoch's step
		h.refuses(err, fault.Stale, "STEP_STALE")
		h.commit(h.commitOf(next, 2))
		_, err = h.tryCommit(late) // no longer the last commit
		h.refuses(err, fault.Stale, "STEP_STALE")
	}},
	{"a state above the limit is rejected", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		h.must(h.tryPlan(ref, 1, "plan", "c1", "c2", "c3"))
		half := session.StateOp{Key: "log", Kind: session.OpAppend, Value: `["` + strings.Repeat("x", limits.State/2) + `"]`}
		_, err := h.tryResult(ref, 1, session.Result{CallID: "c1", Ops: []session.StateOp{half}})
		h.must(err)
		_, err = h.tryResult(ref, 1, session.Result{CallID: "c2", Ops: []session.StateOp{half}})
		h.refuses(err, fault.TooLarge, "STATE_SIZE_EXCEEDED")
		f, _ := fault.From(err)
		same(h, "changed keys", f.Meta["changedKeys"]+" "+f.Meta["limitBytes"], "log 1000")
		_, err = h.tryResult(ref, 1, session.Result{CallID: "c2", Body: []byte("too large")})
		h.must(err)
		_, err = h.tryResult(ref, 1, session.Result{CallID: "c3", Body: make([]byte, limits.Journal)})
		h.refuses(err, fault.TooLarge, "RESULT_TOO_LARGE")
		commit := h.commitOf(ref, 1)
		commit.Ops = []session.StateOp{half}
		_, err = h.tryCommit(commit)
		h.refuses(err, fault.TooLarge, "STATE_SIZE_EXCEEDED")
		commit.Ops = nil
		h.commit(commit)
	}},
	{"an unchanged state is stored once", func(h *harness) {
		c := h.startOf(home)
		c.NewSession.State = `{"big": "` + strings.Repeat("x", 500) + `"}`
		h.start(c)
		ref, _ := h.claim(executor)
		for step := int32(1); step <= 10; step++ {
			commit := h.commitOf(ref, step)
			if step == 5 {
				commit.Ops = []session.StateOp{{Key: "n", Kind: session.OpReplace, Value: "5"}}
			}
			h.commit(commit)
		}
		list, states := h.checkpoints(home), h.Rows(h.T, home)["states"]
		if states != 2 || len(list) != 10 {
			h.Fatalf("got %d states for %d checkpoints, want 2 for 10", states, len(list))
		}
		for _, c := range list {
			if want := int64(1); c.Step >= 5 {
				want = 6 // the version of the fifth step
				same(h, "state after", c.StateVersion, want)
			} else {
				same(h, "state before", c.StateVersion, want)
			}
		}
	}},
	{"committed data survives a reopen", func(h *harness) {
		if h.Reopen == nil {
			return // a store in memory
		}
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		h.commit(h.commitOf(ref, 1))
		h.must(h.tryPlan(ref, 2, "plan", "c1"))
		session1, run1 := h.session(home)
		messages := h.messages(home)
		h.Store = h.Reopen(h.T)
		session2, run2 := h.session(home)
		same(h, "session", session2, session1)
		same(h, "run", run2, run1)
		same(h, "messages", h.messages(home), messages)
		h.refuses(h.tryPlan(ref, 2, "another"), fault.Stale, "PLAN_EXISTS")
	}},
}

// toolUsage returns the usage of a tool call.
func toolUsage(name string) session.Usage {
	return session.Usage{Kind: session.UsageTool, Source: "tool", Tool: name, Success: true, DurationMS: 9}
}
