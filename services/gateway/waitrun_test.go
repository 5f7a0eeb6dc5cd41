package gateway_test

import (
	"testing"

	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// waitRun calls WaitRun in the background.
func waitRun(t *testing.T, h *fixture, r *agentv1.WaitRunRequest) func() (*agentv1.WaitRunResponse, error) {
	t.Helper()
	client := apiClient(t, h)
	type result struct {
		answer *agentv1.WaitRunResponse
		err    error
	}
	ended := make(chan result, 1)
	go func() {
		answer, err := client.WaitRun(t.Context(), r)
		ended <- result{answer, err}
	}()
	waitFor(t, "the wait is an open stream", func() bool { return h.service.OpenStreams() == 1 })
	return func() (*agentv1.WaitRunResponse, error) {
		got := <-ended
		return got.answer, got.err
	}
}

func TestAWaitEndsWithItsRun(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run := h.begin(t, "s1", "hi", nil)
	wait := waitRun(t, h, &agentv1.WaitRunRequest{SessionId: "s1", WaitMs: 60_000})
	run.Show(1, Started(), Text("One"))
	run.Complete(AssistantMessage(1, "One"))
	got, err := wait()
	if err != nil || !got.GetDone() || got.GetRun().GetStatus() != "completed" || got.GetRun().GetOutput() != `"done"` {
		t.Errorf("got %v, %v", got, err)
	}
	again, err := apiClient(t, h).WaitRun(t.Context(), &agentv1.WaitRunRequest{SessionId: "s1", RunId: run.GetRunId(), WaitMs: 60_000})
	if err != nil || !again.GetDone() || again.GetRun().GetOutput() != `"done"` {
		t.Errorf("a wait for an ended run: got %v, %v", again, err)
	}
}

func TestAWaitEndsWithTheCallsOfAClientAndFindsTheContinuation(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	first := h.begin(t, "s1", "hi", nil)
	wait := waitRun(t, h, &agentv1.WaitRunRequest{SessionId: "s1", WaitMs: 60_000})
	playAsk(first, 1, "c1")
	got, err := wait()
	if err != nil || !got.GetDone() || got.GetRun().GetStatus() != "suspended_client_tool" || len(got.GetPendingCalls()) != 1 || got.GetPendingCalls()[0].GetToolCallId() != "c1" {
		t.Fatalf("got %v, %v", got, err)
	}
	client := apiClient(t, h)
	if _, err := client.SubmitToolResult(t.Context(), &agentv1.SubmitToolResultRequest{SessionId: "s1", ToolCallId: "c1", Answer: &agentv1.SubmitToolResultRequest_Result{Result: "1"}}); err != nil {
		t.Fatal(err)
	}
	wait = waitRun(t, h, &agentv1.WaitRunRequest{SessionId: "s1", RunId: first.GetRunId(), WaitMs: 60_000})
	second := h.AwaitRun(t, "default", "s1", first)
	playContinuation(second, "c1")
	if got, err = wait(); err != nil || !got.GetDone() || got.GetRun().GetRunId() != second.GetRunId() || len(got.GetPendingCalls()) != 0 {
		t.Errorf("the continuation: got %v, %v", got, err)
	}
	h.begin(t, "s1", "more", second)
	got, err = client.WaitRun(t.Context(), &agentv1.WaitRunRequest{SessionId: "s1", RunId: first.GetRunId(), WaitMs: 60_000})
	if err != nil || !got.GetDone() || got.GetRun().GetRunId() != second.GetRunId() || got.GetRun().GetOutput() != `"done"` {
		t.Errorf("behind the next message: got %v, %v", got, err)
	}
}

func TestAWaitThatIsOverSaysSo(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run := h.begin(t, "s1", "hi", nil)
	client := apiClient(t, h)
	for _, ms := range []int64{0, 1} {
		got, err := client.WaitRun(t.Context(), &agentv1.WaitRunRequest{SessionId: "s1", WaitMs: ms})
		if err != nil || got.GetDone() || got.GetRun().GetRunId() != run.GetRunId() || got.GetRun().GetStatus() != "running" {
			t.Errorf("%d ms: got %v, %v", ms, got, err)
		}
	}
	_, err := client.WaitRun(t.Context(), &agentv1.WaitRunRequest{SessionId: "s1", RunId: "none", WaitMs: 1})
	wantReason(t, "a run that is none", err, "RUN_NOT_FOUND")
	wait := waitRun(t, h, &agentv1.WaitRunRequest{SessionId: "s1", WaitMs: 60_000})
	if err := h.stop(); err != nil {
		t.Error(err)
	}
	_, err = wait()
	wantReason(t, "a gateway that stops", err, "GATEWAY_STOPPING")
}
