package worker_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/holdfast-run/holdfast/pkg/agent"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

func TestATextTurnIsStreamedCommittedAndSettled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, definition("demo", mind(func(_ context.Context, _ model.Request, say func(model.Event) bool) error {
			speak(say, "Hello ", "world")
			return nil
		})))
		h.open()
		run := h.settled(h.state.startRun("s", "demo", "hi"))
		if run.GetStatus() != statev1.RunStatus_RUN_STATUS_COMPLETED || run.GetOutput() != `"Hello world"` {
			t.Errorf("run = %v, want it completed with the text", run)
		}
		records := h.stream.records("s")
		want := []string{"run_started", "step_started", "text_delta", "step_committed", "run_completed", "end"}
		if got := types(records); !slices.Equal(got, want) {
			t.Errorf("stream = %v, want %v", got, want)
		}
		if got, want := texts(records), "Hello world"; got != want {
			t.Errorf("text = %q, want %q", got, want)
		}
		if got := records[len(records)-1].GetTerminal().GetEnd().GetUsage().GetTotalTokens(); got != 15 {
			t.Errorf("usage = %d tokens, want 15", got)
		}
	})
}

func TestAToolTurnRunsTheToolAndAsksAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lookup := agent.Tool{Name: "lookup", InputSchema: anyObject, Execute: func(_ context.Context, c agent.Call) (any, error) {
			return map[string]string{"for": string(c.Input)}, nil
		}}
		h := newHouse(t, definition("demo", mind(func(_ context.Context, r model.Request, say func(model.Event) bool) error {
			if answered(r) {
				speak(say, "Sunny.")
			} else {
				request(say, "lookup", `{"city":"Oslo"}`, "nothing", `{}`)
			}
			return nil
		}), lookup))
		h.open()
		run := h.settled(h.state.startRun("s", "demo", "weather?"))
		if run.GetOutput() != `"Sunny."` {
			t.Errorf("output = %s, want \"Sunny.\"", run.GetOutput())
		}
		got := types(h.stream.records("s"))
		want := []string{
			"run_started", "step_started", "tool_arg_stream_start", "tool_arg_stream_delta", "tool_arg_stream_end",
			"tool_arg_stream_start", "tool_arg_stream_delta", "tool_arg_stream_end", "tool_start", "tool_start",
			"tool_end", "tool_end", "step_committed", "step_started", "text_delta", "step_committed", "run_completed", "end",
		}
		if !slices.Equal(got, want) {
			t.Errorf("stream = %v, want %v", got, want)
		}
		if got, want := len(h.state.sessions["s"].messages), 5; got != want {
			t.Errorf("%d messages, want %d", got, want)
		}
	})
}
