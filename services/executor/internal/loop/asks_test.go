package loop_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
)

// The plan decides once which calls wait for a client. A changed agent neither changes calls that may have begun
// nor their questions when a lost run continues.
func TestACallOfARecordedPlanIsWhatThePlanHasMadeOfItWhateverTheAgentSaysNow(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		then, now string
		calls     string
		recorded  bool // the result of the first call
		want      string
	}{
		"may have begun":                      {"pay:never", "pay:never:approval", "c1=pay", false, "c1 unknown"},
		"may have begun, by a client now":     {"pay:never", "pay:never:client", "c1=pay", false, "c1 unknown"},
		"may run again, and is asked about":   {"pay:safe", "pay:safe:approval", "c1=pay", false, "c1 asked"},
		"has ended":                           {"pay:never", "pay:never:approval", "c1=pay", true, "c1 done"},
		"was asked":                           {"pay:never:approval", "pay:never", "c0=look c1=pay", false, "c0 runs, c1 asked"},
		"was asked, and still is":             {"pay:never:approval", "pay:never:approval", "c0=look c1=pay", true, "c0 done, c1 asked"},
		"finishes, and may have begun":        {"pay:never:finish", "pay:never:finish:approval", "c0=look c1=pay", true, "c0 done, c1 unknown"},
		"finishes, and has not begun":         {"pay:never:finish", "pay:never:finish:approval", "c0=look c1=pay", false, "c0 runs, c1 asked"},
		"finishes, was asked, and is not now": {"pay:never:finish:approval", "pay:never:finish", "c0=look c1=pay", true, "c0 done, c1 asked"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(loop.Start{
				Run:        loop.Run{Tenant: "a", SessionID: "s", RunID: "r"},
				Agent:      agent.Agent{Model: "t/m", Tools: []agent.Tool{tool("look:safe"), tool(test.then)}},
				Transcript: []agent.Message{userSays("u", "Hi")},
			})
			p := loop.New(w.newStart())
			p.Next()
			var said []string
			for call := range strings.FieldsSeq(test.calls) {
				said = append(said, call+`:{"q":1}`)
			}
			p.Replied(newReplyOf(t, p, said, true))
			w.recordPlan(p.Next().(loop.RecordPlan))
			if test.recorded {
				call := w.start.Journal.Plan.Calls()[0]
				w.recordResult(loop.Ended{Result: agent.ToolResult{CallID: call.ID, Name: call.Name, Success: true, Result: json.RawMessage(`"done"`)}})
			}
			w.start.Agent.Tools = []agent.Tool{tool("look:safe"), tool(test.now)}
			if got := fates(loop.New(w.newStart())); got != test.want {
				t.Errorf("the calls: %s; want %s", got, test.want)
			}
			if earlier, there := w.start.Journal.Plan.Metadata["asks"]; there {
				w.start.Journal.Plan.Metadata["asks"] = `["c1"]` // in the format of an earlier version
				if got := fates(loop.New(w.newStart())); got != test.want || earlier == `["c1"]` {
					t.Errorf("the calls of a plan of an earlier version: %s; want %s", got, test.want)
				}
			}
		})
	}
}

// fates plays to the first commit and describes the outcome of each call, in order.
func fates(p *loop.Planner) string {
	ran := map[string]bool{}
	for {
		switch e := p.Next().(type) {
		case loop.RunCalls:
			for _, c := range e.Calls {
				ran[c.ID] = c.Tool != nil
			}
			p.Ended(endsOf(e, nil))
		case loop.Commit:
			fate := map[string]string{}
			for _, m := range e.Messages {
				for _, r := range m.Results() {
					switch {
					case ran[r.CallID]:
						fate[r.CallID] = "runs"
					case strings.HasPrefix(r.Error, unknownOutcome):
						fate[r.CallID] = "unknown"
					default:
						fate[r.CallID] = strings.Trim(string(r.Result), `"`) + r.Error
					}
				}
			}
			for _, c := range e.Suspend {
				fate[c.ID] = "asked"
			}
			var list []string
			for _, m := range e.Messages {
				if len(m.Metadata) > 0 {
					list = append(list, fmt.Sprint(m.Metadata))
				}
				for _, c := range m.Calls() {
					list = append(list, c.ID+" "+fate[c.ID])
				}
			}
			return strings.Join(list, ", ")
		default:
			return fmt.Sprintf("%T", e)
		}
	}
}
