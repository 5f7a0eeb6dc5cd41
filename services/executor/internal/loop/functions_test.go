package loop_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// callDirectly calls a function on the goroutine of the test, and turns a panic into an error.
func callDirectly(_ string, f func(ctx context.Context) (any, error)) (answer any, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("it panicked: %v", cause)
		}
	}()
	return f(context.Background())
}

// panics is a StopWhen.
func panics(context.Context, *agent.Progress) (bool, error) { panic("oh") }

func TestAPromptThatPanicsFailsTheRun(t *testing.T) {
	t.Parallel()
	p := loop.New(loop.Start{Agent: agent.Agent{Name: "helper", Model: "t/m", Prompt: func(_ context.Context, run *agent.RunView) (string, error) {
		return run.State["name"].(string), nil // missing
	}}, CallFunction: callDirectly})
	finish, ok := p.Next().(loop.Finish)
	if !ok || finish.Outcome.Status != loop.StatusFailed || finish.Outcome.Failure == nil {
		t.Fatalf("next = %#v, want the end of a failed run", p.Next())
	}
	if f := finish.Outcome.Failure; f.Code != loop.CodeInternal || !strings.Contains(f.Detail, `the Prompt function of the agent "helper" has given no answer: it panicked`) {
		t.Errorf("failure = %+v, want one that names the function", f)
	}
	p.Finished()
	if _, done := p.Next().(loop.Done); !done {
		t.Errorf("next = %#v, want Done", p.Next())
	}
}

func TestTheInstructionsOfACallerStandBehindTheSystemPrompt(t *testing.T) {
	t.Parallel()
	kind := func(context.Context, *agent.RunView) (string, error) { return "Be kind.", nil }
	for _, c := range []struct {
		agent agent.Agent
		want  string
	}{
		{agent.Agent{Model: "t/m", SystemPrompt: "Be brief."}, "Be brief.\n\nSpeak French."},
		{agent.Agent{Model: "t/m", Prompt: kind}, "Be kind.\n\nSpeak French."},
		{agent.Agent{Model: "t/m"}, "Speak French."},
	} {
		p := loop.New(loop.Start{Agent: c.agent, Caller: loop.CallerInput{Instructions: "Speak French."}, CallFunction: callDirectly})
		if system := p.Next().(loop.CallModel).Request.System; system != c.want {
			t.Errorf("system = %q, want %q", system, c.want)
		}
	}
}

func TestAPromptThatPanicsInALaterStepFailsTheRunBehindTheCommit(t *testing.T) {
	t.Parallel()
	calls := 0
	p := loop.New(loop.Start{Agent: agent.Agent{Model: "t/m", Prompt: func(context.Context, *agent.RunView) (string, error) {
		if calls++; calls > 1 {
			panic("oh")
		}
		return "Be brief.", nil
	}}, CallFunction: callDirectly})
	if system := p.Next().(loop.CallModel).Request.System; system != "Be brief." {
		t.Errorf("system = %q, want that of the function", system)
	}
	callOnce(t, p)
	p.Committed()
	if finish, ok := p.Next().(loop.Finish); !ok || finish.Outcome.Status != loop.StatusFailed {
		t.Errorf("next = %#v, want the end of a failed run", p.Next())
	}
}

// callOnce takes a run through a step with a refused call to its commit.
func callOnce(t *testing.T, p *loop.Planner) loop.Commit {
	t.Helper()
	r := p.NewReply()
	add(t, r, model.CallStart{ID: "a", Name: "none"}, model.CallEnd{Arguments: json.RawMessage(`{}`)}, model.Finish{Reason: model.FinishToolCalls})
	p.Replied(r)
	p.Ended(endsOf(p.Next().(loop.RunCalls), nil))
	return p.Next().(loop.Commit)
}

func TestAStopWhenThatPanicsDoesNotStop(t *testing.T) {
	t.Parallel()
	p := loop.New(loop.Start{Agent: agent.Agent{Model: "t/m", StopWhen: panics}, CallFunction: callDirectly})
	if commit := callOnce(t, p); commit.Outcome != nil {
		t.Errorf("outcome = %+v, want none", commit.Outcome)
	}
	p.Committed()
	if _, ok := p.Next().(loop.CallModel); !ok {
		t.Errorf("next = %#v, want the next step", p.Next())
	}
}

func TestACountThatPanicsIsThatOfTheRuntime(t *testing.T) {
	t.Parallel()
	say := func(role agent.Role, id, text string) agent.Message {
		return agent.Message{ID: id, Role: role, Parts: []agent.Part{agent.Text{Text: text}}}
	}
	long := strings.Repeat("x", 400)
	shown := func(count func(agent.Message) int) []agent.Message {
		p := loop.New(loop.Start{
			Agent: agent.Agent{Model: "t/m", Context: agent.ContextPolicy{MaxTokens: 250, Count: count}}, CallFunction: callDirectly,
			Transcript: []agent.Message{say(agent.RoleUser, "1", long), say(agent.RoleAssistant, "2", long), say(agent.RoleUser, "3", long)},
		})
		return p.Next().(loop.CallModel).Request.Messages
	}
	plain := shown(nil)
	if len(plain) != 1 {
		t.Fatalf("%d messages are shown, want the last", len(plain))
	}
	if got := shown(func(agent.Message) int { panic("oh") }); !reflect.DeepEqual(got, plain) {
		t.Errorf("shown = %v, want what is shown without a function", got)
	}
	if got := shown(func(agent.Message) int { return 1 }); len(got) != 3 {
		t.Errorf("%d messages are shown, want that the function counts", len(got))
	}
}

func TestACountWithoutAnAnswerIsNotAskedForAgain(t *testing.T) {
	t.Parallel()
	asked := 0
	p := loop.New(loop.Start{
		Agent: agent.Agent{Model: "t/m", Context: agent.ContextPolicy{MaxTokens: 250, Count: func(agent.Message) int { return 1 }}},
		CallFunction: func(what string, _ func(context.Context) (any, error)) (any, error) {
			asked++
			return nil, errors.New(what + " is away")
		},
	})
	p.Next()
	callOnce(t, p)
	p.Committed()
	if _, ok := p.Next().(loop.CallModel); !ok || asked != 1 {
		t.Errorf("next = %#v, with %d questions, want the next step with one", p.Next(), asked)
	}
}

func TestWhereAFunctionWasCutTheStopDecidesWhatIsKept(t *testing.T) {
	t.Parallel()
	cut := errors.New("the context of the run has ended")
	p := loop.New(loop.Start{
		Agent: agent.Agent{Model: "t/m", StopWhen: panics},
		CallFunction: func(string, func(context.Context) (any, error)) (any, error) {
			return nil, errors.Join(loop.ErrAbandoned, cut)
		},
	})
	callOnce(t, p)
	p.Stopped(loop.Stop{Kind: loop.StopInterrupt}, nil)
	commit, ok := p.Next().(loop.Commit)
	if !ok || !commit.Incomplete || commit.Outcome == nil || commit.Outcome.Status != loop.StatusInterrupted || len(commit.Messages) != 2 {
		t.Errorf("next = %#v, want the end of the run with the calls and their results", p.Next())
	}
}

func TestARunWithoutACapOnItsStepsFailsWhereStopWhenGivesNoAnswer(t *testing.T) {
	t.Parallel()
	p := loop.New(loop.Start{Agent: agent.Agent{Model: "t/m", MaxSteps: agent.NoMaxSteps, StopWhen: panics}, CallFunction: callDirectly})
	if o := callOnce(t, p).Outcome; o == nil || o.Status != loop.StatusFailed || !strings.Contains(o.Failure.Detail, "StopWhen") {
		t.Errorf("outcome = %+v, want a failure that names the function", o)
	}
}

func TestARunWithoutACapGoesOnBehindAnyNumberOfSteps(t *testing.T) {
	t.Parallel()
	p := loop.New(loop.Start{Agent: agent.Agent{Model: "t/m", MaxSteps: agent.NoMaxSteps}})
	for range 2 * agent.DefaultMaxSteps {
		if commit := callOnce(t, p); commit.Outcome != nil {
			t.Fatalf("outcome = %+v, want none", commit.Outcome)
		}
		p.Committed()
	}
}

func TestAPromptThatFailsFailsTheRun(t *testing.T) {
	t.Parallel()
	p := loop.New(loop.Start{Agent: agent.Agent{Name: "helper", Model: "t/m", Prompt: func(context.Context, *agent.RunView) (string, error) {
		return "Be brief.", errors.New("the database is away")
	}}, CallFunction: callDirectly})
	finish, ok := p.Next().(loop.Finish)
	want := `the Prompt function of the agent "helper" has given no answer: the database is away`
	if !ok || finish.Outcome.Failure == nil || finish.Outcome.Failure.Detail != want {
		t.Errorf("next = %#v, want the end of a run that failed with %q", p.Next(), want)
	}
}

func TestAStopWhenThatFailsDoesNotStop(t *testing.T) {
	t.Parallel()
	p := loop.New(loop.Start{Agent: agent.Agent{Model: "t/m", StopWhen: func(context.Context, *agent.Progress) (bool, error) {
		return true, errors.New("oh")
	}}, CallFunction: callDirectly})
	if commit := callOnce(t, p); commit.Outcome != nil {
		t.Errorf("outcome = %+v, want none", commit.Outcome)
	}
}

// The host of a call that has not begun shows the state, and changes nothing.
func TestApproveWhenReadsTheStateAndCannotActForTheCall(t *testing.T) {
	t.Parallel()
	asked := 0
	decide := func(ctx context.Context, call *agent.Call) (bool, error) {
		asked++
		state := call.State()
		if got := state["n"]; got != json.Number("7") {
			t.Errorf("n = %v, want 7", got)
		}
		state["n"] = 8 // a copy
		update := call.Update(func(draft agent.State) error { t.Error("the change was called"); return nil })
		emit := call.Emit(ctx, "progress", 1)
		for _, err := range []error{update, emit} {
			if fault.ReasonOf(err) != "CALL_ENDED" || !strings.Contains(err.Error(), "has not begun") {
				t.Errorf("the call did something: %v", err)
			}
		}
		call.RecordUsage("kind", "name", 1)
		return false, errors.New("nobody knows")
	}
	state := must(agent.ParseState([]byte(`{"n":7}`)))
	p := loop.New(loop.Start{
		Agent: agent.Agent{Model: "t/m", Tools: []agent.Tool{{
			Name: "pay", InputSchema: json.RawMessage(`{"type":"object"}`), ApproveWhen: decide,
		}}},
		State: state, CallFunction: callDirectly,
	})
	p.Next()
	r := p.NewReply()
	add(t, r, model.CallStart{ID: "a", Name: "pay"}, model.CallEnd{Arguments: json.RawMessage(`{}`)}, model.Finish{Reason: model.FinishToolCalls})
	p.Replied(r)
	commit, ok := p.Next().(loop.Commit)
	if !ok || asked != 1 || len(commit.Suspend) != 1 || !commit.Suspend[0].Approval {
		t.Errorf("next = %#v after %d calls of the function, want a call that waits for a human", p.Next(), asked)
	}
	if state["n"] != json.Number("7") {
		t.Errorf("the state is %v after the function, want it unchanged", state)
	}
}

// Each function of an agent gets the facts of the run, in a copy of its own.
func TestFunctionsGetTheFactsOfTheRun(t *testing.T) {
	t.Parallel()
	want := agent.RunView{
		Tenant: "acme", SessionID: "s", ParentSessionID: "p", RunID: "r", AgentType: "helper", UserID: "u",
		Tags: []string{"vip"}, Metadata: map[string]string{"plan": "gold"}, Turn: 3, Step: 5, State: agent.State{"n": json.Number("7")},
	}
	var seen []string
	see := func(function string, got agent.RunView) {
		seen = append(seen, function)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s got %+v, want %+v", function, got, want)
		}
		got.Tags[0], got.Metadata["plan"] = "changed", "changed"
	}
	a := agent.Agent{
		Name: "helper", Model: "t/m",
		Prompt: func(_ context.Context, run *agent.RunView) (string, error) { see("Prompt", *run); return "", nil },
		StopWhen: func(_ context.Context, p *agent.Progress) (bool, error) {
			see("StopWhen", p.RunView)
			if p.Steps != 1 || len(p.Results) != 1 {
				t.Errorf("progress = %+v, want one step with its result", p)
			}
			return false, nil
		},
		Tools: []agent.Tool{{
			Name: "look", ReadOnly: true, InputSchema: json.RawMessage(`{"type":"object"}`),
			ApproveWhen: func(_ context.Context, c *agent.Call) (bool, error) {
				see("ApproveWhen", agent.RunView{
					Tenant: c.Tenant, SessionID: c.SessionID, ParentSessionID: c.ParentSessionID, RunID: c.RunID, AgentType: c.AgentType,
					UserID: c.UserID, Tags: c.Tags, Metadata: c.Metadata, Turn: c.Turn, Step: c.Step, State: c.State(),
				})
				if !strings.HasPrefix(c.ID, "a_") || c.Tool != "look" || c.IdempotencyKey == "" || string(c.Input) != `{"x":1}` {
					t.Errorf("call = %+v, want that of the model", c)
				}
				return false, nil
			},
		}},
		Guard: agent.Guard{OnReply: noGuard},
		Context: agent.ContextPolicy{
			MaxTokens: 20, KeepTokens: 1, Compaction: agent.CompactSummary, Count: func(agent.Message) int { return 10 },
			Compact: func(context.Context, *agent.RunView, []agent.Message) (string, error) { return "", nil },
		},
	}
	p := loop.New(loop.Start{
		Run:     loop.Run{Tenant: "acme", SessionID: "s", RunID: "r"},
		Session: loop.Session{ParentID: "p", UserID: "u", Tags: []string{"vip"}, Metadata: map[string]string{"plan": "gold"}},
		Agent:   a, State: want.State, Turn: 3, SessionSteps: 4, CallFunction: callDirectly,
		Transcript: []agent.Message{userSays("1", "a"), userSays("2", "b"), userSays("3", "c")}, Begin: 2,
	})
	// callModel goes to the next call of the model. A summary before it is committed as a step.
	callModel := func() {
		for {
			switch e := p.Next().(type) {
			case loop.Compact:
				see("Compact", e.Run)
				p.Compacted("so far")
			case loop.Commit:
				p.Committed()
				want.Step++
			case loop.CallModel:
				return
			default:
				t.Fatalf("next = %#v, want a call of the model", e)
			}
		}
	}
	callModel()
	r := p.NewReply()
	add(t, r, model.CallStart{ID: "a", Name: "look"}, model.CallEnd{Arguments: json.RawMessage(`{"x":1}`)}, model.Finish{Reason: model.FinishToolCalls})
	p.Replied(r)
	p.Ended(endsOf(p.Next().(loop.RunCalls), nil))
	callModel()
	r = p.NewReply()
	add(t, r, model.TextDelta{Text: "ok"}, model.Finish{Reason: model.FinishStop})
	p.Replied(r)
	if e, ok := p.Next().(loop.Guard); ok {
		see("the guard", e.Ending.RunView)
	}
	slices.Sort(seen)
	if got := strings.Join(slices.Compact(seen), " "); got != "ApproveWhen Compact Prompt StopWhen the guard" {
		t.Errorf("functions called: %s", got)
	}
}
