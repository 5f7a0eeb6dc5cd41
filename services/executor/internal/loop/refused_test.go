package loop_test

import (
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
)

func TestARefusedCallIsKnownByItsStoredResult(t *testing.T) {
	t.Parallel()
	failed := func(reason string) agent.ToolResult {
		return agent.ToolResult{CallID: "c", Name: "look", Error: reason, Synthetic: true}
	}
	own := failed("the arguments are odd")
	own.Synthetic = false
	cut := map[string]string{agent.MetadataInterrupted: "interrupt"}
	broken := map[string]string{agent.MetadataFailed: "provider_unavailable"}
	const stopped = "run_stopped: the run was stopped before this call was made"
	for name, test := range map[string]struct {
		metadata map[string]string
		result   agent.ToolResult
		want     bool
	}{
		"no such tool":                     {nil, failed(`there is no tool "look"`), true},
		"arguments that do not fit":        {nil, failed("the arguments do not fit: /q is missing"), true},
		"arguments that are no object":     {nil, failed("the arguments are not a JSON object"), true},
		"not the one call that is owed":    {nil, failed("not executed: call exactly one tool that finishes the run, and no other tool"), true},
		"of a message that was cut":        {cut, failed(stopped), true},
		"of a message that has failed":     {broken, failed("run_stopped: the run failed before this call was made"), true},
		"of a message that was whole":      {nil, failed(stopped), false},
		"a tool that complains by itself":  {nil, own, false},
		"a tool that was lost":             {nil, failed("it is not known whether the call took effect"), false},
		"a call of a cut message that ran": {cut, agent.ToolResult{CallID: "c", Success: true}, false},
	} {
		if got := loop.IsRefused(agent.Message{Metadata: test.metadata}, test.result); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
}
