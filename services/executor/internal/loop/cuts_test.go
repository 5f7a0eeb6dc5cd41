package loop_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
)

const unknownOutcome = "the process that ran this call was lost"

// Wherever an owner is lost in a scenario, the next owner reaches the same end with the same messages. An unsafe
// tool runs at most once, and if it may have begun, the model learns that its outcome is unknown.
func TestEveryScenarioSurvivesTheLossOfItsOwnerAtEveryEffect(t *testing.T) {
	t.Parallel()
	cuts := 0
	for _, file := range scenarios(t) {
		_, s := play(t, file.text)
		for n, a := range s.acts {
			if file.name == "answer_that_changed" && n > 0 {
				// After the loss of a second owner it is unknown whether the finishing call had begun, so it
				// does not wait for the call approved meanwhile.
				continue
			}
			whole := newReplay(t, a)
			effects := whole.run(-1, 0)
			for at := range effects {
				for how := range maxCuts {
					r := newReplay(t, a)
					r.run(at, how)
					cuts++
					if problem := r.differs(whole); problem != "" {
						t.Errorf("%s, act %d, cut at effect %d in way %d: %s", file.name, n, at, how, problem)
					}
				}
			}
		}
	}
	if cuts < 1000 {
		t.Errorf("%d cuts, want many", cuts)
	}
}

// maxCuts is the number of ways to cut an effect: before it, after it but unanswered, and for calls with each
// number of recorded results.
const maxCuts = 6

// replay plays an act independently of its script's order, so it can continue after a cut.
type replay struct {
	t       *testing.T
	world   *world
	answers map[string][]scriptLine // by kind of effect and step
	at      map[string]int
	planner *loop.Planner
}

func newReplay(t *testing.T, a *act) *replay {
	r := &replay{t: t, world: a.first.copy(), answers: map[string][]scriptLine{}}
	for _, s := range a.said {
		key := place(s.effect)
		r.answers[key] = append(r.answers[key], s)
	}
	r.claim()
	return r
}

func (r *replay) claim() {
	r.at = map[string]int{}
	r.planner = loop.New(r.world.newStart())
}

func place(e loop.Effect) string {
	switch e := e.(type) {
	case loop.CallModel:
		return fmt.Sprint("model", e.Step)
	case loop.StepContext:
		return fmt.Sprint("context", e.Step)
	case loop.Guard:
		return fmt.Sprint("guard", e.Step)
	case loop.Compact:
		return fmt.Sprint("compact", e.Step)
	case loop.RunCalls:
		return fmt.Sprint("calls", e.Step)
	}
	return ""
}

// answerTo returns the script's answer to an effect; false after the end of the act.
func (r *replay) answerTo(e loop.Effect) ([]string, bool) {
	key := place(e)
	if _, ok := e.(loop.RunCalls); ok {
		var all []string
		for _, s := range r.answers[key] {
			all = append(all, s.words...)
		}
		return all, true
	}
	if r.at[key] >= len(r.answers[key]) {
		return nil, false
	}
	r.at[key]++
	return r.answers[key][r.at[key]-1].words, true
}

// run plays to the end and counts the effects. It cuts the effect with the given number.
func (r *replay) run(cut, how int) int {
	for n := 0; ; n++ {
		if n > 200 {
			r.t.Fatal("the act has no end")
		}
		effect := r.planner.Next()
		if _, done := effect.(loop.Done); done {
			return n
		}
		if n == cut {
			r.lose(effect, how)
			if r.world.outcome != nil {
				return n
			}
			r.claim()
			continue
		}
		if !r.perform(effect) {
			return n
		}
	}
}

// lose applies to the world what an owner has done of an effect before its loss.
func (r *replay) lose(effect loop.Effect, how int) {
	if how == 0 {
		return
	}
	switch e := effect.(type) {
	case loop.RecordPlan:
		r.world.recordPlan(e)
	case loop.Commit:
		r.world.commit(e)
	case loop.RunCalls:
		words, _ := r.answerTo(e)
		r.world.enter(e)
		ends := endsOf(e, words)
		r.world.recordEnds(e, ends[:min(how-1, len(ends))])
	}
}

func (w *world) enter(e loop.RunCalls) {
	for _, call := range e.Calls {
		if call.Tool != nil {
			w.entered[call.ID]++
		}
	}
}

func (r *replay) perform(effect loop.Effect) bool {
	switch e := effect.(type) {
	case loop.Wait:
		r.planner.Waited()
	case loop.RecordPlan:
		r.world.recordPlan(e)
		r.planner.Recorded()
	case loop.RunCalls:
		words, _ := r.answerTo(e)
		r.world.enter(e)
		ends := endsOf(e, words)
		r.world.recordEnds(e, ends)
		r.planner.Ended(ends)
	case loop.Commit:
		r.world.commit(e)
		r.planner.Committed()
	case loop.Finish:
		r.world.outcome = &e.Outcome
		r.planner.Finished()
	default:
		words, ok := r.answerTo(e)
		if !ok {
			return false
		}
		(&stage{t: r.t, world: r.world, planner: r.planner}).say(words)
	}
	return true
}

func (s *stage) say(words []string) { commands[words[0]](s, words[1:]) }

// differs describes a difference from another replay, or returns "".
func (r *replay) differs(whole *replay) string {
	for _, t := range r.world.start.Agent.Tools {
		for _, m := range r.world.start.Transcript {
			for _, call := range m.Calls() {
				if call.Name == t.Name && !t.Repeatable() && r.world.entered[call.ID] > 1 {
					return "the call " + call.ID + " has run twice"
				}
			}
		}
	}
	// An uncommitted summary is lost with its owner and created again on demand.
	summary := func(m agent.Message) bool { return m.Metadata["compaction"] != "" }
	got := slices.DeleteFunc(slices.Clone(r.world.start.Transcript), summary)
	want := slices.DeleteFunc(slices.Clone(whole.world.start.Transcript), summary)
	for i := range min(len(got), len(want)) {
		if isUnknown(got[i]) && !isUnknown(want[i]) {
			return "" // the runs differ from here on
		}
		if !reflect.DeepEqual(got[i], want[i]) {
			return fmt.Sprintf("message %d is %q %s, want %q %s", i, got[i].ID, text(got[i]), want[i].ID, text(want[i]))
		}
	}
	switch {
	case len(got) > len(want) && isUnknown(got[len(want)]): // of a call that waits for a callback in the whole run
		return ""
	case len(got) != len(want):
		return fmt.Sprintf("%d messages, want %d", len(got), len(want))
	case !reflect.DeepEqual(r.world.outcome, whole.world.outcome):
		return fmt.Sprintf("the outcome is %+v, want %+v", r.world.outcome, whole.world.outcome)
	case !reflect.DeepEqual(r.world.start.State, whole.world.start.State):
		return fmt.Sprintf("the state is %v, want %v", r.world.start.State, whole.world.start.State)
	case len(r.world.start.Calls) != len(whole.world.start.Calls):
		return fmt.Sprintf("%d calls are left, want %d", len(r.world.start.Calls), len(whole.world.start.Calls))
	}
	for _, id := range slices.Sorted(maps.Keys(whole.world.entered)) {
		if r.world.entered[id] == 0 {
			return "the call " + id + " was never made"
		}
	}
	return ""
}

func isUnknown(m agent.Message) bool {
	return slices.ContainsFunc(m.Results(), func(r agent.ToolResult) bool { return strings.HasPrefix(r.Error, unknownOutcome) })
}
