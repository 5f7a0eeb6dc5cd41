package agent_test

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
)

func validAgent() agent.Agent {
	return agent.Agent{
		Name: "weather", Model: "openai/gpt-5-mini", Fallbacks: []string{"openrouter/meta/llama-4"},
		Tools: []agent.Tool{
			agent.NewTool("forecast", "", func(context.Context, *agent.Call, trip) (int, error) { return 0, nil }),
			agent.ClientTool[struct{}]("ask", "", agent.AnswerWithin(time.Hour)),
		},
		OutputSchema: agent.SchemaOf[trip](), StateSchema: json.RawMessage(`{"type":"object"}`),
	}
}

func TestAValidAgentHasNoProblems(t *testing.T) {
	t.Parallel()
	if err := validAgent().Check(); err != nil {
		t.Errorf("Check: %v", err)
	}
}

func TestEveryProblemOfAnAgentIsReported(t *testing.T) {
	t.Parallel()
	minus, hot, none := -1, 3.0, math.NaN()
	checkProblems(t, []invalidAgent{
		{"name", "missing", func(a *agent.Agent) { a.Name = "" }},
		{"name", "control", func(a *agent.Agent) { a.Name = "a\nb" }},
		{"name", "bytes", func(a *agent.Agent) { a.Name = strings.Repeat("n", 257) }},
		{"description", "bytes", func(a *agent.Agent) { a.Description = strings.Repeat("n", 5000) }},
		{"systemPrompt", "must be UTF-8", func(a *agent.Agent) { a.SystemPrompt = "\xff" }},
		{"model", "provider/name", func(a *agent.Agent) { a.Model = "gpt" }},
		{"model", "provider/name", func(a *agent.Agent) { a.Model = "" }},
		{"fallbacks[0]", "provider/name", func(a *agent.Agent) { a.Fallbacks = []string{"/x"} }},
		{"fallbacks[0]", "listed already", func(a *agent.Agent) { a.Fallbacks = []string{a.Model} }},
		{"maxSteps", "between 0 and", func(a *agent.Agent) { a.MaxSteps = -1 }},
		{"maxOutputTokens", "between 0 and", func(a *agent.Agent) { a.MaxOutputTokens = -1 }},
		{"maxRetries", "between 0 and", func(a *agent.Agent) { a.MaxRetries = &minus }},
		{"temperature", "between 0 and 2", func(a *agent.Agent) { a.Temperature = &hot }},
		{"temperature", "between 0 and 2", func(a *agent.Agent) { a.Temperature = &none }},
		{"runTimeout", "below 0", func(a *agent.Agent) { a.RunTimeout = -1 }},
		{"completion", "tool, native", func(a *agent.Agent) { a.Completion = "x" }},
		{"cache", "none, auto", func(a *agent.Agent) { a.Cache = "x" }},
		{"onBusy", "reject", func(a *agent.Agent) { a.OnBusy = "x" }},
		{"context.compaction", "window", func(a *agent.Agent) { a.Context.Compaction = "x" }},
		{"context.compaction", "must be summary", func(a *agent.Agent) {
			a.Context.Compact = func(context.Context, *agent.RunView, []agent.Message) (string, error) { return "", nil }
		}},
		{"context.keepTokens", "above", func(a *agent.Agent) { a.Context.KeepTokens = 5 }},
		{"providerOptions.openai", "JSON object", func(a *agent.Agent) {
			a.ProviderOptions = map[string]json.RawMessage{"openai": json.RawMessage(`[]`)}
		}},
		{"outputSchema", "object", func(a *agent.Agent) { a.OutputSchema = json.RawMessage(`{"type":"string"}`) }},
		{"stateSchema", "no type", func(a *agent.Agent) { a.StateSchema = json.RawMessage(`{"type":"x"}`) }},
	})
	a := validAgent()
	a.Name, a.Model, a.MaxSteps = "", "x", -1
	if f, _ := fault.From(a.Check()); f == nil || f.Kind != fault.Invalid || f.Reason != "AGENT_INVALID" || strings.Count(f.Detail, "\n") != 2 {
		t.Errorf("Check = %v, want three lines", f)
	}
}

func TestEveryProblemOfAToolIsReported(t *testing.T) {
	t.Parallel()
	tool := func(change func(*agent.Tool)) func(*agent.Agent) {
		return func(a *agent.Agent) { change(&a.Tools[0]) }
	}
	checkProblems(t, []invalidAgent{
		{"tools[1].name", "listed twice", func(a *agent.Agent) { a.Tools[1].Name = "forecast" }},
		{"tools[0].name", "missing", tool(func(t *agent.Tool) { t.Name = "" })},
		{"tools[0].name", "characters", tool(func(t *agent.Tool) { t.Name = "a b" })},
		{"tools[0].name", "characters", tool(func(t *agent.Tool) { t.Name = strings.Repeat("x", 65) })},
		{"tools[0].name", "reserved", tool(func(t *agent.Tool) { t.Name = agent.FinishTool })},
		{"tools[0].name", "reserved", tool(func(t *agent.Tool) { t.Name = "subagent__x" })},
		{"tools[0].name", "reserved", tool(func(t *agent.Tool) { t.Name = "companion__x" })},
		{"tools[0].inputSchema", "missing", tool(func(t *agent.Tool) { t.InputSchema = nil })},
		{"tools[0].inputSchema", "object", tool(func(t *agent.Tool) { t.InputSchema = json.RawMessage(`{}`) })},
		{"tools[0].inputSchema", "not JSON", tool(func(t *agent.Tool) { t.InputSchema = json.RawMessage(`{`) })},
		{"tools[0].outputSchema", "has no target", tool(func(t *agent.Tool) { t.OutputSchema = json.RawMessage(`{"$ref":"#/x"}`) })},
		{"tools[0].retry", "never, safe", tool(func(t *agent.Tool) { t.Retry = "x" })},
		{"tools[0].timeout", "below 0", tool(func(t *agent.Tool) { t.Timeout = -1 })},
		{"tools[0].answerWithin", "neither Client nor an approval", tool(func(t *agent.Tool) { t.AnswerWithin = 1 })},
		{"tools[0].approvers", "no approval", tool(func(t *agent.Tool) { t.Approvers = agent.Others })},
		{"tools[0].approvers", "one of others", tool(func(t *agent.Tool) { t.Approval, t.Approvers = true, "x" })},
		{"tools[0]", "neither Execute, Client nor SubAgent", tool(func(t *agent.Tool) { t.Execute = nil })},
		{"tools[0]", "both Execute and Client", tool(func(t *agent.Tool) { t.Client = true })},
		{"tools[1].readOnly", "does not run it", func(a *agent.Agent) { a.Tools[1].ReadOnly = true }},
		{"tools[1].approval", "can ask its user", func(a *agent.Agent) { a.Tools[1].Approval = true }},
	})
}

func TestEveryProblemOfCompanionsAndRemoteAgentsIsReported(t *testing.T) {
	t.Parallel()
	checkProblems(t, []invalidAgent{
		{"remote.url", "address of a gateway", func(a *agent.Agent) { *a = agent.Agent{Name: "a", Remote: &agent.Remote{URL: "ftp://x", Agent: "b"}} }},
		{"remote.agent", "it is missing", func(a *agent.Agent) { *a = agent.Agent{Name: "a", Remote: &agent.Remote{URL: "https://x"}} }},
		{"remote", "neither model", func(a *agent.Agent) { a.Remote = &agent.Remote{URL: "https://x", Agent: "b"} }},
		{"maxCompanions", "between 0 and 1000", func(a *agent.Agent) { a.MaxCompanions = -1 }},
		{"companions[0].agent", "it is missing", func(a *agent.Agent) { a.Companions = []agent.Companion{{}} }},
		{"companions[1].agent", "listed twice", func(a *agent.Agent) { a.Companions = []agent.Companion{{Agent: "b"}, {Agent: "b"}} }},
		{"companions[0].mode", "one of blocking, non-blocking", func(a *agent.Agent) { a.Companions = []agent.Companion{{Agent: "b", Mode: "x"}} }},
		{"companions[0].timeout", "below 0", func(a *agent.Agent) { a.Companions = []agent.Companion{{Agent: "b", Timeout: -1}} }},
	})
}

func TestEveryProblemOfASubAgentIsReported(t *testing.T) {
	t.Parallel()
	subAgent := func(name string, change func(*agent.Tool)) func(*agent.Agent) {
		return func(a *agent.Agent) {
			a.Tools[0] = agent.SubAgent[agent.Task](name, "Reads a page.")
			change(&a.Tools[0])
		}
	}
	unchanged := func(*agent.Tool) {}
	checkProblems(t, []invalidAgent{
		{"tools[0].name", "characters", subAgent("a b", unchanged)},
		{"tools[0].name", "longer than 54 characters", subAgent(strings.Repeat("x", 55), unchanged)},
		{"tools[0].name", `must be "subagent__reader"`, subAgent("reader", func(t *agent.Tool) { t.Name = "reader" })},
		{"tools[0]", "another way to answer", subAgent("reader", func(t *agent.Tool) { t.Client = true })},
		{"tools[0]", "limit it with timeout", subAgent("reader", func(t *agent.Tool) { t.Approval = true })},
		{"tools[0]", "limit it with timeout", subAgent("reader", func(t *agent.Tool) { t.AnswerWithin = 1 })},
		{"tools[0]", "limit it with timeout", subAgent("reader", func(t *agent.Tool) { t.ReadOnly = true })},
		{"maxSubAgents", "between 0 and 1000", func(a *agent.Agent) { a.MaxSubAgents = 1001 }},
		{"maxDepth", "between 0 and 100", func(a *agent.Agent) { a.MaxDepth = 101 }},
	})
	a := validAgent()
	subAgent(strings.Repeat("x", 54), func(t *agent.Tool) { t.Timeout = 1 })(&a)
	if problems := a.Problems(); len(problems) > 0 {
		t.Errorf("problems = %v of the longest name", problems)
	}
}

// invalidAgent is a change of a valid agent that makes one field invalid.
type invalidAgent struct {
	field, text string
	change      func(*agent.Agent)
}

// checkProblems checks that each agent has exactly the problem of its field.
func checkProblems(t *testing.T, tests []invalidAgent) {
	t.Helper()
	for _, test := range tests {
		a := validAgent()
		test.change(&a)
		problems := a.Problems()
		if len(problems) != 1 || problems[0].Field != test.field || !strings.Contains(problems[0].Text, test.text) {
			t.Errorf("problems = %v, want one of %s: %s", problems, test.field, test.text)
		}
	}
}

func TestAnAgentWhoseMethodsCollideIsRefused(t *testing.T) {
	t.Parallel()
	call := func(context.Context, *agent.MethodCall) (any, error) { return nil, nil }
	lookup := agent.NewTool("lookup", "looks up", func(context.Context, *agent.Call, struct{}) (string, error) { return "", nil })
	for name, methods := range map[string][]agent.Method{
		"no name":   {{Call: call}},
		"long name": {{Name: strings.Repeat("x", 129), Call: call}},
		"twice":     {{Name: "add", Call: call}, {Name: "add", Call: call}},
		"a tool":    {{Name: "lookup", Call: call}},
		"no call":   {{Name: "add"}},
	} {
		a := agent.Agent{Name: "demo", Model: "scripted/demo", Tools: []agent.Tool{lookup}, Methods: methods}
		if err := a.Check(); err == nil || !strings.Contains(err.Error(), "methods[") {
			t.Errorf("%s: got %v", name, err)
		}
		a.Methods = []agent.Method{{Name: strings.Repeat("x", 128), Call: call}}
		if err := a.Check(); err != nil {
			t.Errorf("good: got %v", err)
		}
	}
}
