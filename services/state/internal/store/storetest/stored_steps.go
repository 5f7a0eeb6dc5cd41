package storetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/position"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// storedSteps prove how readers see committed steps, and the positions of sessions and runs.
var storedSteps = []suiteCase{
	{"committed steps are read in pages", func(h *harness) {
		var runs []string
		for turn := range int32(3) {
			h.start(h.startOf(home))
			ref, _ := h.claim(executor)
			runs = append(runs, ref.RunID)
			h.commit(h.recordedCommit(ref, 2*turn+1, 10))
			c := h.recordedCommit(ref, 2*turn+2, 10)
			c.Outcome = &completed
			h.commit(c)
		}
		for _, p := range []struct {
			page   store.StepPage
			want   string // pairs of predecessor and step; "!" marks the first step of a run
			more   bool
			stands int32
		}{
			{store.StepPage{Limit: 10}, "01! 12 23! 34 45! 56", false, 0},
			{store.StepPage{Limit: 2}, "01! 12", true, 0},
			{store.StepPage{After: 2, Limit: 3}, "23! 34 45!", true, 2},
			{store.StepPage{After: 3, Limit: 3}, "34 45! 56", false, 3},
			{store.StepPage{After: 6, Limit: 3}, "", false, 6},
			{store.StepPage{After: 60, Limit: 3}, "", false, 6},
			{store.StepPage{RunID: runs[1], Limit: 10}, "23! 34", false, 0},
			{store.StepPage{RunID: runs[1], After: 3, Limit: 10}, "34", false, 3},
			{store.StepPage{RunID: runs[1], Limit: 1}, "23!", true, 0},
			{store.StepPage{RunID: runs[0], After: 2, Limit: 10}, "", false, 2},
			{store.StepPage{RunID: "unknown", Limit: 10}, "", false, 0},
			{store.StepPage{Limit: 10, MaxBytes: 48}, "01! 12 23!", true, 0}, // 16 bytes a step
			{store.StepPage{Limit: 10, MaxBytes: 47}, "01! 12", true, 0},
			{store.StepPage{Limit: 10, MaxBytes: 1}, "01!", true, 0},
		} {
			if p.page.MaxBytes == 0 {
				p.page.MaxBytes = 1000
			}
			got := h.readSteps(home, p.page)
			if shown := outline(got); shown != p.want || got.More != p.more || got.LastStep != p.stands {
				h.Errorf("%+v: got %q, more: %v, at step %d; want %q, %v, %d", p.page, shown, got.More, got.LastStep, p.want, p.more, p.stands)
			}
			h.expectRunsOf(got)
		}
	}},
	{"a stored step has only its own record and messages", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		first := h.recordedCommit(ref, 1, 10)
		h.commit(first)
		h.append(home, "from outside")
		drain := h.recordedCommit(ref, 2, 0) // results of calls without a model's message
		drain.Messages = nil
		for _, id := range []string{"result a", "result b"} {
			drain.Messages = append(drain.Messages,
				session.Message{ID: id, Role: "tool", RunID: ref.RunID, Step: 2, CreatedAt: h.now, Body: []byte(id)})
		}
		h.commit(drain)
		empty := h.recordedCommit(ref, 3, 0)
		empty.Messages = nil
		h.commit(empty)
		got := h.readSteps(home, store.StepPage{Limit: 10, MaxBytes: 1000})
		checkpoints := h.checkpoints(home)
		slices.Reverse(checkpoints)
		checkpoints[0].Record = first.Record
		messages := h.messages(home)
		same(h, "steps", got.Page, []session.StoredStep{
			{Checkpoint: checkpoints[0], BeginsRun: true, Messages: messages[1:2]},
			{Checkpoint: checkpoints[1], Follows: 1, Messages: messages[3:5]},
			{Checkpoint: checkpoints[2], Follows: 2},
		})
		want, run := h.session(home)
		want.State = ""
		same(h, "session", got.Session, want)
		same(h, "newest run", *got.Current, run)
	}},
	{"removed steps are not read", func(h *harness) {
		first, second := h.runTurn(home, 1, "one"), h.runTurn(home, 2, "two")
		h.runTurn(home, 3, "three")
		h.expectPosition(home, position.Ended(3), 0)
		_, err := h.rewind(home, h.checkpoints(home)[1].ID)
		h.must(err)
		h.expectPosition(home, position.Ended(2), 0)
		h.start(h.regenerateOf(home, second.message))
		h.expectPosition(home, position.Ended(1), 0)
		_, run := h.session(home)
		same(h, "where the run starts", run.StartPosition, position.Ended(1))
		ref := h.claimOf(home)
		h.expectPosition(home, position.Ended(1), 1)
		h.commit(h.recordedCommit(ref, 4, 10))
		h.expectPosition(home, position.Committed(4), 0)
		got := h.readSteps(home, store.StepPage{After: 3, Limit: 10, MaxBytes: 1000})
		if shown := outline(got); shown != "14!" || got.LastStep != 1 {
			h.Errorf("a reader of a removed step got %q at step %d; want 14! at 1", shown, got.LastStep)
		}
		h.finish(ref)
		count, err := h.truncate(home, 1)
		if err != nil || count != 1 {
			h.Fatalf("got %d, %v", count, err)
		}
		h.expectPosition(home, 0, 1)
		if got := h.readSteps(home, store.StepPage{After: 4, Limit: 10, MaxBytes: 1000}); len(got.Page) > 0 || got.LastStep != 0 {
			h.Errorf("got %q at step %d, want no step", outline(got), got.LastStep)
		}
		h.expectMessageCount(home, first.message, 1)
	}},
	{"an empty step is removed too", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		h.commit(h.recordedCommit(ref, 1, 10))
		empty := h.recordedCommit(ref, 2, 10)
		empty.Messages, empty.Outcome = nil, &completed
		h.commit(empty)
		_, err := h.rewind(home, h.checkpoints(home)[1].ID)
		h.must(err)
		h.expectPosition(home, position.Ended(1), 0)
		if got := outline(h.readSteps(home, store.StepPage{Limit: 10, MaxBytes: 1000})); got != "01!" {
			h.Errorf("got %q, want the first step alone", got)
		}
	}},
	{"a page contains at least one step", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		for step, size := range []int{5000, 10, 10} {
			c := h.recordedCommit(ref, int32(step)+1, 10)
			c.Messages[0].Body = []byte(strings.Repeat("x", size))
			h.commit(c)
		}
		c := h.recordedCommit(ref, 4, 3<<20)
		h.commit(c)
		var pages []string
		for after := int32(0); ; {
			got := h.readSteps(home, store.StepPage{After: after, Limit: 10, MaxBytes: 100})
			if len(got.Page) > 0 {
				last := got.Page[len(got.Page)-1]
				after = last.Step
				if want := h.checkpoints(home); got.Page[0].Step == 4 && (string(last.Record) != string(c.Record) || want[0].ID != last.ID) {
					h.Error("the record of the large step is another one")
				}
			}
			pages = append(pages, outline(got))
			if !got.More {
				break
			}
		}
		same(h, "pages", pages, []string{"01!", "12 23", "34"})
	}},
	{"a run that ends outside a step has an end position and no step", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		h.commit(h.recordedCommit(ref, 1, 10))
		h.fail(ref)
		end := position.OutsideStep(2, 0)
		h.expectPosition(home, end, 1)
		_, run := h.session(home)
		if run.StartPosition != 0 || run.EndPosition != end || run.FinishStep != 0 {
			h.Errorf("got the run from %d to %d, finished by step %d; want 0 to %d", run.StartPosition, run.EndPosition, run.FinishStep, end)
		}
		h.start(h.startOf(home))
		ref, _ = h.claim(executor)
		h.fail(ref)
		got := h.readSteps(home, store.StepPage{Limit: 10, MaxBytes: 1000})
		if shown := outline(got); shown != "01!" || got.Current.RunID != ref.RunID || got.Current.StartPosition != end ||
			got.Current.EndPosition != position.OutsideStep(2, 2) {
			h.Errorf("got %q and the newest run %+v", shown, got.Current)
		}
		h.expectRunsOf(got)
	}},
	{"a branch has no steps of its source", func(h *harness) {
		h.runSteps(home, 2)
		from, made := h.checkpoints(home)[0], at("branch")
		_, err := h.branch(home, from.ID, made)
		h.must(err)
		h.expectPosition(made, 0, 0)
		if got := h.readSteps(made, store.StepPage{Limit: 10, MaxBytes: 1000}); len(got.Page) > 0 || got.Current != nil || got.LastStep != 0 {
			h.Errorf("got %q and the run %+v of a branch without runs", outline(got), got.Current)
		}
		h.start(h.startOf(made))
		ref := h.claimOf(made)
		h.commit(h.recordedCommit(ref, 1, 10)) // the source has a step 1 too
		got := h.readSteps(made, store.StepPage{Limit: 10, MaxBytes: 1000})
		if shown := outline(got); shown != "01!" || len(got.Page[0].Messages) != 1 || got.Page[0].Messages[0].RunID != ref.RunID {
			h.Errorf("got %q with %+v, want the branch's own step", shown, got.Page)
		}
	}},
	{"a waiting run starts at the end position of the previous one", func(h *harness) {
		h.start(h.startOf(home))
		ref, _ := h.claim(executor)
		h.commit(h.recordedCommit(ref, 1, 10))
		next, removed, undoing := h.waitingOf(home), h.waitingOf(home), h.waitingOf(home)
		for _, c := range []session.Send{next, removed, undoing} {
			h.start(c)
		}
		h.expectRunPositions(home, next.RunID, 0, 0)
		_, err := h.tryStop(session.RequestStop{Key: home, RunID: removed.RunID, Kind: session.StopInterrupt, Now: h.now})
		h.must(err)
		h.expectRunPositions(home, removed.RunID, position.Committed(1), position.Committed(1))
		h.expectPosition(home, position.Committed(1), 0)
		h.finish(ref)
		h.expectRunPositions(home, ref.RunID, 0, position.OutsideStep(2, 0))
		h.expectRunPositions(home, next.RunID, position.OutsideStep(2, 0), 0)
		ref, _ = h.claim(executor)
		h.commit(h.recordedCommit(ref, 2, 10))
		h.start(h.rollbackOf(home)) // behind the waiting run, which begins
		last := h.recordedCommit(ref, 3, 10)
		last.Outcome = &completed
		h.commit(last)
		h.expectRunPositions(home, ref.RunID, position.OutsideStep(2, 0), position.Ended(3))
		h.expectRunPositions(home, undoing.RunID, position.Ended(1), 0)
		h.expectPosition(home, position.Ended(1), 0)
		if got := outline(h.readSteps(home, store.StepPage{Limit: 10, MaxBytes: 1000})); got != "01!" {
			h.Errorf("got %q after the rollback, want the first run's step alone", got)
		}
	}},
	{"steps of an unknown session are not found", func(h *harness) {
		_, err := h.Store.Steps(h.Context(), home, store.StepPage{Limit: 1, MaxBytes: 1})
		h.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		h.create(h.createOf(home))
		got := h.readSteps(home, store.StepPage{Limit: 1, MaxBytes: 1})
		if got.Session.Key != home || got.Current != nil || len(got.Page)+len(got.Runs) > 0 || got.More || got.LastStep != 0 {
			h.Errorf("got %+v of a session without runs", got)
		}
	}},
}

// recordedCommit returns the commit of a step with one message and a record of size bytes.
func (h *harness) recordedCommit(ref session.ClaimRef, step int32, size int) session.Commit {
	c := h.commitOf(ref, step)
	c.Record = []byte(strings.Repeat("r", size))
	return c
}

func (h *harness) readSteps(key session.Key, page store.StepPage) *store.Steps {
	h.Helper()
	steps, err := h.Store.Steps(h.Context(), key, page)
	h.must(err)
	return steps
}

// outline lists the steps, each as the predecessor and the step, with ! at the start of a run.
func outline(steps *store.Steps) string {
	var list []string
	for _, step := range steps.Page {
		text := fmt.Sprint(step.Follows) + fmt.Sprint(step.Step)
		if step.BeginsRun {
			text += "!"
		}
		list = append(list, text)
	}
	return strings.Join(list, " ")
}

// expectRunsOf fails the test unless the page has each of its steps' runs once, without output.
func (h *harness) expectRunsOf(steps *store.Steps) {
	h.Helper()
	var want []session.Run
	for _, step := range steps.Page {
		if len(want) > 0 && want[len(want)-1].RunID == step.RunID {
			continue
		}
		run, err := h.Store.Run(h.Context(), steps.Session.Key, step.RunID)
		h.must(err)
		run.Outcome.Output = ""
		want = append(want, *run)
	}
	same(h, "runs of the page", steps.Runs, want)
}

// expectPosition fails the test unless the session has the position and the number of claims.
func (h *harness) expectPosition(key session.Key, at int64, claims int32) {
	h.Helper()
	if s := h.snapshot(key).Session; s.Position != at || s.Claims != claims {
		h.Errorf("got the session at %+v with %d claims, want %+v with %d", position.Of(s.Position), s.Claims, position.Of(at), claims)
	}
}

// expectRunPositions fails the test unless the run has these positions.
func (h *harness) expectRunPositions(key session.Key, runID string, start, end int64) {
	h.Helper()
	run, err := h.Store.Run(h.Context(), key, runID)
	h.must(err)
	if run.StartPosition != start || run.EndPosition != end {
		h.Errorf("got run %s from %+v to %+v, want %+v to %+v", runID, position.Of(run.StartPosition), position.Of(run.EndPosition),
			position.Of(start), position.Of(end))
	}
}
