package uistream_test

import (
	"encoding/json"
	"testing"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

func TestARunThatAToolOrALimitCompletesDoesNotLookSuspended(t *testing.T) {
	t.Parallel()
	completed := func(reason string) *eventv1.Chunk {
		return &eventv1.Chunk{Event: &eventv1.Chunk_RunCompleted{RunCompleted: &eventv1.RunCompleted{FinishReason: "tool-calls", CompletionReason: reason}}}
	}
	suspended := &eventv1.Chunk{Event: &eventv1.Chunk_RunSuspended{RunSuspended: &eventv1.RunSuspended{Reason: "client_tool"}}}
	for _, test := range []struct {
		major      uistream.Major
		end        *eventv1.Chunk
		how        uistream.Ending
		wantReason string
		wantJSON   string
	}{
		{7, completed("finish_tool"), uistream.Completed, "stop", `{"completionReason":"finish_tool"}`},
		{6, completed("finish_with"), uistream.Completed, "stop", `{"completionReason":"finish_with"}`},
		{5, completed("stop_when"), uistream.Completed, "", `{"completionReason":"stop_when"}`},
		{7, suspended, uistream.Paused, "tool-calls", `null`},
		{6, suspended, uistream.Paused, "tool-calls", `null`},
	} {
		translator := uistream.New("m", test.major)
		translator.SetMetadata(uistream.Metadata{RunID: "r"})
		translator.Chunk(1, test.end)
		parts := translator.Finish(test.how)
		last := parts[len(parts)-1]
		metadata, err := json.Marshal(last.Metadata)
		if err != nil || last.Type != "finish" || last.FinishReason != test.wantReason || string(metadata) != test.wantJSON {
			t.Errorf("version %d after %v: %s %q %s, want %q %s", test.major, test.end, last.Type, last.FinishReason, metadata, test.wantReason, test.wantJSON)
		}
	}
}
