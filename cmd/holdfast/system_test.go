package main

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor"
)

const bubbleScript = `
models:
  down:
    rules: [{reply: [{error: {code: provider_unavailable}}]}]
  patient:
    rules:
      - when: {toolResult: transfer}
        reply: 'It says {{.LastResult}}.'
      - when: {toolResult: ask}
        reply: 'They say {{.LastResult}}.'
      - when: {lastUser: overloaded, attempts: 2}
        reply: [{error: {code: provider_overloaded, retryAfter: 45s}}]
      - when: {lastUser: unreachable, attempts: 3}
        reply: [{text: "half a "}, {error: {code: provider_unavailable}}]
      - when: {lastUser: long}
        reply: [{text: "one "}, {wait: 3h}, {text: "two "}, {wait: 3h}, {text: "three"}]
      - when: {lastUser: transfer}
        reply: [{call: {name: transfer, arguments: {}}}]
      - when: {lastUser: ask}
        reply: [{call: {name: ask, arguments: {}}}]
      - reply: "Yes."
`

// attempts are the idempotency keys of a tool's executions.
type attempts struct {
	mu   sync.Mutex
	keys []string
}

func (a *attempts) add(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keys = append(a.keys, key)
}

func (a *attempts) list() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.keys)
}

// patients is an executor with the agents of the file, and an agent whose tools take two hours and a human.
func patients(t *testing.T, transfers *attempts, retry agent.Retry, change ...func(*agent.Agent)) executor.Peers {
	t.Helper()
	model, err := executor.OpenModel(executor.ModelConfig{Provider: "scripted", Script: bubbleScript})
	if err != nil {
		t.Fatal(err)
	}
	clerk := agent.Agent{Name: "clerk", Model: "scripted/patient", Tools: []agent.Tool{
		{
			Name: "transfer", InputSchema: json.RawMessage(`{"type":"object"}`), Retry: retry, Timeout: 3 * time.Hour,
			Execute: func(ctx context.Context, call *agent.Call) (any, error) {
				transfers.add(call.IdempotencyKey)
				select {
				case <-time.After(2 * time.Hour):
					return "done", nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			},
		},
		{Name: "ask", InputSchema: json.RawMessage(`{"type":"object"}`), Client: true, AnswerWithin: 48 * time.Hour},
	}}
	for _, c := range change {
		c(&clerk)
	}
	registry := executor.NewRegistry()
	err = errors.Join(
		registry.Model("scripted", model),
		registry.Register(agent.Agent{Name: "patient", Model: "scripted/patient"}),
		registry.Register(clerk),
	)
	if err != nil {
		t.Fatal(err)
	}
	return executor.Peers{Registry: registry}
}

// patient is patients without counted tools.
func patient(t *testing.T, change ...func(*agent.Agent)) executor.Peers {
	t.Helper()
	return patients(t, &attempts{}, agent.RetryNever, change...)
}

func TestAModelThatIsOverloadedIsAskedAgainWhenItSaysAndTheRunCompletes(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, b *bubble) {
		b.join(patient(t))
		time.Sleep(time.Second) // fake, here and everywhere below
		begun := time.Now()
		b.start("s", "patient", "overloaded?")
		b.await("s", statev1.RunStatus_RUN_STATUS_COMPLETED)
		if waited := time.Since(begun); waited < 90*time.Second || waited > 2*time.Minute {
			t.Errorf("the run took %v, want two waits of 45s", waited)
		}
	})
}

// An executor with rare heartbeats, and a state service that expects no more, take less time under the race
// detector. Half an hour of silence is short for a test that takes half a day.
const (
	rareHeartbeats = "HOLDFAST_EXECUTOR_HEARTBEAT_INTERVAL=5m"
	longSilence    = "HOLDFAST_STATE_SILENT_AFTER=30m"
)

func TestARunOutlivesEveryExecutorThatVanishesUnderIt(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, b *bubble) {
		first := b.join(patient(t), rareHeartbeats)
		time.Sleep(time.Second)
		b.start("s", "patient", "a long story")
		for range 3 {
			time.Sleep(4 * time.Hour)
			next := b.join(patient(t), rareHeartbeats)
			first.vanish()
			first = next
		}
		b.await("s", statev1.RunStatus_RUN_STATUS_COMPLETED)
		if got, want := b.conversation("s"), []string{"user: a long story", "agent: one two three"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}, longSilence)
}

func TestAToolOfTwoHoursRunsAgainWithItsKeyOrIsSaidToBeUncertain(t *testing.T) {
	t.Parallel()
	for _, retry := range []agent.Retry{agent.RetrySafe, agent.RetryNever} {
		t.Run(string(retry), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, b *bubble) {
				entered := &attempts{}
				lost := b.join(patients(t, entered, retry))
				time.Sleep(time.Second)
				b.start("s", "clerk", "transfer")
				time.Sleep(time.Hour)
				b.join(patients(t, entered, retry))
				lost.vanish()
				b.await("s", statev1.RunStatus_RUN_STATUS_COMPLETED)
				keys := slices.Compact(entered.list())
				said := strings.Join(b.conversation("s"), "\n")
				switch retry {
				case agent.RetrySafe:
					if len(entered.list()) != 2 || len(keys) != 1 || !strings.Contains(said, `result: "done"`) {
						t.Errorf("entered with %q, want one key twice\n%s", entered.list(), said)
					}
				default:
					if len(entered.list()) != 1 || !strings.Contains(said, "failed: ") || !strings.Contains(said, "not known") {
						t.Errorf("entered with %q, want it once\n%s", entered.list(), said)
					}
				}
			})
		})
	}
}

func TestARunThatTakesTooLongEndsAtItsDeadlineAndKeepsWhatItSaid(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, b *bubble) {
		slow := func(a *agent.Agent) { a.RunTimeout = 4 * time.Hour }
		lost := b.join(patient(t, slow))
		time.Sleep(time.Second)
		begun := time.Now()
		b.start("s", "clerk", "a long story")
		time.Sleep(time.Hour)
		b.join(patient(t, slow))
		lost.vanish() // time continues across executors
		run := b.await("s", statev1.RunStatus_RUN_STATUS_FAILED).GetCurrentRun()
		if code := run.GetFailure().GetCode(); code != "framework_deadline_exceeded" {
			t.Errorf("the run failed with %q, want framework_deadline_exceeded", code)
		}
		if took := time.Since(begun); took < 4*time.Hour || took > 4*time.Hour+time.Minute {
			t.Errorf("the run took %v, want four hours", took)
		}
		if got, want := b.conversation("s"), []string{"user: a long story", "agent: one "}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestASessionThatWaitsADayForAHumanGoesOnInTheSameMessageWithNoExecutorBetween(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, b *bubble) {
		asks := b.join(patient(t))
		time.Sleep(time.Second)
		run := b.start("s", "clerk", "ask them")
		asked := b.await("s", statev1.RunStatus_RUN_STATUS_SUSPENDED_CLIENT_TOOL)
		asks.vanish()
		time.Sleep(24 * time.Hour)
		answer, err := b.calls.SubmitCall(t.Context(), &statev1.SubmitCallRequest{
			Tenant: tenant, SessionId: "s", ToolCallId: asked.GetCalls()[0].GetToolCallId(),
			Answer: &statev1.CallAnswer{Answer: &statev1.CallAnswer_Result{Result: `"fine"`}},
		})
		b.must(err)
		time.Sleep(time.Hour)
		b.join(patient(t))
		continued := b.await("s", statev1.RunStatus_RUN_STATUS_COMPLETED).GetCurrentRun()
		if continued.GetRunId() != answer.GetRunId() || continued.GetMessageId() != run.GetMessageId() {
			t.Errorf("run %q writes message %q, want %q and %q", continued.GetRunId(), continued.GetMessageId(), answer.GetRunId(), run.GetMessageId())
		}
		want := []string{"user: ask them", "call: ask", `result: "fine"`, `agent: They say "fine".`}
		if got := b.conversation("s"); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestAQuestionThatNobodyAnswersIsGivenUpAtItsDeadline(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, b *bubble) {
		b.join(patient(t), rareHeartbeats)
		time.Sleep(time.Second)
		begun := time.Now()
		b.start("s", "clerk", "ask them")
		b.await("s", statev1.RunStatus_RUN_STATUS_SUSPENDED_CLIENT_TOOL)
		time.Sleep(48*time.Hour + time.Minute - time.Since(begun))
		b.await("s", statev1.RunStatus_RUN_STATUS_COMPLETED)
		if got := b.conversation("s"); len(got) != 4 || !strings.HasPrefix(got[2], "failed: ") {
			t.Errorf("got %q, want a failed result of the question", got)
		}
	}, longSilence)
}

func TestAStopInTheMiddleKeepsWhatWasSaidAndAResumeGoesOn(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, b *bubble) {
		b.join(patient(t))
		time.Sleep(time.Second)
		run := b.start("s", "patient", "a long story")
		time.Sleep(4 * time.Hour)
		asked := time.Now()
		_, err := b.runs.RequestStop(t.Context(), &statev1.RequestStopRequest{
			Tenant: tenant, SessionId: "s", RunId: run.GetRunId(), Kind: statev1.StopKind_STOP_KIND_INTERRUPT, Reason: "enough",
		})
		b.must(err)
		stopped := b.await("s", statev1.RunStatus_RUN_STATUS_INTERRUPTED)
		if took := time.Since(asked); took > time.Second {
			t.Errorf("the stop took %v", took)
		}
		if got := stopped.GetSession().GetInterruption().GetReason(); got != "enough" {
			t.Errorf("the session was interrupted for %q, want %q", got, "enough")
		}
		if got, want := b.conversation("s"), []string{"user: a long story", "agent: one two "}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		_, err = b.runs.StartRun(t.Context(), &statev1.StartRunRequest{Tenant: tenant, SessionId: "s", Intent: &statev1.StartRunRequest_Resume{Resume: &statev1.Resume{}}})
		b.must(err)
		b.await("s", statev1.RunStatus_RUN_STATUS_COMPLETED)
	})
}

func TestAMessageThatComesInTheMiddleWaitsItsTurn(t *testing.T) {
	t.Parallel()
	for policy, want := range map[statev1.BusyPolicy][]string{
		statev1.BusyPolicy_BUSY_POLICY_ENQUEUE:   {"user: a long story", "agent: one two three", "user: really?", "agent: Yes."},
		statev1.BusyPolicy_BUSY_POLICY_INTERRUPT: {"user: a long story", "agent: one ", "user: really?", "agent: Yes."},
		statev1.BusyPolicy_BUSY_POLICY_ROLLBACK:  {"user: a long story", "user: really?", "agent: Yes."},
	} {
		t.Run(policy.String(), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, b *bubble) {
				b.join(patient(t))
				time.Sleep(time.Second)
				b.start("s", "patient", "a long story")
				time.Sleep(time.Hour)
				answer, err := b.runs.StartRun(t.Context(), &statev1.StartRunRequest{
					Tenant: tenant, SessionId: "s", Messages: []*eventv1.Message{says("really?")}, OnBusy: policy,
				})
				b.must(err)
				if !answer.GetWaiting() {
					t.Error("the run does not wait")
				}
				for b.current("s") != answer.GetRun().GetRunId() {
					time.Sleep(time.Minute)
				}
				b.await("s", statev1.RunStatus_RUN_STATUS_COMPLETED)
				if got := b.conversation("s"); !slices.Equal(got, want) {
					t.Errorf("got %q, want %q", got, want)
				}
			})
		})
	}
}

func TestAnotherModelTakesOverFromOneThatIsDown(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, b *bubble) {
		b.join(patient(t, func(a *agent.Agent) { a.Model, a.Fallbacks = "scripted/down", []string{"scripted/patient"} }))
		time.Sleep(time.Second)
		b.start("s", "clerk", "hello")
		b.await("s", statev1.RunStatus_RUN_STATUS_COMPLETED)
		if got, want := b.conversation("s"), []string{"user: hello", "agent: Yes."}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
