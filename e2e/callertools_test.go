package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// callerAgents has an agent without tools that takes those of callers.
const callerAgents = `
models:
  openai: {baseURL: PROVIDER/v1, apiKeyEnv: FAKE_KEY}
agents:
  - name: guide
    description: Shows pages.
    model: openai/fake
    systemPrompt: Be brief.
    callerTools: {allow: page_*}
    callerInstructions: true
`

// heard is what the model was sent of tools and instructions.
func heard(r harness.ProviderRequest) string {
	var names []string
	tools, _ := r.Body["tools"].([]any)
	for _, t := range tools {
		tool, _ := t.(map[string]any)
		function, _ := tool["function"].(map[string]any)
		names = append(names, fmt.Sprint(function["name"]))
	}
	messages, _ := r.Body["messages"].([]any)
	first, _ := messages[0].(map[string]any)
	return strings.Join(names, ",") + "; " + strings.ReplaceAll(fmt.Sprint(first["content"]), "\n", "|")
}

// A turn keeps the tools and instructions of its caller over answers, other executors and another gateway.
func TestACallerAnswersItsToolsAfterTheExecutorWasKilled(t *testing.T) {
	t.Parallel()
	model := harness.StartProvider(t, func(s *harness.Speech) {
		results := strings.Count(fmt.Sprint(s.Body["messages"]), "role:tool")
		switch {
		case s.LastUser() != "show me":
			s.Text("As you say.")
		case results == 0:
			s.Call("call_open", "page_open", `{"url":"/prices"}`)
		case results == 1:
			s.Call("call_mark", "page_mark", `{"row":3}`)
		default:
			s.Text("Row 3 has it.")
		}
		s.End()
	})
	s := harness.Start(t, harness.Options{
		Agents: strings.ReplaceAll(callerAgents, "PROVIDER", model.URL), ExecutorEnv: []string{"FAKE_KEY=a-key"},
	})
	api := s.AgentService(t)
	start := &agentv1.StartRequest{
		SessionId: "s", AgentType: "guide", Message: "show me", RequestKey: "first", Instructions: "Speak French.",
		Tools: []*eventv1.CallerTool{
			{Name: "page_open", Description: "Opens a page.", InputSchema: `{"type":"object","properties":{"url":{"type":"string"}}}`},
			{Name: "page_mark", Description: "Marks a row.", InputSchema: `{"type":"object","properties":{"row":{"type":"integer"}}}`},
		},
	}
	started, err := api.Start(t.Context(), start)
	if err != nil {
		t.Fatal(err)
	}
	run := started.GetRunId()
	// wait returns the newest run of the session, and the call that waits for the caller.
	wait := func() (*agentv1.Run, *agentv1.PendingCall) {
		for {
			waited, err := api.WaitRun(t.Context(), &agentv1.WaitRunRequest{SessionId: "s", RunId: run, WaitMs: 10_000})
			if err != nil {
				t.Fatal(err)
			}
			if !waited.GetDone() {
				continue
			}
			if calls := waited.GetPendingCalls(); len(calls) > 0 {
				return waited.GetRun(), calls[0]
			}
			return waited.GetRun(), nil
		}
	}
	for _, tool := range []string{"page_open", "page_mark"} {
		_, call := wait()
		if call.GetToolName() != tool {
			t.Fatalf("the run waits for %v, want a call of %s", call, tool)
		}
		s.Executors[0].Kill()
		s.Gateway.Restart()
		repeated, err := api.Start(t.Context(), start)
		if err != nil || !repeated.GetRepeated() {
			t.Errorf("the repeated start: got %v, %v", repeated, err)
		}
		answered, err := api.SubmitToolResult(t.Context(), &agentv1.SubmitToolResultRequest{
			SessionId: "s", ToolCallId: call.GetToolCallId(), Answer: &agentv1.SubmitToolResultRequest_Result{Result: `{"ok":true}`},
		})
		if err != nil {
			t.Fatal(err)
		}
		run = answered.GetRunId()
		s.Executors[0].Start()
	}
	if ended, call := wait(); ended.GetStatus() != "completed" || ended.GetOutput() != `"Row 3 has it."` {
		t.Errorf("the run ended as %s with %s, and waits for %v", ended.GetStatus(), ended.GetOutput(), call)
	}
	next, err := api.Start(t.Context(), &agentv1.StartRequest{SessionId: "s", Message: "thanks"})
	if err != nil {
		t.Fatal(err)
	}
	run = next.GetRunId()
	wait()
	for text, want := range map[string][]string{
		"show me": slices.Repeat([]string{"page_open,page_mark; Be brief.||Speak French."}, 3),
		"thanks":  {"; Be brief."},
	} {
		var got []string
		for _, r := range model.Requests(text) {
			got = append(got, heard(r))
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: the model was sent %q, want %q", text, got, want)
		}
	}
	start.Tools = start.GetTools()[:1]
	if _, err := api.Start(t.Context(), start); err == nil || !strings.Contains(harness.Fault(err).Error(), "REQUEST_KEY_REUSED") {
		t.Errorf("a repeated start with other tools: got %v", err)
	}
}
