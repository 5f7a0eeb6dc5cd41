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

// storedSteps are about steps as readers see them, and about positions.
var storedSteps = []test{
	{"committed steps are read in pages", func(b *bench) {
		var runs []string
		for turn := range int32(3) {
			b.start(b.startOf(home))
			ref, _ := b.claim(executor)
			runs = append(runs, ref.RunID)
			b.commit(b.recorded(ref, 2*turn+1, 10))
			c := b.recorded(ref, 2*turn+2, 10)
			c.Outcome = &completed
			b.commit(c)
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
			{store.StepPage{RunID: "nobody's", Limit: 10}, "", false, 0},
			{store.StepPage{Limit: 10, MaxBytes: 48}, "01! 12 23!", true, 0}, // 16 bytes a step
			{store.StepPage{Limit: 10, MaxBytes: 47}, "01! 12", true, 0},
			{store.StepPage{Limit: 10, MaxBytes: 1}, "01!", true, 0},
		} {
			if p.page.MaxBytes == 0 {
				p.page.MaxBytes = 1000
			}
			got := b.readSteps(home, p.page)
			if shown := outline(got); shown != p.want || got.More != p.more || got.Stands != p.stands {
				b.Errorf("%+v: got %q, more: %v, stands %d; want %q, %v, %d", p.page, shown, got.More, got.Stands, p.want, p.more, p.stands)
			}
			b.runsOf(got)
		}
	}},
	{"a stored step has its record and its messages alone", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		first := b.recorded(ref, 1, 10)
		b.commit(first)
		b.append(home, "from outside")
		drain := b.recorded(ref, 2, 0) // the results of calls, and no word of the model
		drain.Messages = nil
		for _, id := range []string{"result a", "result b"} {
			drain.Messages = append(drain.Messages, session.Message{ID: id, Role: "tool", RunID: ref.RunID, Step: 2, CreatedAt: b.now, Body: []byte(id)})
		}
		b.commit(drain)
		empty := b.recorded(ref, 3, 0)
		empty.Messages = nil
		b.commit(empty)
		got := b.readSteps(home, store.StepPage{Limit: 10, MaxBytes: 1000})
		checkpoints := b.checkpoints(home)
		slices.Reverse(checkpoints)
		checkpoints[0].Record = first.Record
		messages := b.messages(home)
		same(b, "steps", got.Page, []session.StoredStep{
			{Checkpoint: checkpoints[0], BeginsRun: true, Messages: messages[1:2]},
			{Checkpoint: checkpoints[1], Follows: 1, Messages: messages[3:5]},
			{Checkpoint: checkpoints[2], Follows: 2},
		})
		want, run := b.session(home)
		want.State = ""
		same(b, "session", got.Session, want)
		same(b, "newest run", *got.Current, run)
	}},
	{"steps that were taken back are not read", func(b *bench) {
		first, second := b.talk(home, 1, "one"), b.talk(home, 2, "two")
		b.talk(home, 3, "three")
		b.stands(home, position.Ended(3), 0)
		_, err := b.rewind(home, b.checkpoints(home)[1].ID)
		b.must(err)
		b.stands(home, position.Ended(2), 0)
		b.start(b.regenerateOf(home, second.message))
		b.stands(home, position.Ended(1), 0)
		_, run := b.session(home)
		same(b, "where the run starts", run.StartPosition, position.Ended(1))
		ref := b.claimOf(home)
		b.stands(home, position.Ended(1), 1)
		b.commit(b.recorded(ref, 4, 10))
		b.stands(home, position.Committed(4), 0)
		got := b.readSteps(home, store.StepPage{After: 3, Limit: 10, MaxBytes: 1000})
		if shown := outline(got); shown != "14!" || got.Stands != 1 {
			b.Errorf("a reader of a step that is gone got %q, stands %d; want 14!, 1", shown, got.Stands)
		}
		b.finish(ref)
		count, err := b.truncate(home, 1)
		if err != nil || count != 1 {
			b.Fatalf("got %d, %v", count, err)
		}
		b.stands(home, 0, 1)
		if got := b.readSteps(home, store.StepPage{After: 4, Limit: 10, MaxBytes: 1000}); len(got.Page) > 0 || got.Stands != 0 {
			b.Errorf("got %q, stands %d, want nothing", outline(got), got.Stands)
		}
		b.message(home, first.message, 1)
	}},
	{"a step without messages and writes is taken back too", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		b.commit(b.recorded(ref, 1, 10))
		empty := b.recorded(ref, 2, 10)
		empty.Messages, empty.Outcome = nil, &completed
		b.commit(empty)
		_, err := b.rewind(home, b.checkpoints(home)[1].ID)
		b.must(err)
		b.stands(home, position.Ended(1), 0)
		if got := outline(b.readSteps(home, store.StepPage{Limit: 10, MaxBytes: 1000})); got != "01!" {
			b.Errorf("got %q, want the first step alone", got)
		}
	}},
	{"a large step comes alone", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		for step, size := range []int{5000, 10, 10} {
			c := b.recorded(ref, int32(step)+1, 10)
			c.Messages[0].Body = []byte(strings.Repeat("x", size))
			b.commit(c)
		}
		c := b.recorded(ref, 4, 3<<20)
		b.commit(c)
		var pages []string
		for after := int32(0); ; {
			got := b.readSteps(home, store.StepPage{After: after, Limit: 10, MaxBytes: 100})
			if len(got.Page) > 0 {
				last := got.Page[len(got.Page)-1]
				after = last.Step
				if want := b.checkpoints(home); got.Page[0].Step == 4 && (string(last.Record) != string(c.Record) || want[0].ID != last.ID) {
					b.Error("the record of the large step is another one")
				}
			}
			pages = append(pages, outline(got))
			if !got.More {
				break
			}
		}
		same(b, "pages", pages, []string{"01!", "12 23", "34"})
	}},
	{"a run that ends outside a step has an end and no step", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		b.commit(b.recorded(ref, 1, 10))
		b.fail(ref)
		end := position.OutsideStep(2, 0)
		b.stands(home, end, 1)
		_, run := b.session(home)
		if run.StartPosition != 0 || run.EndPosition != end || run.FinishStep != 0 {
			b.Errorf("got the run from %d to %d, finished by step %d; want 0 to %d", run.StartPosition, run.EndPosition, run.FinishStep, end)
		}
		b.start(b.startOf(home))
		ref, _ = b.claim(executor)
		b.fail(ref)
		got := b.readSteps(home, store.StepPage{Limit: 10, MaxBytes: 1000})
		if shown := outline(got); shown != "01!" || got.Current.RunID != ref.RunID || got.Current.StartPosition != end || got.Current.EndPosition != position.OutsideStep(2, 2) {
			b.Errorf("got %q and the newest run %+v", shown, got.Current)
		}
		b.runsOf(got)
	}},
	{"a branch has no steps of its source", func(b *bench) {
		b.steps(home, 2)
		from, made := b.checkpoints(home)[0], at("branch")
		_, err := b.branch(home, from.ID, made)
		b.must(err)
		b.stands(made, 0, 0)
		if got := b.readSteps(made, store.StepPage{Limit: 10, MaxBytes: 1000}); len(got.Page) > 0 || got.Current != nil || got.Stands != 0 {
			b.Errorf("got %q and the run %+v of a branch without runs", outline(got), got.Current)
		}
		b.start(b.startOf(made))
		ref := b.claimOf(made)
		b.commit(b.recorded(ref, 1, 10)) // its source has a step 1 too
		got := b.readSteps(made, store.StepPage{Limit: 10, MaxBytes: 1000})
		if shown := outline(got); shown != "01!" || len(got.Page[0].Messages) != 1 || got.Page[0].Messages[0].RunID != ref.RunID {
			b.Errorf("got %q with %+v, want the branch's own step", shown, got.Page)
		}
	}},
	{"a run that has waited starts where the former one has ended", func(b *bench) {
		b.start(b.startOf(home))
		ref, _ := b.claim(executor)
		b.commit(b.recorded(ref, 1, 10))
		next, gone, undoing := b.waitingOf(home), b.waitingOf(home), b.waitingOf(home)
		for _, c := range []session.Send{next, gone, undoing} {
			b.start(c)
		}
		b.position(home, next.RunID, 0, 0)
		_, err := b.tryStop(session.RequestStop{Key: home, RunID: gone.RunID, Kind: session.StopInterrupt, Now: b.now})
		b.must(err)
		b.position(home, gone.RunID, position.Committed(1), position.Committed(1))
		b.stands(home, position.Committed(1), 0)
		b.finish(ref)
		b.position(home, ref.RunID, 0, position.OutsideStep(2, 0))
		b.position(home, next.RunID, position.OutsideStep(2, 0), 0)
		ref, _ = b.claim(executor)
		b.commit(b.recorded(ref, 2, 10))
		b.start(b.rollingBack(home)) // behind the one that waits, which begins
		last := b.recorded(ref, 3, 10)
		last.Outcome = &completed
		b.commit(last)
		b.position(home, ref.RunID, position.OutsideStep(2, 0), position.Ended(3))
		b.position(home, undoing.RunID, position.Ended(1), 0)
		b.stands(home, position.Ended(1), 0)
		if got := outline(b.readSteps(home, store.StepPage{Limit: 10, MaxBytes: 1000})); got != "01!" {
			b.Errorf("got %q after the rollback, want the first run's step alone", got)
		}
	}},
	{"steps are read of a session that there is", func(b *bench) {
		_, err := b.Store.Steps(b.Context(), home, store.StepPage{Limit: 1, MaxBytes: 1})
		b.refuses(err, fault.NotFound, "SESSION_NOT_FOUND")
		b.create(b.createOf(home))
		got := b.readSteps(home, store.StepPage{Limit: 1, MaxBytes: 1})
		if got.Session.Key != home || got.Current != nil || len(got.Page)+len(got.Runs) > 0 || got.More || got.Stands != 0 {
			b.Errorf("got %+v of a session without runs", got)
		}
	}},
}

// recorded is a command that commits a step with one message and a record of that size.
func (b *bench) recorded(ref session.Ref, step int32, size int) session.Commit {
	c := b.commitOf(ref, step)
	c.Record = []byte(strings.Repeat("r", size))
	return c
}

func (b *bench) readSteps(key session.Key, page store.StepPage) *store.Steps {
	b.Helper()
	steps, err := b.Store.Steps(b.Context(), key, page)
	b.must(err)
	return steps
}

// outline is the steps, each behind the one that it follows, with ! where a run begins.
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

// runsOf fails the test unless the runs of the page are there, each once and without its
// output.
func (b *bench) runsOf(steps *store.Steps) {
	b.Helper()
	var want []session.Run
	for _, step := range steps.Page {
		if len(want) > 0 && want[len(want)-1].RunID == step.RunID {
			continue
		}
		run, err := b.Store.Run(b.Context(), steps.Session.Key, step.RunID)
		b.must(err)
		run.Outcome.Output = ""
		want = append(want, *run)
	}
	same(b, "runs of the page", steps.Runs, want)
}

// stands fails the test unless the session stands there and has so many claims.
func (b *bench) stands(key session.Key, at int64, claims int32) {
	b.Helper()
	if s := b.snapshot(key).Session; s.Position != at || s.Claims != claims {
		b.Errorf("got the session at %+v with %d claims, want %+v with %d", position.Of(s.Position), s.Claims, position.Of(at), claims)
	}
}

// position fails the test unless the run starts and ends there.
func (b *bench) position(key session.Key, runID string, start, end int64) {
	b.Helper()
	run, err := b.Store.Run(b.Context(), key, runID)
	b.must(err)
	if run.StartPosition != start || run.EndPosition != end {
		b.Errorf("got run %s from %+v to %+v, want %+v to %+v", runID, position.Of(run.StartPosition), position.Of(run.EndPosition), position.Of(start), position.Of(end))
	}
}
