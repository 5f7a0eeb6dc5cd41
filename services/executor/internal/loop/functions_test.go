package loop_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

func TestAPromptThatPanicsFailsTheRun(t *testing.T) {
	t.Parallel()
	p := loop.New(loop.Start{Agent: agent.Agent{Name: "helper", Model: "t/m", Prompt: func(s agent.State) string {
		return s["name"].(string) // missing
	}}})
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

func TestAPromptThatPanicsInALaterStepFailsTheRunBehindTheCommit(t *testing.T) {
	t.Parallel()
	calls := 0
	p := loop.New(loop.Start{Agent: agent.Agent{Model: "t/m", Prompt: func(agent.State) string {
		if calls++; calls > 1 {
			panic("oh")
		}
		return "Be brief."
	}}})
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
	p := loop.New(loop.Start{Agent: agent.Agent{Model: "t/m", StopWhen: func(agent.Progress) bool { panic("oh") }}})
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
			Agent:      agent.Agent{Model: "t/m", Context: agent.ContextPolicy{MaxTokens: 250, Count: count}},
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
		CallFunction: func(what string, _ func() any) (any, error) {
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
		Agent:        agent.Agent{Model: "t/m", StopWhen: func(agent.Progress) bool { return true }},
		CallFunction: func(string, func() any) (any, error) { return nil, errors.Join(loop.ErrAbandoned, cut) },
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
	p := loop.New(loop.Start{Agent: agent.Agent{Model: "t/m", MaxSteps: agent.NoMaxSteps, StopWhen: func(agent.Progress) bool { panic("oh") }}})
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
