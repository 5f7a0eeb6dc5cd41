package registry

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/catalog"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/schemaform/schemaformtest"
)

// foreignServer serves odd tools over streamable HTTP, beside a good one.
func foreignServer(t *testing.T, tools []schemaformtest.Tool) (url string) {
	t.Helper()
	listed := []json.RawMessage{json.RawMessage(`{"name":"good","inputSchema":{"type":"object","properties":{"a":{"type":"string"}}}}`)}
	for _, one := range tools {
		listed = append(listed, json.RawMessage(fmt.Sprintf(`{"name":%q,"description":%q,"inputSchema":%s}`, one.Name, one.Of, one.Schema)))
	}
	list, err := json.Marshal(map[string]any{"tools": listed})
	if err != nil {
		t.Fatal(err)
	}
	served := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request struct {
			ID     json.RawMessage
			Method string
		}
		body, err := io.ReadAll(r.Body)
		if err != nil || json.Unmarshal(body, &request) != nil {
			w.WriteHeader(http.StatusMethodNotAllowed) // there is no stream
			return
		}
		w.Header().Set("Content-Type", "application/json")
		switch request.Method {
		case "initialize":
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","serverInfo":{"name":"foreign","version":"1"},"capabilities":{"tools":{}}}}`, request.ID)
		case "tools/list":
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, request.ID, list)
		case "notifications/initialized":
			w.WriteHeader(http.StatusAccepted)
		default:
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"method not found"}}`, request.ID)
		}
	}))
	t.Cleanup(served.Close)
	return served.URL
}

// sentTool is a tool in the request of a provider.
type sentTool struct {
	Name                                     string
	Schema, Parameters, ParametersJSONSchema json.RawMessage
	InputSchema                              json.RawMessage `json:"input_schema"`
	Strict                                   bool
	Function                                 *sentTool
	FunctionDeclarations                     []sentTool
}

// sentTools sends a request with the tools to a model, and returns the tools in the request of its provider.
func sentTools(t *testing.T, c ModelConfig, tools []model.Tool) map[string]sentTool {
	t.Helper()
	bodies := make(chan []byte, 100) // a refused request may be sent again in another form
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			bodies <- body
		}
		http.Error(w, "no", http.StatusForbidden)
	}))
	t.Cleanup(provider.Close)
	c.BaseURL, c.APIKey = provider.URL, "k"
	m, err := OpenModel(c)
	if err != nil {
		t.Fatal(err)
	}
	request := model.Request{Model: "m", Messages: []agent.Message{{Role: agent.RoleUser, Parts: []agent.Part{agent.Text{Text: "hello"}}}}, Tools: tools}
	for _, err := range m.Generate(t.Context(), request) {
		if err == nil {
			t.Error("the model has replied, want the refusal")
		}
	}
	var body struct{ Tools []sentTool }
	if err := json.Unmarshal(<-bodies, &body); err != nil {
		t.Fatal(err)
	}
	sent := map[string]sentTool{}
	for _, one := range body.Tools {
		if one.Function != nil {
			one = *one.Function
		}
		for _, declared := range append(one.FunctionDeclarations, one) {
			declared.Schema = slices.Concat(declared.Parameters, declared.ParametersJSONSchema, declared.InputSchema)
			if declared.Name != "" {
				sent[declared.Name] = declared
			}
		}
	}
	return sent
}

func TestOddToolsOfAForeignServerReachEachProviderInAFormThatItAccepts(t *testing.T) {
	t.Parallel()
	odd := schemaformtest.Tools(t)
	path := filepath.Join(t.TempDir(), "agents.yaml")
	writeText(t, path, `
models: {scripted: {script: '`+hello+`'}}
mcpServers: {foreign: {url: "`+foreignServer(t, odd)+`"}}
agents:
  - {name: plain, model: scripted/demo, tools: [{mcp: foreign}]}
  - {name: strict, model: scripted/demo, tools: [{mcp: foreign, strict: true}]}
`)
	r, c := loadWords(t, path)
	if problems := r.Problems(); len(problems) > 0 {
		t.Errorf("problems = %v, want none", problems)
	}
	for wire, test := range map[string]struct {
		config ModelConfig
		check  schemaformtest.Checker
	}{
		"chat completions": {ModelConfig{Provider: "openai"}, schemaformtest.OpenAI},
		"responses":        {ModelConfig{Provider: "openai", API: "responses"}, schemaformtest.OpenAI},
		"anthropic":        {ModelConfig{Provider: "anthropic"}, schemaformtest.Anthropic},
		"gemini":           {ModelConfig{Provider: "gemini"}, schemaformtest.Gemini},
	} {
		for _, name := range []string{"plain", "strict"} {
			t.Run(wire+", "+name, func(t *testing.T) {
				t.Parallel()
				a, err := resolve(t, c, name)
				if err != nil {
					t.Fatal(err)
				}
				if len(a.Tools) != len(odd)+1 {
					t.Errorf("%d tools, want %d", len(a.Tools), len(odd)+1)
				}
				sent := sentTools(t, test.config, modelTools(a))
				strict := 0
				for _, one := range a.Tools {
					tool, ok := sent[one.Name]
					if !ok {
						t.Errorf("the request has no tool %s", one.Name)
						continue
					}
					problems := test.check.Problems(tool.Schema)
					if tool.Strict {
						strict++
						problems = append(problems, schemaformtest.StrictProblems(tool.Schema)...)
					}
					if len(problems) > 0 {
						t.Errorf("%s: %s\n\t%s", one.Name, tool.Schema, strings.Join(problems, "\n\t"))
					}
				}
				if want := name == "strict" && test.config.Provider != "gemini"; want != (strict > 0) {
					t.Errorf("%d strict tools were sent, want some: %v", strict, want)
				}
				checkOriginals(t, a, odd)
			})
		}
	}
}

func modelTools(a catalog.Agent) (tools []model.Tool) {
	for _, one := range a.Tools {
		tools = append(tools, model.Tool{Name: one.Name, Description: one.Description, InputSchema: one.InputSchema, Strict: one.Strict})
	}
	return tools
}

// checkOriginals checks that the arguments of calls are validated by what the server has published.
func checkOriginals(t *testing.T, a catalog.Agent, odd []schemaformtest.Tool) {
	t.Helper()
	for _, one := range odd {
		i := slices.IndexFunc(a.Tools, func(t agent.Tool) bool { return t.Name == one.Name })
		if i < 0 {
			t.Errorf("there is no tool %s", one.Name)
			continue
		}
		schema, err := agent.CompileSchema(a.Tools[i].InputSchema)
		if err != nil {
			t.Errorf("%s: %v", one.Name, err)
			continue
		}
		for _, arguments := range one.Good {
			if problems := schema.Check(json.RawMessage(arguments)); problems != nil {
				t.Errorf("%s: %s is refused: %v", one.Name, arguments, problems)
			}
		}
		for _, arguments := range one.Bad {
			if problems := schema.Check(json.RawMessage(arguments)); problems == nil {
				t.Errorf("%s: %s is accepted, want a problem", one.Name, arguments)
			}
		}
	}
}
