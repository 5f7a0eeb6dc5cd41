package e2e

import (
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// chatOptions are the input of a scenario.
type chatOptions struct {
	API     string   `json:"api"`
	Gateway string   `json:"gateway"`
	Key     string   `json:"key"`
	Agent   string   `json:"agent"`
	Session string   `json:"session"`
	Texts   []string `json:"texts"`
	Half    int      `json:"half,omitempty"` // characters
}

// chatResult is the final state of the SDK's chat.
type chatResult struct {
	Status    string              `json:"status"`
	Error     string              `json:"error"`
	Messages  []harness.UIMessage `json:"messages"`
	ToolCalls []string            `json:"toolCalls"`
	Errors    []string            `json:"errors"`
	Finishes  []struct {
		IsAbort      bool   `json:"isAbort"`
		IsDisconnect bool   `json:"isDisconnect"`
		IsError      bool   `json:"isError"`
		FinishReason string `json:"finishReason"`
	} `json:"finishes"`
	// Cut is the state when the connection broke.
	Cut *chatResult `json:"cut"`
}

// runScenario runs a scenario of aisdk/scenarios.mjs. It calls told, if set, for every intermediate report.
func runScenario(t *testing.T, name string, o chatOptions, told func(string)) chatResult {
	t.Helper()
	return harness.Scenario[chatResult](t, "aisdk", name, o, told)
}

// answer returns the last message. It must be the assistant's.
func (r chatResult) answer(t *testing.T) harness.UIMessage {
	t.Helper()
	if r.Status != "ready" || r.Error != "" {
		t.Errorf("the chat's status is %s with error %q, want ready without one", r.Status, r.Error)
	}
	if len(r.Messages) == 0 || r.Messages[len(r.Messages)-1].Role != "assistant" {
		t.Fatalf("the chat ends without an answer:\n%s", harness.Transcript(r.Messages))
	}
	return r.Messages[len(r.Messages)-1]
}

// checkCut verifies that the connection broke in the middle; otherwise the test proves nothing.
func (r chatResult) checkCut(t *testing.T, whole string) {
	t.Helper()
	if r.Cut == nil || len(r.Cut.Messages) != 2 {
		t.Fatalf("nothing was cut: %+v", r.Cut)
	}
	if part := r.Cut.Messages[1].Text(); part == "" || len(part) >= len(whole) {
		t.Fatalf("the connection was lost with %d bytes of text, want some of %d", len(part), len(whole))
	}
}
