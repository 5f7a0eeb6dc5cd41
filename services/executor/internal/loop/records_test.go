package loop_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
)

func TestWhatTheStateServiceMayRefuseIsRecordedBeforeTheCommit(t *testing.T) {
	t.Parallel()
	look, pay := tool("look:read"), tool("pay:never")
	of := func(bytes int) loop.Ended {
		return loop.Ended{Result: agent.ToolResult{Success: true, Result: json.RawMessage(strings.Repeat("1", bytes))}}
	}
	writes := of(1)
	writes.Ops = []agent.Op{replaceOp("n", "1")}
	const most = 64 << 10
	for name, test := range map[string]struct {
		calls loop.RunCalls
		call  loop.Call
		end   loop.Ended
		last  bool
		want  bool
	}{
		"a look-up":                               {loop.RunCalls{}, loop.Call{Tool: &look}, of(most), true, false},
		"a look-up with a large result":           {loop.RunCalls{}, loop.Call{Tool: &look}, of(most + 1), true, true},
		"a look-up that writes":                   {loop.RunCalls{}, loop.Call{Tool: &look}, writes, false, true},
		"a large answer":                          {loop.RunCalls{Answering: true}, loop.Call{}, of(most + 1), true, false},
		"an effect":                               {loop.RunCalls{Planned: true, Carries: true}, loop.Call{Tool: &pay}, of(1), false, true},
		"the last effect":                         {loop.RunCalls{Planned: true, Carries: true}, loop.Call{Tool: &pay}, of(most), true, false},
		"the last effect with a large result":     {loop.RunCalls{Planned: true, Carries: true}, loop.Call{Tool: &pay}, of(most + 1), true, true},
		"the last effect where it writes":         {loop.RunCalls{Planned: true, Carries: true}, loop.Call{Tool: &pay}, writes, true, true},
		"the last effect before code of an agent": {loop.RunCalls{Planned: true}, loop.Call{Tool: &pay}, of(1), true, true},
		"a look-up beside effects":                {loop.RunCalls{Planned: true, Carries: true}, loop.Call{Tool: &look}, of(most), false, false},
		"a look-up before code of an agent":       {loop.RunCalls{Planned: true}, loop.Call{Tool: &look}, of(1), false, true},
		"a call that nobody runs":                 {loop.RunCalls{Planned: true, Carries: true}, loop.Call{}, of(1), false, false},
		"what the journal has":                    {loop.RunCalls{Planned: true}, loop.Call{Recorded: true}, writes, true, false},
	} {
		if got := test.calls.Records(test.call, test.end, test.last); got != test.want {
			t.Errorf("%s is recorded = %v, want %v", name, got, test.want)
		}
	}
}
