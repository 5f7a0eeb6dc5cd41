package uistream_test

import (
	"encoding/json"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/step"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

func setMetadata(data string) *eventv1.Custom {
	return &eventv1.Custom{EventName: "message-metadata", Data: data}
}

func TestMetadataOfAnAgentReachesTheMessageLiveAndStored(t *testing.T) {
	t.Parallel()
	record := &eventv1.StepRecord{StartedAt: 10, Events: []*eventv1.StepEvent{
		{Timestamp: 10, Event: &eventv1.StepEvent_Reply{Reply: &eventv1.ReplyEvent{}}},
		{Timestamp: 11, Event: &eventv1.StepEvent_Custom{Custom: setMetadata(`{"cost":{"cents":1},"model":"a"}`)}},
		{Timestamp: 12, Event: &eventv1.StepEvent_Custom{Custom: setMetadata(`{"cost":{"calls":2},"model":"b"}`)}},
		{Timestamp: 13, Event: &eventv1.StepEvent_Custom{Custom: setMetadata(`"no object"`)}},
	}}
	reply := &eventv1.Message{Id: "a1", Role: eventv1.Role_ROLE_ASSISTANT, RunId: "r", Step: 1, Parts: []*eventv1.Part{{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{Text: "hi"}}}}}

	var live []string
	translator := uistream.New("m", 7)
	for _, c := range step.Replay(1, []*eventv1.Message{reply}, record) {
		for _, p := range translator.Chunk(1, c) {
			if p.Type == "message-metadata" {
				text, err := p.Append(nil)
				if err != nil {
					t.Fatal(err)
				}
				live = append(live, string(text))
			}
		}
	}
	if len(live) != 2 || live[1] != `{"type":"message-metadata","messageMetadata":{"cost":{"calls":2},"model":"b"}}` {
		t.Errorf("live parts = %q", live)
	}

	run := uistream.Run{ID: "r", MessageID: "m", AgentType: "demo", CreatedAt: 5}
	stored := uistream.Stored{
		Messages: []*eventv1.Message{reply}, Runs: map[string]uistream.Run{"r": run},
		Records: map[uistream.Step]*eventv1.StepRecord{{RunID: "r", Number: 1}: record},
	}.Conversation()
	if len(stored) != 1 {
		t.Fatalf("stored = %v", stored)
	}
	got, err := json.Marshal(stored[0].Metadata)
	if want := `{"agentType":"demo","cost":{"calls":2,"cents":1},"createdAt":5,"model":"b","runId":"r"}`; err != nil || string(got) != want {
		t.Errorf("stored metadata = %s, want %s", got, want)
	}
	if len(stored[0].Parts) != 2 { // step-start and the text
		t.Errorf("stored parts = %v, want no data parts", stored[0].Parts)
	}

	before := uistream.UIMessage{ID: "m", Metadata: stored[0].Metadata}
	after := uistream.Continue(before, []uistream.NumberedChunk{{Sequence: 2, Chunk: &eventv1.Chunk{Event: &eventv1.Chunk_Custom{Custom: setMetadata(`{"model":"c"}`)}}}})
	got, err = json.Marshal(after.Metadata.ContinuedBy(run))
	if want := `{"agentType":"demo","cost":{"calls":2,"cents":1},"createdAt":5,"model":"c","runId":"r"}`; err != nil || string(got) != want {
		t.Errorf("metadata of the message in flight = %s, want %s", got, want)
	}
}
