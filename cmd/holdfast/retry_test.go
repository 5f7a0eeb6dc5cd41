package main

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	"github.com/holdfast-run/holdfast/proto/holdfast/agent/v1/agentv1connect"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor"
)

const retryScript = `
models:
  cashier:
    rules:
      - when: {toolResult: charge}
        reply: 'It says {{.LastResult}}.'
      - when: {toolResult: look}
        reply: [{call: {name: charge, arguments: {}}}]
      - reply: [{call: {name: look, arguments: {}}}]
`

// cashier is an executor with an agent that looks something up and then charges. change may make it fail there.
func cashier(t *testing.T, charge func(context.Context) (any, error), change func(*agent.Agent)) executor.Peers {
	t.Helper()
	model, err := executor.OpenModel(executor.ModelConfig{Provider: "scripted", Script: retryScript})
	if err != nil {
		t.Fatal(err)
	}
	object := json.RawMessage(`{"type":"object"}`)
	cashier := agent.Agent{Name: "cashier", Model: "scripted/cashier", Tools: []agent.Tool{
		{Name: "look", InputSchema: object, Retry: agent.RetrySafe, Execute: func(context.Context, *agent.Call) (any, error) { return "open", nil }},
		{Name: "charge", InputSchema: object, Retry: agent.RetryNever, Timeout: 3 * time.Hour, Execute: func(ctx context.Context, _ *agent.Call) (any, error) { return charge(ctx) }},
	}}
	change(&cashier)
	registry := executor.NewRegistry()
	if err := errors.Join(registry.Model("scripted", model), registry.Register(cashier)); err != nil {
		t.Fatal(err)
	}
	return executor.Peers{Registry: registry}
}

// public returns a client of the gateway.
func (b *bubble) public() agentv1connect.AgentServiceClient {
	// See chat: connections are not reused.
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return b.network.DialContext(ctx, publicAddress)
	}}
	return agentv1connect.NewAgentServiceClient(&http.Client{Transport: transport}, "http://localhost", connect.WithProtoJSON())
}

func TestARetryDoesNotRunAToolAgainThatHasRun(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		timeout time.Duration
		change  func(*agent.Agent)
		slow    bool // the tool is running when the run ends
		code    string
		want    []string // prefixes of the messages after the question
	}{
		"the last step that is allowed": {
			change: func(a *agent.Agent) { a.MaxSteps = 2 }, code: "framework_max_steps",
			want: []string{"call: look", `result: "open"`, "call: charge", `result: "paid"`, `agent: It says "paid".`},
		},
		"the deadline": {
			timeout: time.Hour, slow: true, change: func(*agent.Agent) {}, code: "framework_deadline_exceeded",
			want: []string{"call: look", `result: "open"`, "call: charge", "failed: run_stopped", `agent: It says {"error":"run_stopped`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, b *bubble) {
				charged := &attempts{}
				b.join(cashier(t, func(ctx context.Context) (any, error) {
					charged.add("")
					if tc.slow {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					return "paid", nil
				}, tc.change))
				time.Sleep(time.Second) // fake
				client := b.public()
				_, err := client.Start(t.Context(), &agentv1.StartRequest{
					SessionId: "s", AgentType: "cashier", Message: "pay", TimeoutMs: tc.timeout.Milliseconds(),
				})
				b.must(err)
				if failed := b.await("s", statev1.RunStatus_RUN_STATUS_FAILED).GetCurrentRun(); failed.GetFailure().GetCode() != tc.code {
					t.Fatalf("the run has failed with %v, want %s", failed.GetFailure(), tc.code)
				}
				_, err = client.Resume(t.Context(), &agentv1.ResumeRequest{SessionId: "s", Mode: agentv1.ResumeMode_RESUME_MODE_RETRY})
				b.must(err)
				b.await("s", statev1.RunStatus_RUN_STATUS_COMPLETED)
				if n := len(charged.list()); n != 1 {
					t.Errorf("the tool has run %d times, want once", n)
				}
				if got := b.conversation("s")[1:]; !slices.EqualFunc(got, tc.want, strings.HasPrefix) {
					t.Errorf("the conversation goes on with %q, want %q", got, tc.want)
				}
			})
		})
	}
}

func TestARunThatWasAbortedDoesNotGoOn(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, b *bubble) {
		begun := make(chan struct{}, 1)
		b.join(cashier(t, func(ctx context.Context) (any, error) {
			begun <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		}, func(*agent.Agent) {}))
		time.Sleep(time.Second) // fake
		client := b.public()
		start := &agentv1.StartRequest{SessionId: "s", AgentType: "cashier", Message: "pay"}
		_, err := client.Start(t.Context(), start)
		b.must(err)
		<-begun
		_, err = client.Abort(t.Context(), &agentv1.AbortRequest{SessionId: "s", WaitMs: 60_000})
		b.must(err)
		for _, r := range []*agentv1.ResumeRequest{
			{Mode: agentv1.ResumeMode_RESUME_MODE_RETRY},
			{Mode: agentv1.ResumeMode_RESUME_MODE_CONTINUE},
			{Mode: agentv1.ResumeMode_RESUME_MODE_WITH_MESSAGE, Message: "go on"},
		} {
			r.SessionId = "s"
			_, err := client.Resume(t.Context(), r)
			if got := fault.ReasonOf(rpc.FromConnect(err)); got != "RUN_CANCELLED" {
				t.Errorf("%s: got %v, want RUN_CANCELLED", r.GetMode(), err)
			}
		}
		can, err := client.CanResume(t.Context(), &agentv1.CanResumeRequest{SessionId: "s"})
		if err != nil || can.GetCanResume() || can.GetReason() != "aborted" {
			t.Errorf("got %v, %v, want that it says aborted", can, err)
		}
		start.Message = "what has become of it?"
		_, err = client.Start(t.Context(), start)
		b.must(err)
		b.await("s", statev1.RunStatus_RUN_STATUS_COMPLETED)
	})
}

const repeatingScript = `
models:
  cached:
    rules:
      - when: {toolResult: locate}
        reply: 'You are at {{.LastResult}}.'
      - when: {lastUser: where}
        reply: [{call: {name: locate, arguments: {}, id: toolu_01XqR7vKf9dPz2LwTn}}]
      - reply: 'Yes.'
`

// cached is an executor whose model always uses the same call id.
func cached(t *testing.T) executor.Peers {
	t.Helper()
	model, err := executor.OpenModel(executor.ModelConfig{Provider: "scripted", Script: repeatingScript})
	if err != nil {
		t.Fatal(err)
	}
	registry := executor.NewRegistry()
	err = errors.Join(registry.Model("scripted", model), registry.Register(agent.Agent{Name: "guide", Model: "scripted/cached", Tools: []agent.Tool{
		{Name: "locate", InputSchema: json.RawMessage(`{"type":"object"}`), Client: true},
	}}))
	if err != nil {
		t.Fatal(err)
	}
	return executor.Peers{Registry: registry}
}

func TestASessionThatIsTakenBackGoesOnWithAModelThatRepeatsTheIdsOfItsCalls(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, b *bubble) {
		b.join(cached(t))
		time.Sleep(time.Second) // fake
		client := b.public()
		b.start("s", "guide", "hello")
		before := b.await("s", statev1.RunStatus_RUN_STATUS_COMPLETED).GetSession().GetCheckpointId()
		b.start("s", "guide", "where am I?")
		call := b.await("s", suspendedWhole).GetCalls()[0].GetToolCallId()
		answer := func(place string) error {
			_, err := b.calls.SubmitCall(t.Context(), &statev1.SubmitCallRequest{
				Tenant: tenant, SessionId: "s", ToolCallId: call, Answer: &statev1.CallAnswer{Answer: &statev1.CallAnswer_Result{Result: place}},
			})
			return err
		}
		b.must(answer(`"home"`))
		b.await("s", statev1.RunStatus_RUN_STATUS_COMPLETED)
		back := &agentv1.ResumeRequest{SessionId: "s", Mode: agentv1.ResumeMode_RESUME_MODE_FROM_CHECKPOINT, CheckpointId: before}
		_, err := client.Resume(t.Context(), back)
		b.must(err)
		b.await("s", statev1.RunStatus_RUN_STATUS_COMPLETED)
		if err := answer(`"nowhere"`); fault.ReasonOf(err) != "UNKNOWN_TOOL_CALL" {
			t.Errorf("an answer to the call that was taken back: got %v, want UNKNOWN_TOOL_CALL", err)
		}
		back.Message = "where am I now?"
		_, err = client.Resume(t.Context(), back)
		b.must(err)
		call = b.await("s", suspendedWhole).GetCalls()[0].GetToolCallId()
		b.must(answer(`"sea"`))
		b.await("s", statev1.RunStatus_RUN_STATUS_COMPLETED)
		want := []string{"user: hello", "agent: Yes.", "user: where am I now?", "call: locate", `result: "sea"`, `agent: You are at "sea".`}
		if got := b.conversation("s"); !slices.Equal(got, want) {
			t.Errorf("the conversation is %q, want %q", got, want)
		}
	})
}
