package registry

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// environ has variables that files may name, and others.
var environ = []string{"OPENAI_API_KEY=custom", "MY_KEY=mine", "AWS_SECRET=secret", "HOLDFAST_INTERNAL_KEY=internal"}

func parse(text string, more ...string) (*Agents, error) {
	return ParseAgents([]byte(text), "", lookupIn(append(more, environ...)))
}

func TestAFileSendsKeysOnlyWhereItMay(t *testing.T) {
	t.Parallel()
	for settings, want := range map[string]string{
		`{}`:                                   "",
		`{apiKeyEnv: MY_KEY}`:                  "",
		`{apiKeyEnv: AWS_SECRET}`:              `files may not name the variable "AWS_SECRET"; HOLDFAST_EXECUTOR_FILE_ENV lists the variables that they may name`,
		`{apiKeyEnv: HOLDFAST_INTERNAL_KEY}`:   "files may not name the variable",
		`{apiKeyEnv: NONE_KEY}`:                "the environment variable NONE_KEY is not set",
		`{baseURL: "https://evil.example/v1"}`: `the host "evil.example" is not on the list of allowed hosts; HOLDFAST_EXECUTOR_MODEL_HOSTS lists the hosts of models`,
		`{baseURL: "https://evil.example/v1", apiKeyEnv: MY_KEY}`:   `"evil.example" is not on the list`,
		`{baseURL: "https://api.openai.com@evil.example"}`:          `"evil.example" is not on the list`,
		`{baseURL: "https://api.openai.com.evil.example"}`:          "is not on the list",
		`{baseURL: "http://api.openai.com/v1", apiKeyEnv: MY_KEY}`:  "is not on the list",
		`{baseURL: "http://127.0.0.1.evil.example/"}`:               "is not on the list",
		`{baseURL: "https://api.openai.com/v1", apiKeyEnv: MY_KEY}`: "",
		`{baseURL: "http://127.0.0.1:9/v1"}`:                        "",
		`{baseURL: "http://[::1]:9/v1"}`:                            "",
		`{baseURL: "http://localhost:9", apiKeyEnv: MY_KEY}`:        "",
		`{baseURL: "https://good.example:8443/v1"}`:                 "",
		`{baseURL: "https://good.example/v1"}`:                      "is not on the list",
	} {
		_, err := parse("models: {openai: "+settings+"}\nagents: [{name: a, model: openai/x}]\n", "HOLDFAST_EXECUTOR_MODEL_HOSTS=good.example:8443")
		if want == "" && err != nil || want != "" && (fault.ReasonOf(err) != "AGENTS_INVALID" || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: error = %v, want %q", settings, err, want)
		}
	}
}

func TestAFileReachesOnlyAllowedRemoteAgents(t *testing.T) {
	t.Parallel()
	for remote, want := range map[string]string{
		`{url: "https://good.example", agent: b, apiKeyEnv: MY_KEY}`:                "",
		`{url: "http://localhost:9", agent: b}`:                                     "",
		`{url: "https://evil.example", agent: b}`:                                   `url: the host "evil.example" is not on the list of allowed hosts`,
		`{url: "https://good.example", agent: b, apiKeyEnv: AWS_SECRET}`:            `files may not name the variable "AWS_SECRET"`,
		`{url: "https://good.example", agent: b, apiKeyEnv: HOLDFAST_INTERNAL_KEY}`: "files may not name the variable",
		`{url: "https://good.example", agent: b, apiKeyEnv: NONE_KEY}`:              "the environment variable NONE_KEY is not set",
	} {
		_, err := parse("agents: [{name: a, remote: "+remote+"}]\n", "HOLDFAST_EXECUTOR_MODEL_HOSTS=good.example")
		if want == "" && err != nil || want != "" && (fault.ReasonOf(err) != "AGENTS_INVALID" || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: error = %v, want %q", remote, err, want)
		}
	}
}

func TestTheCustomaryKeyStaysWithItsProvider(t *testing.T) {
	t.Parallel()
	for settings, want := range map[string]string{"": "", ", apiKeyEnv: MY_KEY": "Bearer mine", ", apiKeyEnv: OPENAI_API_KEY": "Bearer custom"} {
		sent := make(chan string, 1)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			sent <- r.Header.Get("Authorization")
			w.WriteHeader(http.StatusBadRequest)
		}))
		t.Cleanup(server.Close)
		set, err := parse("models: {openai: {baseURL: \"" + server.URL + "\"" + settings + "}}\nagents: [{name: a, model: openai/x}]\n")
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range set.list[0].Models["openai/x"].Generate(t.Context(), model.Request{Model: "x"}) {
			if err == nil {
				t.Error("the model has answered")
			}
		}
		if got := <-sent; got != want {
			t.Errorf("{baseURL%s}: the server got %q, want %q", settings, got, want)
		}
	}
}

func TestToolsNameOnlyVariablesThatFilesMay(t *testing.T) {
	t.Parallel()
	tool := func(variable string) string {
		return "models: {scripted: {script: '" + hello + "'}}\nagents:\n  - name: a\n    model: scripted/demo\n    tools: [{name: ask, description: Asks., http: {url: 'http://api.example/', headers: {X: '${" + variable + "}'}}}]\n"
	}
	for variable, named := range map[string]bool{"MY_KEY": true, "AWS_SECRET": false, "OPENAI_API_KEY": true, "HOLDFAST_INTERNAL_KEY": false} {
		if _, err := parse(tool(variable), "HOLDFAST_EXECUTOR_TOOL_HOSTS=api.example"); (err == nil) != named {
			t.Errorf("%s: error = %v, want that it may be named: %v", variable, err, named)
		}
	}
	if _, err := parse(tool("AWS_SECRET"), "HOLDFAST_EXECUTOR_TOOL_HOSTS=api.example", "HOLDFAST_EXECUTOR_FILE_ENV=AWS_*"); err != nil {
		t.Errorf("a variable of the list: %v", err)
	}
}

func TestListsThatCannotBeMeantAreRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agents.yaml")
	agentsFile(t, path, "x")
	for reason, c := range map[string]AgentsConfig{
		"CONFIG_INVALID": {FileEnv: []string{"[A-Z]*"}},
		"HOSTS_INVALID":  {ModelHosts: []string{"https://good.example"}},
	} {
		c.AgentsFiles = path
		if err := New().Load(t.Context(), c, Peers{}); fault.ReasonOf(err) != reason {
			t.Errorf("Load = %v, want %s", err, reason)
		}
	}
}

func TestAMistakeNamesTheVariableThatAllowsWhatAFileNeeds(t *testing.T) {
	t.Parallel()
	http := func(url, header string) string {
		return "agents: [{name: a, model: openai/x, tools: [{name: t, description: d, readOnly: true, http: {url: '" + url + "', headers: {X-Key: '" + header + "'}}}]}]\n"
	}
	mcp := func(command, value string) string {
		return "mcpServers: {m: {command: " + command + ", env: {WHERE: '" + value + "'}}}\nagents: [{name: a, model: openai/x, tools: [{mcp: m}]}]\n"
	}
	for text, want := range map[string]string{
		http("https://api.example/", "${MY_KEY}"):                 `the host "api.example" is not on the list of allowed hosts: add it to HOLDFAST_EXECUTOR_TOOL_HOSTS`,
		http("https://good.example/", "${HOME}"):                  `the environment variable HOME is not one that agents files may name: set HOLDFAST_EXECUTOR_FILE_ENV to "*_KEY,*_TOKEN,HOME" to allow it`,
		http("https://good.example/", "${NONE_KEY}"):              `the environment variable NONE_KEY is not set`,
		http("https://good.example/", "${HOLDFAST_GRANT_SECRET}"): `the environment variable HOLDFAST_GRANT_SECRET belongs to Holdfast and is never given to agents`,
		mcp("npx", "x"):       `"npx" is not on the list of allowed commands: add it to HOLDFAST_EXECUTOR_MCP_COMMANDS`,
		mcp("cat", "${HOME}"): `HOME, which is not one that agents files may name: set HOLDFAST_EXECUTOR_FILE_ENV to "*_KEY,*_TOKEN,HOME" to allow it; the process of an MCP server has it anyway`,
	} {
		_, err := parse("models: {openai: {apiKeyEnv: MY_KEY}}\n"+text, "HOME=/root", "HOLDFAST_GRANT_SECRET=s", "HOLDFAST_EXECUTOR_TOOL_HOSTS=good.example", "HOLDFAST_EXECUTOR_MCP_COMMANDS=cat")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}
