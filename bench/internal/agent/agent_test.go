package agent_test

import (
	"testing"

	"github.com/holdfast-run/holdfast/bench/internal/agent"
)

func TestEachStepButTheLastCallsTheTool(t *testing.T) {
	t.Parallel()
	for step := 1; step <= agent.Steps; step++ {
		answer := agent.Model(step)
		if got, want := answer.Call == nil, step == agent.Steps; got != want {
			t.Errorf("step %d is the last one: got %t, want %t", step, got, want)
		}
		if answer.Call == nil {
			continue
		}
		result, err := agent.Tool(step, *answer.Call)
		if err != nil || string(result.Result) != `{"result":42}` {
			t.Errorf("the tool in step %d: got %s, %v, want 42", step, result.Result, err)
		}
		if got := len(agent.Chunks(step, answer, &result)); got != 5 {
			t.Errorf("step %d: got %d chunks, want 5", step, got)
		}
	}
}
