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
