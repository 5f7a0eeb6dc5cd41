package uistream

import (
	"testing"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

func TestARootThatWaitsForTheCallsOfItsSubAgentsEndsWithToolCalls(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		calls []PendingCall
		want  string
	}{
		"an approval below": {[]PendingCall{{CallID: "c", ToolName: "note", Input: "{}", Message: "m", Approval: Approval{ID: "a"}}}, toolCalls},
		"nothing to answer": {nil, other},
	} {
		tr := New("m", DefaultMajor)
		tr.Start()
		tr.Chunk(1, &eventv1.Chunk{Event: &eventv1.Chunk_RunSuspended{RunSuspended: &eventv1.RunSuspended{Reason: "awaiting_children"}}})
		tr.Pending(test.calls)
		parts := tr.Finish(Paused)
		if got := parts[len(parts)-1].FinishReason; got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}
