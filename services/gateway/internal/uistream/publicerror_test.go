package uistream_test

import (
	"testing"

	"github.com/holdfast-run/holdfast/pkg/step"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

func TestAStoredFailureShowsUsersItsPublicText(t *testing.T) {
	t.Parallel()
	result := &eventv1.ToolResultPart{ToolCallId: "c1", ToolName: "fetch", Error: "HTTP 500: panic in db-7", PublicError: "The service failed."}
	messages := []*eventv1.Message{
		{Id: "a1", Role: eventv1.Role_ROLE_ASSISTANT, Step: 1, Parts: []*eventv1.Part{{Part: &eventv1.Part_ToolCall{ToolCall: &eventv1.ToolCallPart{ToolCallId: "c1", ToolName: "fetch", Arguments: "{}"}}}}},
		{Id: "t1", Role: eventv1.Role_ROLE_TOOL, Step: 1, Parts: []*eventv1.Part{{Part: &eventv1.Part_ToolResult{ToolResult: result}}}},
	}
	for _, c := range step.Replay(1, messages, nil) {
		if end := c.GetToolEnd(); end != nil && end.GetError() != "The service failed." {
			t.Errorf("the chunk says %q, want the public text", end.GetError())
		}
	}
	open := []uistream.UIMessage{{ID: "a1", Role: "assistant", Parts: []uistream.UIPart{{Type: "tool-fetch", ToolCallID: "c1", State: "input-available"}}}}
	uistream.ApplyResults(open, messages[1])
	if got := open[0].Parts[0].ErrorText; got != "The service failed." {
		t.Errorf("the message says %q, want the public text", got)
	}
}
