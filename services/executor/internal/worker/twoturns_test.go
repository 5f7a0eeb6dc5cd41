package worker_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/position"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/publisher/publishertest"
)

// twoTurns plays two turns: one with a failing model call, reasoning and three calls, and one of text.
type twoTurns struct {
	*system
	hasFailed bool           // the model has failed once
	plans     int            // complete replies with calls
	recorded  map[string]int // executions, by call id, of calls with a recorded result at the death of an executor
}

func newTwoTurns(t *testing.T) *twoTurns {
	p := &twoTurns{recorded: map[string]int{}}
	p.system = newSystem(t)
	p.agents["demo"] = define("demo", modelFunc(p.reply), p.tool("charge", agent.RetryNever, nil), p.tool("lookup", agent.RetrySafe, nil))
	return p
}

func (p *twoTurns) reply(ctx context.Context, r model.Request, yield func(model.Event) bool) error {
	say := func(e model.Event) bool { // one append each
		pause(ctx, time.Millisecond)
		return yield(e)
	}
	switch {
	case r.Messages[len(r.Messages)-1].Text() == "second":
		sendText(say, "Bye", ".")
	case r.Messages[len(r.Messages)-1].Text() == "fail":
		say(model.TextDelta{Text: "I c"})
		return &model.Error{Code: model.CodeDenied, Message: "secret of the provider"}
	case endsWithResults(r):
		if p.failsOnce() {
			say(model.TextDelta{Text: "All is d"})
			return &model.Error{Code: model.CodeOverloaded, Retryable: true}
		}
		sendText(say, "All ", "is done.")
	default:
		for _, e := range []model.Event{
			model.ReasoningDelta{Text: "Hm, "}, model.ReasoningDelta{Text: "three."}, model.ReasoningEnd{},
			model.TextDelta{Text: "Let me "}, model.TextDelta{Text: "see."},
		} {
			say(e)
		}
		sendCalls(say, "charge", `{"amount":1}`, "lookup", `{"q":"x"}`, "nothing", `{}`)
		p.mu.Lock()
		p.plans++
		p.mu.Unlock()
	}
	return nil
}

func (p *twoTurns) failsOnce() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := !p.hasFailed
	p.hasFailed = true
	return first
}

// runTurns plays the turns, each with its user message. If the executor dies, another one takes over.
func (p *twoTurns) runTurns(decide func(call int, method string) verdict, turns ...string) *executor {
	var faults []func(int, string) verdict
	if decide != nil {
		faults = append(faults, decide)
	}
	e := p.open(faults...)
	p.replaceOnDeath(e)
	e.connection.mu.Lock()
	replace := e.connection.onDeath
	e.connection.onDeath = func() {
		p.noteRecorded()
		replace()
	}
	e.connection.mu.Unlock()
	for _, text := range turns {
		p.end(p.startRun("s", "demo", text))
	}
	return e
}

// noteRecorded notes the executions of calls with a recorded result.
func (p *twoTurns) noteRecorded() {
	recorded := p.recordedResults("s")
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range recorded {
		p.recorded[id] = p.runs[id]
	}
}

// verify checks that messages, stream and effects are complete and not doubled.
func (p *twoTurns) verify() {
	p.t.Helper()
	p.verifyEffects()
	p.verifyMessages()
	p.verifyStream()
	p.verifyClaims()
}

// verifyClaims checks that each claim begins with its own first attempt.
func (p *twoTurns) verifyClaims() {
	p.t.Helper()
	for epoch, r := range p.firstAppends("s") {
		record := r.GetRecords()[0]
		claim, attempt := p.traffic.claims[claimKey("s", epoch)], record.GetAttempt()
		first, _ := position.Attempts(claim.GetSession().GetClaims())
		want := position.Position{Step: claim.GetSession().GetStepCount() + 1, Attempt: first, N: 1}
		if got := position.Of(record.GetSequence()); attempt == nil || got != want || attempt.GetStands() != claim.GetSession().GetPosition() {
			p.t.Errorf("epoch %d begins with %v at %v, want an attempt at %v", epoch, r, got, want)
		}
		if lost := claim.GetRun().GetAttempt() > 1; lost != (attempt.GetReason() == "executor_lost") {
			p.t.Errorf("epoch %d, claim %d of the run, begins because of %q", epoch, claim.GetRun().GetAttempt(), attempt.GetReason())
		}
	}
	p.verifyAppends()
}

func (p *twoTurns) verifyEffects() {
	p.t.Helper()
	if p.runs["call_0"] > 1 {
		p.t.Errorf("charge ran %d times, want once at most", p.runs["call_0"])
	}
	for id, before := range p.recorded {
		if p.runs[id] != before {
			p.t.Errorf("call %s ran %d times, want %d: its result was recorded", id, p.runs[id], before)
		}
	}
	for id, keys := range p.keys {
		if len(keys) != 1 {
			p.t.Errorf("call %s had the keys %v, want one", id, keys)
		}
	}
	for _, run := range p.runsOf("s") {
		if run.GetStatus() != statev1.RunStatus_RUN_STATUS_COMPLETED {
			p.t.Errorf("run %s ended as %v: %v", run.GetRunId(), run.GetStatus(), run.GetFailure())
		}
	}
	// The last tool to end is not recorded. If charge does not run again, that is lookup.
	want := []string{"plan", "result", "commit 1", "commit 2", "commit 3"}
	got := slices.Clone(p.written("s"))
	if p.unknownCharge() && len(got) < len(want) {
		want = slices.Delete(want, 1, 2)
	}
	for i := range got {
		if strings.HasPrefix(got[i], "result ") {
			got[i] = "result"
		}
	}
	if !slices.Equal(got, want) {
		p.t.Errorf("writes = %v, want %v", got, want)
	}
}

func (p *twoTurns) verifyMessages() {
	p.t.Helper()
	var got []string
	for _, stored := range p.messages("s") {
		got = append(got, describe(stored))
	}
	charged := "[result call_0 done]"
	if p.unknownCharge() {
		charged = "[result call_0 unknown]"
	}
	want := []string{
		"user: first", "assistant: (Hm, three.) Let me see. [call_0 charge] [call_1 lookup] [call_2 nothing]",
		"tool: " + charged, "tool: [result call_1 done]", "tool: [result call_2 failed]",
		"assistant: All is done.", "user: second", "assistant: Bye.",
	}
	if !slices.Equal(got, want) {
		p.t.Errorf("messages:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// unknownCharge reports whether the result of charge was lost with an executor.
func (p *twoTurns) unknownCharge() bool {
	for _, stored := range p.messages("s") {
		for _, part := range stored.GetParts() {
			if r := part.GetToolResult(); r.GetToolCallId() == "call_0" && strings.Contains(r.GetError(), "not known") {
				return true
			}
		}
	}
	return false
}

func (p *twoTurns) verifyStream() {
	p.t.Helper()
	got := streamLines(p.records("s"))
	want := expectedLines()
	if !slices.Equal(got, want) {
		p.t.Errorf("stream:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	p.verifyReaders("s")
}

// expectedLines describes the stream of the two turns.
func expectedLines() []string {
	return []string{
		"0 run_started 1", "1 step_started", "1 thinking Hm, three.", "1 text Let me see.",
		`1 args call_0 {"amount":1}`, `1 args call_1 {"q":"x"}`, "1 args call_2 {}",
		"1 start call_0", "1 start call_1", "1 end call_0", "1 end call_1", "1 end call_2", "1 step_committed",
		"2 step_started", "2 text All is done.", "2 step_committed", `2 run_completed "All is done."`, `END "All is done."`,
		"2 run_started 2", "3 step_started", "3 text Bye.", "3 step_committed", `3 run_completed "Bye."`, `END "Bye."`,
	}
}

// countCalls counts the calls without failures.
func countCalls(t *testing.T) int {
	t.Helper()
	calls := 0
	synctest.Test(t, func(t *testing.T) {
		p := newTwoTurns(t)
		e := p.runTurns(nil, "first", "second")
		p.verify()
		var reader publishertest.Reader
		if reader.Read(p.history("s")...); len(reader.ReadStored) > 0 || reader.Cursor != position.Ended(3) {
			t.Errorf("a live reader asked for %v, want it to see both turns live", reader.ReadStored)
		}
		if p.plans != 1 || p.unknownCharge() {
			t.Errorf("%d plans, charge unknown = %v; want 1, false", p.plans, p.unknownCharge())
		}
		calls = e.connection.count()
	})
	if calls < 15 {
		t.Fatalf("the play has %d calls only", calls)
	}
	return calls
}

// runEach plays once for each call, with the verdict. A play may end before its call, since appends merge
// deltas.
func runEach(t *testing.T, v verdict, check func(t *testing.T, p *twoTurns)) {
	t.Helper()
	for n, most := 0, countCalls(t); n <= most; n += stride {
		synctest.Test(t, func(t *testing.T) {
			p := newTwoTurns(t)
			hit := ""
			p.runTurns(func(call int, method string) verdict {
				if call == n {
					hit = method
					return v
				}
				return pass
			}, "first", "second")
			p.verify()
			if hit != "" {
				check(t, p)
			}
			if t.Failed() {
				t.Fatalf("at call %d (%s)", n, hit)
			}
		})
	}
}

func TestAFailedCallIsRetriedAndNothingIsDoubled(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]verdict{"before its effect": failBefore, "after its effect": failAfter} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runEach(t, v, func(t *testing.T, p *twoTurns) {
				if p.plans != 1 || p.runs["call_0"] != 1 || p.runs["call_1"] != 1 {
					t.Errorf("%d plans and the executions %v, want one each", p.plans, p.runs)
				}
			})
		})
	}
}

func TestALogThatIsLostAtAnyCallIsShownTheStepInFlightAgain(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(p *twoTurns){
		"whole":       func(p *twoTurns) { p.loseLog() },
		"last record": func(p *twoTurns) { p.loseAppends(1) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for n, most := 0, countCalls(t); n <= most; n += stride {
				synctest.Test(t, func(t *testing.T) {
					p := newTwoTurns(t)
					p.runTurns(func(call int, _ string) verdict {
						if call == n {
							lose(p)
						}
						return pass
					}, "first", "second")
					p.verify()
					if t.Failed() {
						t.Fatalf("at call %d", n)
					}
				})
			}
		})
	}
}

func TestALogThatIsLostAndAnExecutorThatDiesSoonAfterLoseNothing(t *testing.T) {
	t.Parallel()
	for n, most := 0, countCalls(t); n <= most; n += stride {
		for later := 1; later <= 3; later++ {
			synctest.Test(t, func(t *testing.T) {
				p := newTwoTurns(t)
				p.runTurns(func(call int, _ string) verdict {
					switch call {
					case n:
						p.loseLog()
					case n + later:
						return dieAfter
					}
					return pass
				}, "first", "second")
				p.verify()
				if t.Failed() {
					t.Fatalf("lost at call %d, dead %d calls later", n, later)
				}
			})
		}
	}
}

func TestAnExecutorThatDiesAtAnyCallIsReplacedAndNothingIsLostOrDoubled(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]verdict{"before its effect": dieBefore, "after its effect": dieAfter} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runEach(t, v, func(t *testing.T, p *twoTurns) {
				if len(p.announced()) < p.executors {
					t.Errorf("%d announcements of %d executors", len(p.announced()), p.executors)
				}
			})
		})
	}
}

func TestAFailedRunSaysSoOnceWhereverItsExecutorDies(t *testing.T) {
	t.Parallel()
	const most = 16 // calls of a play, and a few more
	for _, v := range []verdict{failBefore, failAfter, dieBefore, dieAfter} {
		for n := 0; n < most; n += stride {
			synctest.Test(t, func(t *testing.T) {
				p := newTwoTurns(t)
				p.runTurns(func(call int, _ string) verdict {
					if call == n {
						return v
					}
					return pass
				}, "fail", "second")
				got := streamLines(p.records("s"))
				got = slices.DeleteFunc(got, func(line string) bool { return strings.HasSuffix(line, " step_started") })
				want := []string{
					"0 run_started 1", "1 text I c", "1 step_committed", "1 error", "END The agent may not use its model.",
					"1 run_started 2", "2 text Bye.", "2 step_committed", `2 run_completed "Bye."`, `END "Bye."`,
				}
				if !slices.Equal(got, want) {
					t.Errorf("stream:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
				failure := p.runsOf("s")[0].GetFailure()
				if failure.GetCode() != model.CodeDenied || strings.Contains(failure.GetError(), "secret") || !strings.Contains(failure.GetDetail(), "secret") {
					t.Errorf("failure = %v, want its code, a sentence for users and the cause for developers", failure)
				}
				if kept := p.messages("s")[1]; kept.GetMetadata()[agent.MetadataFailed] != model.CodeDenied {
					t.Errorf("the answer is %v, want the part of the failed reply", kept)
				}
				if t.Failed() {
					t.Fatalf("verdict %d at call %d", v, n)
				}
			})
		}
	}
}
