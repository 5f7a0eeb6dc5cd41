package agent_test

import (
	"encoding/json"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
)

func TestTheMetadataOfAMessageIsAnObjectWithoutTheKeysOfTheRuntime(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{}`: "", ` {"mood":"good","runID":1} `: "",
		``: "EVENT_INVALID", `null`: "EVENT_INVALID", `[]`: "EVENT_INVALID", `"x"`: "EVENT_INVALID", `{"a":`: "EVENT_INVALID",
		`{"mood":1,"runId":"r"}`: "EVENT_INVALID", `{"agentType":"x"}`: "EVENT_INVALID", `{"completionReason":"x"}`: "EVENT_INVALID",
		`{"interrupted":true}`: "EVENT_INVALID", `{"__proto__":{}}`: "EVENT_INVALID", `{"\u0075sage":{}}`: "EVENT_INVALID",
	} {
		if got := fault.ReasonOf(agent.CheckMetadata(json.RawMessage(text))); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}
