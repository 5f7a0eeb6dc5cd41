package server

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// bringing starts a run of a new session with the input of a caller.
func (b *bench) bringing(in *eventv1.CallerInput) error {
	r := startOf("")
	r.Messages[0].Caller = in
	_, err := b.runs.StartRun(b.Context(), r)
	return err
}

func callerTool(name string) *eventv1.CallerTool {
	return &eventv1.CallerTool{Name: name, InputSchema: `{"type":"object"}`}
}

func TestTheInputOfACallerHasLimits(t *testing.T) {
	t.Parallel()
	onEveryStore(t, func(t *testing.T, open func(...func(*Config)) *bench) {
		b := open()
		b.announcing(&statev1.ClaimRunsRequest{ExecutorId: "e1", Agents: []*statev1.Agent{{AgentType: "support", Rules: &statev1.AgentRules{
			CallerInstructions: true, CallerTools: &statev1.CallerTools{Allow: []string{"*"}, Max: agent.MaxCallerTools},
		}}}})
		for _, e := range []edge{
			{"the number of tools", agent.MaxCallerTools, func(b *bench, n int) error {
				in := &eventv1.CallerInput{}
				for i := range n {
					in.Tools = append(in.Tools, callerTool(fmt.Sprintf("t%d", i)))
				}
				return b.bringing(in)
			}, fault.TooLarge, "CALLER_TOOLS_TOO_LARGE"},
			{"the instructions", agent.MaxCallerInstructions, func(b *bench, n int) error {
				return b.bringing(&eventv1.CallerInput{Instructions: xs(n)})
			}, fault.TooLarge, "CALLER_TOOLS_TOO_LARGE"},
			{"tools and instructions", agent.MaxCallerInput, func(b *bench, n int) error {
				tool := callerTool("t")
				in := &eventv1.CallerInput{Tools: []*eventv1.CallerTool{tool}, Instructions: "Be brief."}
				for size := proto.Size(in); size < n; size = proto.Size(in) {
					tool.Description += xs(max(1, n-size-8))
				}
				return b.bringing(in)
			}, fault.TooLarge, "CALLER_TOOLS_TOO_LARGE"},
			{"the name of a tool", 64, func(b *bench, n int) error {
				return b.bringing(&eventv1.CallerInput{Tools: []*eventv1.CallerTool{callerTool(xs(n))}})
			}, fault.Invalid, "CALLER_TOOLS_INVALID"},
		} {
			e.check(b)
		}
	})
}

func TestTheToolsOfACallerAreCheckedLikeAnyTool(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, c := range []struct {
		tool *eventv1.CallerTool
		want string
	}{
		{&eventv1.CallerTool{Name: "a"}, "tools[0].inputSchema: it is missing"},
		{&eventv1.CallerTool{Name: "a", InputSchema: `{"type":"string"}`}, `tools[0].inputSchema: its type must be "object"`},
		{&eventv1.CallerTool{Name: "a", InputSchema: `{"type":"objekt"}`}, "tools[0].inputSchema"},
		{&eventv1.CallerTool{Name: "a", InputSchema: `{`}, "tools[0].inputSchema"},
		{&eventv1.CallerTool{Name: "a", InputSchema: `{"type":"object"}`, OutputSchema: `{"type":3}`}, "tools[0].outputSchema"},
		{&eventv1.CallerTool{Name: "a b", InputSchema: `{"type":"object"}`}, "tools[0].name"},
		{&eventv1.CallerTool{Name: "subagent__a", InputSchema: `{"type":"object"}`}, "reserved"},
		{&eventv1.CallerTool{Name: "a", InputSchema: `{"type":"object"}`, AnswerWithinMs: -1}, "answer_within_ms"},
		{&eventv1.CallerTool{Name: "a", InputSchema: `{"type":"object"}`, AnswerWithinMs: longestAnswer.Milliseconds() + 1}, "answer_within_ms"},
	} {
		err := b.bringing(&eventv1.CallerInput{Tools: []*eventv1.CallerTool{c.tool}})
		if f, _ := fault.From(err); f == nil || f.Reason != "CALLER_TOOLS_INVALID" || !strings.Contains(f.Detail, c.want) {
			t.Errorf("%v: got %v, want %s", c.tool, err, c.want)
		}
	}
}

func TestOnlyTheLastMessageOfANewRunBringsTools(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	brings := said(eventv1.Role_ROLE_USER, "", "hello")
	brings.Caller = &eventv1.CallerInput{Instructions: "Be brief."}
	first := startOf("s")
	first.Messages = []*eventv1.Message{brings, said(eventv1.Role_ROLE_USER, "", "more")}
	_, err := b.runs.StartRun(t.Context(), first)
	b.refuses(err, fault.Invalid, "MESSAGE_INVALID")
	known := startOf("s")
	known.History = []*eventv1.Message{brings}
	_, err = b.runs.StartRun(t.Context(), known)
	b.refuses(err, fault.Invalid, "MESSAGE_INVALID")
	_, err = b.sessions.AppendMessages(t.Context(), &statev1.AppendMessagesRequest{Tenant: "acme", SessionId: "s", Messages: []*eventv1.Message{brings}})
	b.refuses(err, fault.Invalid, "MESSAGE_INVALID")
}
