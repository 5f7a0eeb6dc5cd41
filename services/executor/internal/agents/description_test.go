package agents

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/outbound"
	"github.com/holdfast-run/holdfast/services/executor/internal/endpoint"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool/httptool"
)

// described loads descriptions, each of an endpoint of its own: http://localhost/1 and so on.
func described(t *testing.T, files []string, descriptions ...string) (*Set, error) {
	t.Helper()
	known := testKnown()
	known.HTTP = httptool.Peers{
		Policy: outbound.Policy{Hosts: []string{"tools.example"}}, Lookup: func(string) (string, error) { return "secret", nil },
	}
	known.Describe = func(_ context.Context, e Endpoint) (Described, error) {
		c, err := endpoint.New(endpoint.Config{URL: e.URL, Policy: outbound.Policy{Hosts: []string{"localhost"}}}, endpoint.Peers{})
		return Described{Client: c, Data: []byte(descriptions[0])}, err
	}
	var list []Described
	for i, text := range descriptions {
		e := Endpoint{URL: fmt.Sprintf("http://localhost/%d", i+1)}
		d, err := known.Describe(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		d.Data = []byte(text)
		list = append(list, d)
	}
	set, _, err := Load(t.Context(), files, list, known)
	return set, err
}

const support = `{
  "endpoint": 1, "sdk": "typescript/0.1.0", "build": "git:4f2c1e9", "unit": null,
  "defaults": {"maxSteps": 7},
  "tools": [{"name": "look", "callbacks": ["execute"], "readOnly": true}],
  "agents": [{
    "name": "support", "model": "mine/x", "description": "Helps \ud83d\ude00 \/",
    "stateSchema": {"type": "object", "properties": {"refunds": {"type": "integer", "default": 0}, "seen": {}}},
    "context": {"maxTokens": 1000, "compaction": "summary"},
    "callbacks": ["prompt", "stopWhen", "compact", "guard.onReply", "hooks.beforeRun", "hooks.afterTool"],
    "methods": ["reset"],
    "tools": [
      {"name": "refund", "description": "Refunds.", "inputSchema": {"type": "object", "properties": {"amount": {"type": "number"}}},
       "retry": "safe", "timeout": "30s", "setState": {"seen": true}, "callbacks": ["execute", "approval"], "approvers": "others"},
      {"use": "look", "approval": "always"}, "calculate",
      {"name": "ask", "client": true}, {"subAgent": "other"},
      {"name": "rate", "http": {"url": "https://tools.example/rate"}, "callbacks": ["approval"]}
    ]
  }],
  "sources": {"support": "src/agents.ts:12", "support/refund": "src/agents.ts:31"}
}`

func TestADescriptionIsReadLikeAFile(t *testing.T) {
	t.Parallel()
	set, err := described(t, nil, strings.Replace(support, ` "unit": null,`, "", 1))
	if err != nil {
		t.Fatal(err)
	}
	if len(set.Agents) != 1 || len(set.Problems) != 0 {
		t.Fatalf("set = %+v", set)
	}
	a := set.Agents[0]
	if a.Name != "support" || a.Description != "Helps 😀 /" || a.MaxSteps != 7 || a.File != "http://localhost/1" || a.Models["mine/x"] == nil {
		t.Errorf("agent = %+v", a.Agent)
	}
	if a.Prompt == nil || a.StopWhen == nil || a.Context.Compact == nil || a.Guard.OnReply == nil || a.Guard.OnOutput != nil ||
		a.Hooks.BeforeRun == nil || a.Hooks.AfterTool == nil || a.Hooks.OnStart != nil || len(a.Methods) != 1 || a.Methods[0].Name != "reset" {
		t.Errorf("functions = %+v", a.Agent)
	}
	tool := func(name string) agent.Tool {
		return a.Tools[slices.IndexFunc(a.Tools, func(t agent.Tool) bool { return t.Name == name })]
	}
	if refund := tool("refund"); refund.Execute == nil || refund.ApproveWhen == nil || refund.Retry != agent.RetrySafe || refund.Timeout != 30*time.Second ||
		refund.Approvers != agent.Others || !strings.Contains(string(refund.InputSchema), "amount") {
		t.Errorf("refund = %+v", refund)
	}
	if look := tool("look"); look.Execute == nil || !look.Approval || !look.ReadOnly || string(look.InputSchema) != anyInput {
		t.Errorf("look = %+v", look)
	}
	if ask := tool("ask"); !ask.Client || ask.Execute != nil {
		t.Errorf("ask = %+v", ask)
	}
	if rate := tool("rate"); rate.Execute == nil || rate.ApproveWhen == nil {
		t.Errorf("rate = %+v", rate)
	}
}

// Each row is an agent or a tool of a description with one mistake.
func TestMistakesInADescriptionNameTheirSource(t *testing.T) {
	t.Parallel()
	agentWith := func(fields string) string {
		return `{"endpoint":1,"agents":[{"name":"support","model":"mine/x",` + fields + `}],"sources":{"support":"src/a.ts:1","support/t":"src/a.ts:2"}}`
	}
	toolWith := func(fields string) string { return agentWith(`"tools":[{"name":"t",` + fields + `}]`) }
	for text, want := range map[string]string{
		agentWith(`"maxSteps":0`):                                                              `src/a.ts:1: agent "support": maxSteps is 0; it must be between 1 and 10000`,
		agentWith(`"callbacks":["onStart"]`):                                                   `src/a.ts:1: agent "support": callbacks is "onStart"; it must be one of prompt`,
		agentWith(`"callbacks":["prompt","prompt"]`):                                           `src/a.ts:1: agent "support": callbacks lists "prompt" twice`,
		agentWith(`"callbacks":"prompt"`):                                                      `src/a.ts:1: agent "support": callbacks must be a list`,
		agentWith(`"callbacks":["prompt"],"systemPrompt":"x"`):                                 `src/a.ts:1: agent "support": give either systemPrompt, prompt or the callback prompt`,
		agentWith(`"callbacks":["prompt"],"prompt":"x"`):                                       `src/a.ts:1: agent "support": give either systemPrompt, prompt or the callback prompt`,
		agentWith(`"callbacks":["stopWhen"],"stopWhen":[{"stateEquals":{"a":1}}]`):             `src/a.ts:1: agent "support": give either stopWhen or the callback stopWhen`,
		agentWith(`"callbacks":["compact"]`):                                                   `src/a.ts:1: agent "support": context.compaction: it must be summary`,
		agentWith(`"methods":["t"],"tools":[{"name":"t","callbacks":["execute"]}]`):            `src/a.ts:1: agent "support": methods[0].name: "t" is the name of another method or of a tool`,
		agentWith(`"modle":"x"`):                                                               `src/a.ts:1: agent "support": there is no field "modle"; did you mean "model"?`,
		agentWith(`"systemPrompt":{"file":"/etc/passwd"}`):                                     `src/a.ts:1: agent "support": systemPrompt: the description of an endpoint cannot name files; send the text itself`,
		agentWith(`"stateSchema":{"file":"/etc/passwd"}`):                                      `src/a.ts:1: agent "support": stateSchema: the description of an endpoint cannot name files`,
		agentWith(`"tools":[{"mcp":"files"}]`):                                                 `src/a.ts:1: agent "support": mcp: the description of an endpoint cannot use MCP servers`,
		agentWith(`"tools":["shared"]`):                                                        `src/a.ts:1: agent "support": there is no tool "shared"; known: calculate, note`,
		agentWith(`"fallbacks":["nobody/x"]`):                                                  `src/a.ts:1: agent "support": there is no provider "nobody"`,
		toolWith(`"callbacks":["run"]`):                                                        `src/a.ts:2: agent "support": tool "t": callbacks is "run"; it must be one of execute, approval`,
		toolWith(`"timeout":5`):                                                                `src/a.ts:2: agent "support": tool "t": timeout must be a duration above 0 like 30s, 5m or 24h`,
		toolWith(`"client":true,"storeReads":["a/"]`):                                          `src/a.ts:2: agent "support": tool "t": storeReads is for a tool with the callback execute`,
		toolWith(`"description":"x"`):                                                          `src/a.ts:2: agent "support": tool "t": a tool has either the callback execute`,
		toolWith(`"callbacks":["execute"],"client":true`):                                      `src/a.ts:2: agent "support": tool "t": a tool has either the callback execute`,
		toolWith(`"callbacks":["execute"],"http":{"url":"https://tools.example/x"}`):           `src/a.ts:2: agent "support": tool "t": a tool has either the callback execute`,
		toolWith(`"callbacks":["execute","approval"],"approval":"always"`):                     `src/a.ts:2: agent "support": tool "t": give either approval or the callback approval`,
		toolWith(`"client":true,"callbacks":["approval"]`):                                     `src/a.ts:2: agent "support": tool "t": approval: "t" has Client`,
		toolWith(`"http":{"url":"https://tools.example/x","headers":{"A":"${KEY}"}}`):          `src/a.ts:2: agent "support": tool "t": http: headers.A: the environment variable KEY is not for the description of an endpoint`,
		toolWith(`"http":{"url":"https://elsewhere.example/x"}`):                               `src/a.ts:2: agent "support": tool "t": http: url: the host "elsewhere.example" is not on the list of allowed hosts`,
		`{"endpoint":1,"agents":[{"name":"r","remote":{"url":"http://x","apiKeyEnv":"KEY"}}]}`: `http://localhost/1: agent "r": remote: the description of an endpoint cannot name environment variables`,
		`{"endpoint":1,"include":["x"],"agents":[]}`:                                           `http://localhost/1: the description of an endpoint has no field "include"; it is for files of agents`,
		`{"endpoint":1,"models":{"x":{}},"agents":[]}`:                                         `http://localhost/1: the description of an endpoint has no field "models"`,
		`{"endpoint":1,"mcpServers":{"x":{}},"agents":[]}`:                                     `http://localhost/1: the description of an endpoint has no field "mcpServers"`,
		`{"endpoint":1,"endpoints":[],"agents":[]}`:                                            `http://localhost/1: the description of an endpoint has no field "endpoints"`,
		`{"endpoint":1,"agnets":[]}`:                                                           `http://localhost/1: there is no field "agnets"; did you mean "agents"?`,
		`{"endpoint":2,"agents":[]}`:                                                           `http://localhost/1: the description follows version 2 of the wire, and this executor knows version 1`,
		`{"endpoint":1}`:                                                                       `http://localhost/1: the description has no agents: give the member "agents", a list`,
		`{"endpoint":1,"agents":{}}`:                                                           `http://localhost/1: the description has no agents: give the member "agents", a list`,
		`{"agents":[]}`:                                                                        `http://localhost/1: the description follows version 0 of the wire, and this executor knows version 1: give the member "endpoint": 1`,
		`{"endpoint":1,"build":"` + strings.Repeat("x", 129) + `"}`:                            `http://localhost/1: build has 129 bytes; at most 128 are allowed`,
		`[]`:            `http://localhost/1: the description is no JSON object: it is not an object`,
		`{"endpoint":1`: `http://localhost/1: the description is no JSON object: EOF`,
		`{} {}`:         `http://localhost/1: the description is no JSON object: there is more text`,
		`agents: []`:    `http://localhost/1: the description is no JSON object: invalid character`,
		`{"a":1,"a":2}`: `http://localhost/1: the description is no JSON object: an object has the member "a" twice`,
		`{"a":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`: `http://localhost/1: the description is no JSON object: values are nested deeper than 100 levels`,
		`{"a":1e999}`: `http://localhost/1: the description is no JSON object: the number "1e999" is too large`,
		`{"endpoint":1,"agents":[` + strings.Repeat(`{"name":"a"},`, 500) + `{"name":"b"}]}`: `http://localhost/1: the description has 501 agents; at most 500 are allowed`,
	} {
		_, err := described(t, nil, text)
		if err == nil || !strings.Contains(detail(err), want) {
			t.Errorf("%.200s:\ngot  %v\nwant %s", text, err, want)
		}
	}
}

func TestAMistakeTakesOnlyItsPartOfADescription(t *testing.T) {
	t.Parallel()
	set, err := described(t, nil, `{"endpoint":1,"agents":[
		{"name":"good","model":"mine/x","tools":[{"name":"bad","callbacks":["execute"],"timeout":"x"},{"name":"fine","callbacks":["execute"]}]},
		{"name":"bad","model":"mine/x","maxSteps":-1}, {"name":"better","model":"mine/x"}],"sources":{"bad":"a.ts:1","good/bad":"a.ts:2\nforged"}}`,
		`{"endpoint":1,"agents":[{"name":"better","model":"mine/x"},{"name":"other","model":"mine/x","tools":[{"name":"fine","callbacks":["execute"]}]}]}`)
	if err == nil {
		t.Fatal("no mistakes")
	}
	var names, lines []string
	for _, a := range set.Agents {
		names = append(names, a.Name)
		for _, tool := range a.Tools {
			names = append(names, a.Name+"/"+tool.Name)
		}
	}
	if want := []string{"good", "good/fine", "better", "other", "other/fine"}; !slices.Equal(names, want) {
		t.Errorf("agents = %q, want %q", names, want)
	}
	for _, p := range set.Problems {
		lines = append(lines, fmt.Sprintf("%s %s %s: %s", p.Kind, p.Agent, p.Name, p.Text))
	}
	want := []string{
		`tool good bad: a.ts:2forged: agent "good": tool "bad": timeout must be a duration above 0 like 30s, 5m or 24h`,
		`agent  bad: a.ts:1: agent "bad": maxSteps is -1; it must be between 1 and 10000`,
		`agent  better: http://localhost/2: the agent "better" is declared twice, first at http://localhost/1`,
	}
	slices.Sort(lines)
	slices.Sort(want)
	if !slices.Equal(lines, want) {
		t.Errorf("problems =\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
}

func TestManyMistakesInADescriptionAreBounded(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	for i := range 50_000 {
		fmt.Fprintf(&many, `"f%d":1,`, i)
	}
	set, err := described(t, nil, `{`+many.String()+`"endpoint":1,"agents":[{"name":"a","model":"mine/x"}]}`)
	if err == nil || len(set.Agents) != 1 || len(set.Problems) != 1 || strings.Count(set.Problems[0].Text, "\n") >= maxMistakes {
		t.Errorf("%d agents, %d problems", len(set.Agents), len(set.Problems))
	}
}

func TestCallbacksAreNotForFiles(t *testing.T) {
	t.Parallel()
	_, err := Parse(t.Context(), Source{Name: "a.yaml", Data: []byte(`agents:
  - name: a
    model: mine/x
    callbacks: [prompt]
    methods: [reset]
    tools:
      - {name: t, callbacks: [execute]}
`)}, testKnown())
	want := `a.yaml:4:5: agent "a": there is no field "callbacks"; it is for the descriptions of endpoints
a.yaml:5:5: agent "a": there is no field "methods"; it is for the descriptions of endpoints
a.yaml:7:19: agent "a": tool "t": there is no field "callbacks"; it is for the descriptions of endpoints`
	if got := detail(err); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestAFileNamesEndpoints(t *testing.T) {
	t.Parallel()
	dir := writeFiles(t, map[string]string{
		"a.yaml": `endpoints:
  - {url: "http://localhost/7", secrets: ["${K}"], headers: {A: "${B}"}, tls: {ca: ca.pem}}
  - {url: "http://elsewhere/"}
  - {url: "http://localhost/8", tls: {cert: none.pem}}
  - {secrets: [x]}
  - {url: "http://localhost/9", secret: x}
`, "ca.pem": "pem",
	})
	set, err := described(t, []string{filepath.Join(dir, "a.yaml")}, `{"endpoint":1,"agents":[{"name":"a","model":"mine/x"}]}`)
	if len(set.Agents) != 1 {
		t.Errorf("%d agents", len(set.Agents))
	}
	got := strings.ReplaceAll(detail(err), dir+"/", "")
	for _, want := range []string{
		`a.yaml:3:6: endpoint "http://elsewhere/": url: the host "elsewhere" is not on the list of allowed hosts`,
		`a.yaml:4:39: endpoint "http://localhost/8": tls: cert cannot be read: there is no file`,
		`endpoint "": url is missing`,
		`endpoint "http://localhost/9": there is no field "secret"; did you mean "secrets"?`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwant %s", got, want)
		}
	}
	if n := strings.Count(got, "\n") + 1; n != 6 { // secrets are missing at elsewhere too, and the agent is declared twice
		t.Errorf("%d mistakes:\n%s", n, got)
	}
}

func FuzzADescriptionNeverPanics(f *testing.F) {
	f.Add([]byte(support))
	f.Add([]byte(`{"endpoint":1,"agents":[{"name":"a","tools":[{"use":"b"},null,1]}],"sources":{"a":1}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if !json.Valid(data) {
			return
		}
		_, _ = described(t, nil, string(data))
	})
}
