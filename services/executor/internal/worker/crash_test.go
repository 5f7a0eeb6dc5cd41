package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/position"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/publisher/publishertest"
)

// rehearsal is one play of the same two turns: a turn with a failing model call,
// reasoning and three calls, and a turn of text.
type rehearsal struct {
	*house
	mu       sync.Mutex
	tripped  bool           // the model has failed once
	runs     map[string]int // executions by call id
	keys     map[string]map[string]bool
	plans    int            // replies with calls that came to their end
	recorded map[string]int // executions of calls that had a result when an executor died
}

func newRehearsal(t *testing.T) *rehearsal {
	p := &rehearsal{runs: map[string]int{}, keys: map[string]map[string]bool{}, recorded: map[string]int{}}
	tool := func(name string, retry agent.Retry) agent.Tool {
		return agent.Tool{Name: name, InputSchema: anyObject, Retry: retry, Execute: p.execute}
	}
	p.house = newHouse(t, definition("demo", mind(p.think), tool("charge", agent.RetryNever), tool("lookup", agent.RetrySafe)))
	p.config.DrainGrace = 1
	return p
}

func (p *rehearsal) execute(_ context.Context, c *agent.Call) (any, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.runs[c.ID]++
	if p.keys[c.ID] == nil {
		p.keys[c.ID] = map[string]bool{}
	}
	p.keys[c.ID][c.IdempotencyKey] = true
	return "done " + c.ID, nil
}

func (p *rehearsal) think(_ context.Context, r model.Request, say func(model.Event) bool) error {
	switch {
	case r.Messages[len(r.Messages)-1].Text() == "second":
		speak(say, "Bye", ".")
	case r.Messages[len(r.Messages)-1].Text() == "fail":
		say(model.TextDelta{Text: "I c"})
		return &model.Error{Code: model.CodeDenied, Message: "secret of the provider"}
	case answered(r):
		if p.trip() {
			say(model.TextDelta{Text: "All is d"})
			return &model.Error{Code: model.CodeOverloaded, Retryable: true}
		}
		speak(say, "All ", "is done.")
	default:
		for _, e := range []model.Event{
			model.ReasoningDelta{Text: "Hm, "}, model.ReasoningDelta{Text: "three."}, model.ReasoningEnd{},
			model.TextDelta{Text: "Let me "}, model.TextDelta{Text: "see."},
		} {
			say(e)
		}
		request(say, "charge", `{"amount":1}`, "lookup", `{"q":"x"}`, "nothing", `{}`)
		p.mu.Lock()
		p.plans++
		p.mu.Unlock()
	}
	return nil
}

func (p *rehearsal) trip() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := !p.tripped
	p.tripped = true
	return first
}

// play plays the turns, each with its user message. When the executor dies, another one goes on.
func (p *rehearsal) play(decide func(call int, method string) verdict, turns ...string) *executor {
	var faults []func(int, string) verdict
	if decide != nil {
		faults = append(faults, decide)
	}
	e := p.open(faults...)
	died := false
	e.line.mu.Lock()
	e.line.onDead = func() {
		e.stop()
		p.note()
		p.state.mu.Lock()
		died = true
		p.state.mu.Unlock()
		p.state.silence(e.id)
	}
	e.line.mu.Unlock()
	for _, text := range turns {
		run := p.state.startRun("s", "demo", text)
		lost := false // the executor may also die behind the end of the run
		err := p.state.await(p.t.Context(), func() bool {
			lost = died && p.workers == 1
			return lost || !p.state.find(run).live()
		})
		if err != nil {
			p.t.Fatal(err)
		}
		if lost {
			p.open()
		}
		p.ended(run)
	}
	return e
}

// note keeps how often calls had run whose result is recorded.
func (p *rehearsal) note() {
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, result := range p.state.sessions["s"].journal.GetResults() {
		id := result.GetResult().GetToolCallId()
		p.recorded[id] = p.runs[id]
	}
}

// verify checks that messages, stream and effects are whole, and everything once.
func (p *rehearsal) verify() {
	p.t.Helper()
	p.verifyEffects()
	p.verifyMessages()
	p.verifyStream()
	p.verifyClaims()
}

// verifyClaims checks that each claim begins with the first attempt that is its own.
func (p *rehearsal) verifyClaims() {
	p.t.Helper()
	for epoch, r := range p.stream.First("s") {
		record := r.GetRecords()[0]
		claim, attempt := p.state.claimed[epoch], record.GetAttempt()
		first, _ := position.Attempts(claim.GetSession().GetClaims())
		want := position.Position{Step: claim.GetSession().GetStepCount() + 1, Attempt: first, N: 1}
		if got := position.Of(record.GetSequence()); attempt == nil || got != want || attempt.GetStands() != claim.GetSession().GetPosition() {
			p.t.Errorf("epoch %d begins with %v at %v, want an attempt at %v", epoch, r, got, want)
		}
		if lost := claim.GetRun().GetAttempt() > 1; lost != (attempt.GetReason() == "executor_lost") {
			p.t.Errorf("epoch %d, claim %d of the run, begins because of %q", epoch, claim.GetRun().GetAttempt(), attempt.GetReason())
		}
	}
	if faults := p.stream.Faults(); len(faults) > 0 {
		p.t.Errorf("the publishers broke the rules: %v", faults)
	}
}

func (p *rehearsal) verifyEffects() {
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
	for _, run := range p.state.order {
		if run.run.GetStatus() != statev1.RunStatus_RUN_STATUS_COMPLETED {
			p.t.Errorf("run %s ended as %v: %v", run.run.GetRunId(), run.run.GetStatus(), run.run.GetFailure())
		}
	}
	// Of the two tools the one that ends last is not recorded. Where charge does not run again,
	// that is lookup.
	want := []string{"plan", "result", "commit 1", "commit 2", "commit 3"}
	got := slices.Clone(p.state.sessions["s"].writes)
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

func (p *rehearsal) verifyMessages() {
	p.t.Helper()
	var got []string
	for _, stored := range p.state.sessions["s"].messages {
		got = append(got, describe(stored.GetMessage()))
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
func (p *rehearsal) unknownCharge() bool {
	for _, stored := range p.state.sessions["s"].messages {
		for _, part := range stored.GetMessage().GetParts() {
			if r := part.GetToolResult(); r.GetToolCallId() == "call_0" && strings.Contains(r.GetError(), "not known") {
				return true
			}
		}
	}
	return false
}

func describe(m *eventv1.Message) string {
	words := []string{strings.ToLower(strings.TrimPrefix(m.GetRole().String(), "ROLE_")) + ":"}
	for _, part := range m.GetParts() {
		switch {
		case part.GetText() != nil:
			words = append(words, part.GetText().GetText())
		case part.GetReasoning() != nil:
			words = append(words, "("+part.GetReasoning().GetText()+")")
		case part.GetToolCall() != nil:
			words = append(words, fmt.Sprintf("[%s %s]", part.GetToolCall().GetToolCallId(), part.GetToolCall().GetToolName()))
		case part.GetToolResult() != nil:
			words = append(words, outcome(part.GetToolResult()))
		}
	}
	return strings.Join(words, " ")
}

func outcome(r *eventv1.ToolResultPart) string {
	how := "failed"
	var value string
	switch {
	case r.GetSuccess() && json.Unmarshal([]byte(r.GetResult()), &value) == nil && value == "done "+r.GetToolCallId():
		how = "done"
	case strings.Contains(r.GetError(), "not known"):
		how = "unknown"
	}
	if v := r.GetApproval(); v != nil {
		how += ", " + map[bool]string{true: "approved", false: "refused"}[v.GetApproved()]
		if v.GetReason() != "" {
			how += ": " + v.GetReason()
		}
	}
	return fmt.Sprintf("[result %s %s]", r.GetToolCallId(), how)
}

func (p *rehearsal) verifyStream() {
	p.t.Helper()
	got := script(p.stream.records("s"))
	want := wholeScript()
	if !slices.Equal(got, want) {
		p.t.Errorf("stream:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	p.verifyReaders("s")
}

// wholeScript is what the stream of the two turns says.
func wholeScript() []string {
	return []string{
		"0 run_started 1", "1 step_started", "1 thinking Hm, three.", "1 text Let me see.",
		`1 args call_0 {"amount":1}`, `1 args call_1 {"q":"x"}`, "1 args call_2 {}",
		"1 start call_0", "1 start call_1", "1 end call_0", "1 end call_1", "1 end call_2", "1 step_committed",
		"2 step_started", "2 text All is done.", "2 step_committed", `2 run_completed "All is done."`, `END "All is done."`,
		"2 run_started 2", "3 step_started", "3 text Bye.", "3 step_committed", `3 run_completed "Bye."`, `END "Bye."`,
	}
}

// verifyReaders checks that a reader that was there all the time has the same as one that
// comes when everything is over, and that no publisher broke the rules.
func (h *house) verifyReaders(sessionID string) {
	h.t.Helper()
	if got, want := comparable(h.stream.records(sessionID)), comparable(h.stream.stored(sessionID)); !slices.Equal(got, want) {
		h.t.Errorf("a live reader has:\n%s\nbut stored is:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if faults := h.stream.Faults(); len(faults) > 0 {
		h.t.Errorf("the publishers broke the rules: %v", faults)
	}
}

// comparable is the script without what only the live stream has: events before the first
// step stand before its step_started there, and runs name the one that they go on from.
func comparable(frames []frame) []string {
	lines := slices.DeleteFunc(script(frames), func(line string) bool { return strings.HasSuffix(line, " custom") })
	for i, line := range lines {
		if before, _, ok := strings.Cut(line, " run_resumed "); ok {
			lines[i] = before + " run_resumed"
		}
	}
	return lines
}

// script is the stream in lines: deltas joined, ends of calls, which come in any
// order, sorted.
func script(records []frame) []string {
	var lines []string
	ends := 0 // of calls, at the end of lines
	for _, r := range records {
		line, joins := scriptLine(r)
		switch {
		case line == "":
			continue
		case joins && len(lines) > 0 && sameBlock(lines[len(lines)-1], line):
			lines[len(lines)-1] += line[strings.LastIndex(line, "\x00")+1:]
			continue
		}
		if strings.Contains(line, " end ") {
			ends++
		} else {
			ends = 0
		}
		lines = append(lines, line)
		slices.Sort(lines[len(lines)-ends:])
	}
	for i := range lines {
		lines[i] = strings.ReplaceAll(lines[i], "\x00", "")
	}
	return lines
}

func sameBlock(last, next string) bool {
	a, _, ok := strings.Cut(last, "\x00")
	b, _, _ := strings.Cut(next, "\x00")
	return ok && a == b
}

// scriptLine puts a NUL between the block and the text of a delta.
func scriptLine(r frame) (line string, joins bool) {
	if t := r.GetTerminal(); t != nil {
		how := ""
		if status := t.GetEnd().GetStatus(); status > streamv2.EndStatus_END_STATUS_COMPLETED {
			how = strings.TrimPrefix(status.String(), "END_STATUS_") + " "
		}
		return "END " + how + t.GetEnd().GetOutput() + t.GetFail().GetError(), false
	}
	c := r.GetChunk()
	switch e := c.GetEvent().(type) {
	case *eventv1.Chunk_TextDelta:
		return fmt.Sprintf("%d text \x00%s", c.GetStep(), e.TextDelta.GetDelta()), true
	case *eventv1.Chunk_Thinking:
		return fmt.Sprintf("%d thinking \x00%s", c.GetStep(), e.Thinking.GetContent()), true
	case *eventv1.Chunk_ToolArgStreamStart:
		return fmt.Sprintf("%d args %s \x00", c.GetStep(), e.ToolArgStreamStart.GetToolCallId()), false
	case *eventv1.Chunk_ToolArgStreamDelta:
		return fmt.Sprintf("%d args %s \x00%s", c.GetStep(), e.ToolArgStreamDelta.GetToolCallId(), e.ToolArgStreamDelta.GetDelta()), true
	case *eventv1.Chunk_ToolArgStreamEnd:
		return "", false
	case *eventv1.Chunk_ToolStart:
		line := fmt.Sprintf("%d start %s", c.GetStep(), e.ToolStart.GetToolCallId())
		if e.ToolStart.GetAwaitsClient() {
			line += " for a client"
		}
		return line, false
	case *eventv1.Chunk_ToolEnd:
		return fmt.Sprintf("%d end %s", c.GetStep(), e.ToolEnd.GetToolCallId()), false
	case *eventv1.Chunk_RunStarted:
		return fmt.Sprintf("%d run_started %d", c.GetStep(), e.RunStarted.GetTurn()), false
	case *eventv1.Chunk_RunResumed:
		return fmt.Sprintf("%d run_resumed %s %d", c.GetStep(), e.RunResumed.GetPreviousRunId(), e.RunResumed.GetTurn()), false
	case *eventv1.Chunk_RunSuspended:
		return fmt.Sprintf("%d run_suspended %s", c.GetStep(), e.RunSuspended.GetReason()), false
	case *eventv1.Chunk_RunInterrupted:
		return fmt.Sprintf("%d run_interrupted %s", c.GetStep(), e.RunInterrupted.GetReason()), false
	case *eventv1.Chunk_ToolApprovalRequest:
		return fmt.Sprintf("%d asked %s", c.GetStep(), e.ToolApprovalRequest.GetToolCallId()), false
	case *eventv1.Chunk_ToolApprovalResponse:
		return fmt.Sprintf("%d judged %s %s", c.GetStep(), e.ToolApprovalResponse.GetToolCallId(), e.ToolApprovalResponse.GetDecision()), false
	case *eventv1.Chunk_RunCompleted:
		return fmt.Sprintf("%d run_completed %s", c.GetStep(), e.RunCompleted.GetOutput()), false
	}
	return fmt.Sprintf("%d %s", c.GetStep(), c.Type()), false
}

// callsOfPlay counts the calls of a play in which nothing fails.
func callsOfPlay(t *testing.T) int {
	t.Helper()
	calls := 0
	synctest.Test(t, func(t *testing.T) {
		p := newRehearsal(t)
		e := p.play(nil, "first", "second")
		p.verify()
		var reader publishertest.Reader
		if reader.Read(p.stream.History("s")...); len(reader.Asked) > 0 || reader.Cursor != position.Ended(3) {
			t.Errorf("a live reader asked for %v, want it to see all of the two turns", reader.Asked)
		}
		if p.plans != 1 || p.unknownCharge() {
			t.Errorf("%d plans, charge unknown = %v; want 1, false", p.plans, p.unknownCharge())
		}
		e.line.mu.Lock()
		defer e.line.mu.Unlock()
		calls = e.line.calls
	})
	if calls < 15 {
		t.Fatalf("the play has %d calls only", calls)
	}
	return calls
}

// playEach plays once for each call, which gets the verdict. How many appends there
// are depends on how deltas meet, so a play may end before its call.
func playEach(t *testing.T, v verdict, check func(t *testing.T, p *rehearsal)) {
	t.Helper()
	for n := range callsOfPlay(t) + 1 {
		synctest.Test(t, func(t *testing.T) {
			p := newRehearsal(t)
			hit := ""
			p.play(func(call int, method string) verdict {
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

func TestACallThatFailsIsMadeAgainAndNothingIsDoubled(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]verdict{"before its effect": failBefore, "after its effect": failAfter} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			playEach(t, v, func(t *testing.T, p *rehearsal) {
				if p.plans != 1 || p.runs["call_0"] != 1 || p.runs["call_1"] != 1 {
					t.Errorf("%d plans and the executions %v, want one each", p.plans, p.runs)
				}
			})
		})
	}
}

func TestALogThatIsLostAtAnyCallIsShownTheStepInFlightAgain(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(p *rehearsal){
		"whole":       func(p *rehearsal) { p.stream.Lose() },
		"last record": func(p *rehearsal) { p.stream.LoseTail(1) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for n := range callsOfPlay(t) + 1 {
				synctest.Test(t, func(t *testing.T) {
					p := newRehearsal(t)
					p.play(func(call int, _ string) verdict {
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
	for n := range callsOfPlay(t) + 1 {
		for later := 1; later <= 3; later++ {
			synctest.Test(t, func(t *testing.T) {
				p := newRehearsal(t)
				p.play(func(call int, _ string) verdict {
					switch call {
					case n:
						p.stream.Lose()
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
			playEach(t, v, func(t *testing.T, p *rehearsal) {
				if len(p.state.announced) < p.workers {
					t.Errorf("%d announcements of %d executors", len(p.state.announced), p.workers)
				}
			})
		})
	}
}

func TestAFailedRunSaysSoOnceWhereverItsExecutorDies(t *testing.T) {
	t.Parallel()
	const most = 16 // calls of the play, with some to spare
	for _, v := range []verdict{failBefore, failAfter, dieBefore, dieAfter} {
		for n := range most {
			synctest.Test(t, func(t *testing.T) {
				p := newRehearsal(t)
				p.play(func(call int, _ string) verdict {
					if call == n {
						return v
					}
					return pass
				}, "fail", "second")
				got := script(p.stream.records("s"))
				got = slices.DeleteFunc(got, func(line string) bool { return strings.HasSuffix(line, " step_started") })
				want := []string{
					"0 run_started 1", "1 text I c", "1 step_committed", "1 error", "END The agent may not use its model.",
					"1 run_started 2", "2 text Bye.", "2 step_committed", `2 run_completed "Bye."`, `END "Bye."`,
				}
				if !slices.Equal(got, want) {
					t.Errorf("stream:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
				failure := p.state.order[0].run.GetFailure()
				if failure.GetCode() != model.CodeDenied || strings.Contains(failure.GetError(), "secret") || !strings.Contains(failure.GetDetail(), "secret") {
					t.Errorf("failure = %v, want its code, a sentence for users and the cause for developers", failure)
				}
				if kept := p.state.sessions["s"].messages[1].GetMessage(); kept.GetMetadata()[agent.MetadataFailed] != model.CodeDenied {
					t.Errorf("the message behind the question is %v, want what came of the reply that has failed", kept)
				}
				if t.Failed() {
					t.Fatalf("verdict %d at call %d", v, n)
				}
			})
		}
	}
}
