package human_test

import (
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// TestWhateverComesAtTheSameMomentHasOneOutcome plays all concurrent combinations in one system.
func TestWhateverComesAtTheSameMomentHasOneOutcome(t *testing.T) {
	t.Parallel()
	w := newWorld(t, harness.PatientState)
	for name, play := range map[string]func(*testing.T, *world){
		"of two answers one is taken":                           ofTwoAnswersOneIsTaken,
		"of a yes and a no one is taken":                        ofAYesAndANoOneIsTaken,
		"an answer is taken or abandoned with a message":        anAnswerIsTakenOrAbandoned,
		"an answer at its deadline is taken or told once":       anAnswerIsTakenOrLate,
		"an answer and a stop lose nothing":                     anAnswerAndAStopLoseNothing,
		"equal messages are one run":                            equalMessagesAreOneRun,
		"an answer that is cut anywhere is the same in the end": anAnswerThatIsCutIsTheSame,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			play(t, w)
		})
	}
}

// submitRounds is the number of rounds with two concurrent answers.
const submitRounds = 15

func ofTwoAnswersOneIsTaken(t *testing.T, w *world) {
	for _, pair := range [][2]string{
		{"route 0", "route 1"}, {"route 0", "chat 1"}, {"chat 0", "chat 1"}, {"connect 0", "route 1"},
	} {
		t.Run(pair[0]+" and "+pair[1], func(t *testing.T) {
			count := w.rounds(t, submitRounds, func(r *round) string {
				r.suspend("ask")
				answers := [2]string{"the answer of the first", "the answer of the second"}
				var was [2]response
				r.both(
					func() { was[0] = routeNamed(pair[0]).answer(r, r.result("ask", answers[0])) },
					func() { was[1] = routeNamed(pair[1]).answer(r, r.result("ask", answers[1])) },
				)
				stored := r.settled("completed")
				seen, n := r.last(2).result("call_ask")
				winner := 0
				if strings.Contains(seen, answers[1]) {
					winner = 1
				}
				if n != 1 || !strings.Contains(seen, answers[winner]) {
					r.Errorf("the model saw %d results, %q; want one of %q", n, seen, answers)
				}
				for i, told := range was {
					want := "already_completed"
					if i == winner {
						want = "accepted"
					}
					switch {
					case told.status == "streamed":
						r.same("who has answered by chat", told.message, stored[len(stored)-1])
					case told.status != want:
						r.Errorf("%s was told %+v, want %s: the model saw %q", pair[i], told, want, seen)
					case i == winner && (told.got.Continuation != "new_run" || told.got.RunID == ""):
						r.Errorf("%s was told %+v, want the new run", pair[i], told.got)
					}
				}
				return pair[winner] + " was taken"
			})
			for _, each := range pair {
				if count[each+" was taken"] < submitRounds/3 {
					t.Errorf("%s was taken in %d rounds, want it in all %d in which it came first", each, count[each+" was taken"], submitRounds/3)
				}
			}
		})
	}
}

func ofAYesAndANoOneIsTaken(t *testing.T, w *world) {
	for _, pair := range [][2]string{{"route 0", "route 1"}, {"chat 0", "route 1"}, {"chat 0", "chat 1"}} {
		t.Run(pair[0]+" and "+pair[1], func(t *testing.T) {
			count := w.rounds(t, submitRounds, func(r *round) string {
				r.suspend("pay")
				var yes, no response
				r.both(
					func() { yes = routeNamed(pair[0]).answer(r, r.verdict("pay", true, "go ahead")) },
					func() { no = routeNamed(pair[1]).answer(r, r.verdict("pay", false, "too dear")) },
				)
				stored := r.settled("completed")
				last := stored[len(stored)-1]
				seen, n := r.last(2).result("call_pay")
				approved := !strings.Contains(seen, "too dear")
				if n != 1 || approved && !strings.Contains(seen, "pay "+r.session) {
					r.Errorf("the model saw %d results, %q; want what was paid, or why not", n, seen)
				}
				state, happened := "output-denied", "denied"
				if approved {
					state, happened = "output-available", "approved"
				}
				if p := last.Call("pay"); p == nil || p.State != state {
					r.Errorf("the conversation ends with\n%swant the call %s", last.Content(), state)
				}
				if posts := r.ledger.Entry("pay " + r.session).Posts; posts != map[bool]int{true: 1}[approved] {
					r.Errorf("it was paid %d times, and the model saw %q", posts, seen)
				}
				for i, told := range []response{yes, no} {
					want := "already_completed"
					if approved == (i == 0) {
						want = "accepted"
					}
					if told.status == "streamed" {
						r.same("who has answered by chat", told.message, last)
					} else if told.status != want {
						r.Errorf("%s was told %+v, want %s: the model saw %q", pair[i], told, want, seen)
					}
				}
				return happened
			})
			if min(count["approved"], count["denied"]) < submitRounds/3 {
				t.Errorf("%v, want each in all %d rounds in which it came first", count, submitRounds/3)
			}
		})
	}
}
