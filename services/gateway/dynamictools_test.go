package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	. "github.com/holdfast-run/holdfast/services/gateway/internal/gatewaytest"
)

// dynamicStep plays a step with dynamic tools: one that runs, and one that waits for an approval.
func dynamicStep(run *Run) {
	starts := func(id string) *eventv1.Chunk {
		return &eventv1.Chunk{Event: &eventv1.Chunk_ToolArgStreamStart{ToolArgStreamStart: &eventv1.ToolArgStreamStart{ToolCallId: id, ToolName: "add", Dynamic: true}}}
	}
	runs := Call("s1", `{"a":1}`)
	runs.GetToolStart().Dynamic = true
	run.Show(1, Started(), StepStarted(), starts("s1"), starts("y1"), runs, ApprovalRequest("y1", `{"a":1}`), Result("s1", "1"), StepCommitted(), Suspended())
	message := AssistantMessage(1, "", "s1", "y1")
	for _, p := range message.GetParts() {
		p.GetToolCall().Dynamic = true
	}
	run.Suspend([]*statev1.Call{{
		ToolCallId: "y1", SessionId: "s1", RunId: run.GetRunId(), Step: 1, ToolName: "add", Input: `{"a":1}`,
		Kind: statev1.CallKind_CALL_KIND_APPROVAL, ApprovalId: "a-y1",
	}}, message, ToolMessage(1, "s1", "1"))
}

func TestToolsThatAreKnownAtRunTimeOnlyAreDynamicEverywhere(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	stream := h.chat(t, chatBody("s1", "hi"))
	first := h.AwaitRun(t, "default", "s1", nil)
	dynamicStep(first)
	c := &uiClient{}
	events := stream.rest()
	c.apply(t, events)
	for _, part := range []string{
		`{"type":"tool-input-start","toolCallId":"s1","toolName":"add","dynamic":true}`,
		`{"type":"tool-input-available","toolCallId":"s1","toolName":"add","dynamic":true,"input":{"a":1}}`,
		`{"type":"tool-output-available","toolCallId":"s1","dynamic":true,"output":1}`,
		`{"type":"tool-input-available","toolCallId":"y1","toolName":"add","dynamic":true,"input":{"a":1}}`,
		`{"type":"tool-approval-request","toolCallId":"y1","approvalId":"a-y1"}`,
	} {
		if got := dataLines(events); !strings.Contains(got, part+"\n") {
			t.Errorf("%s is missing in %s", part, got)
		}
	}
	replayed := &uiClient{}
	replayed.replay(t, h.resume(t, "/chat/s1/stream").rest())
	all := h.loadAnswers(t, "s1")
	all["replayed"] = replayed
	for path, got := range all {
		if toJSON(got.parts[1:]) != toJSON(c.parts[1:]) || got.call("y1")["type"] != "dynamic-tool" || got.call("y1")["toolName"] != "add" {
			t.Errorf("%s: got %s, want %s", path, got, c)
		}
	}
	// The gateway understands such parts from a client.
	answered := h.chat(t, c.respond("y1", true).post("s1"))
	second := h.AwaitRun(t, "default", "s1", first)
	second.Show(1, Resumed())
	second.Show(2, ApprovalResponse("y1", "approve"), Result("y1", "2"), StepCommitted())
	second.Commit(ToolMessage(2, "y1", "2"))
	second.Show(3, StepStarted(), Text("Done."), StepCommitted(), Completed())
	second.Complete(AssistantMessage(3, "Done."))
	events = answered.rest()
	c.apply(t, events)
	if got := dataLines(events); !strings.Contains(got, `{"type":"tool-output-available","toolCallId":"y1","dynamic":true,"output":2}`) || c.reason != "stop" {
		t.Errorf("got %s", got)
	}
	if got := h.State.Submits()[0].GetAnswers(); len(got) != 2 || !got[1].GetAnswer().GetApproval().GetApproved() {
		t.Errorf("submitted: got %v, want what came of s1, too, and a yes", got)
	}
	h.Stream.LoseRecords("default", "s1") // then it is read from the store
	stored := &uiClient{}
	stored.replay(t, h.newReplica(t).resume(t, "/chat/s1/stream?fromSequence=0").rest())
	if stored.call("y1")["type"] != "dynamic-tool" || stored.call("y1")["output"] != 2.0 {
		t.Errorf("from the store: got %s", stored)
	}
	if got := text(t, h.request(t, http.MethodGet, "/messages?sessionId=s1", "")); strings.Contains(got, `"tool-add"`) || strings.Count(got, `"dynamic-tool"`) != 2 {
		t.Errorf("got %s", got)
	}
}

func TestMessagesCanBeHadWithoutThoughtsAndResults(t *testing.T) {
	t.Parallel()
	h := open(t, nil)
	run := h.begin(t, "s1", "hi", nil)
	says := AssistantMessage(1, "Let me add.", "c1", "c2")
	says.Parts = append([]*eventv1.Part{{Part: &eventv1.Part_Reasoning{Reasoning: &eventv1.ReasoningPart{Text: "Hm."}}}}, says.GetParts()...)
	failed := ToolMessage(1, "c2", "")
	failed.GetParts()[0].GetToolResult().Success, failed.GetParts()[0].GetToolResult().Error = false, "broken"
	run.Complete(says, ToolMessage(1, "c1", `{"sum":2}`), failed)
	const thought, result, nothing = `{"type":"reasoning","text":"Hm.","state":"done"}`, `"output":{"sum":2}`, `"output":null`
	for query, want := range map[string][]string{
		"":                          {thought, result},
		"&includeReasoning=true":    {thought, result},
		"&includeReasoning=false":   {result},
		"&includeToolResults=false": {thought, nothing},
		"&includeReasoning=false&includeToolResults=false": {nothing},
	} {
		got := text(t, h.request(t, http.MethodGet, "/messages?sessionId=s1"+query, ""))
		for _, part := range []string{thought, result, nothing} {
			wanted := false
			for _, w := range want {
				wanted = wanted || w == part
			}
			if strings.Contains(got, part) != wanted {
				t.Errorf("%s: %s, want %v: got %s", query, part, wanted, got)
			}
		}
		if !strings.Contains(got, `"state":"output-available","toolCallId":"c1"`) || !strings.Contains(got, `"errorText":"broken"`) {
			t.Errorf("%s: how the calls stand is missing in %s", query, got)
		}
	}
	wantFault(t, h.request(t, http.MethodGet, "/messages?sessionId=s1&includeReasoning=maybe", ""), 400, "PARAMETER_INVALID")
	wantFault(t, h.request(t, http.MethodGet, "/messages?sessionId=s1&includeToolResults=0", ""), 400, "PARAMETER_INVALID")
}
