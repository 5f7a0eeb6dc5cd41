package agents

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

func TestAFileDeclaresSubAgents(t *testing.T) {
	t.Parallel()
	set, err := Parse(t.Context(), Source{Name: "a.yaml", Data: []byte(`agents:
  - name: a
    model: mine/x
    maxSubAgents: 3
    maxDepth: 2
    tools:
      - {subAgent: reader, description: Reads a page., timeout: 1h}
      - {subAgent: writer, inputSchema: {type: object}, outputSchema: {type: integer}, strict: true, finishWith: true}
`)}, testKnown())
	if err != nil {
		t.Fatal(err)
	}
	a := set.Agents[0]
	if a.MaxSubAgents != 3 || a.MaxDepth != 2 {
		t.Errorf("limits = %d and %d, want 3 and 2", a.MaxSubAgents, a.MaxDepth)
	}
	reader, writer := a.Tools[0], a.Tools[1]
	want := agent.SubAgent[agent.Task]("reader", "Reads a page.", agent.Timeout(time.Hour))
	if reader.Name != "subagent__reader" || reader.SubAgent != "reader" || reader.Description != want.Description ||
		reader.Timeout != want.Timeout || string(reader.InputSchema) != string(want.InputSchema) {
		t.Errorf("tool = %+v, want %+v", reader, want)
	}
	if writer.SubAgent != "writer" || string(writer.InputSchema) != `{"type":"object"}` || string(writer.OutputSchema) != `{"type":"integer"}` || !writer.Strict || !writer.FinishWith {
		t.Errorf("tool = %+v", writer)
	}
}

func TestMistakesOfSubAgentsAreReported(t *testing.T) {
	t.Parallel()
	for tool, want := range map[string]string{
		`{subAgent: "a b"}`:                  "the sub-agent's name",
		`{subAgent: b, approval: always}`:    "approval",
		`{subAgent: b, http: {}}`:            "http",
		`{subAgent: b}, {subAgent: b}`:       "listed twice",
		`{subAgent: b, timeout: soon}`:       "timeout",
		`{subAgent: b, inputSchema: {a: 1}}`: "inputSchema",
	} {
		text := "agents: [{name: a, model: mine/x, tools: [" + tool + "]}]"
		if _, err := Parse(t.Context(), Source{Name: "a.yaml", Data: []byte(text)}, testKnown()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", tool, err, want)
		}
	}
}

func TestAFileDeclaresCompanions(t *testing.T) {
	t.Parallel()
	set, err := Parse(t.Context(), Source{Name: "a.yaml", Data: []byte(`agents:
  - name: a
    model: mine/x
    maxCompanions: 2
    companions:
      - {agent: critic, description: Criticizes., timeout: 10m}
      - {agent: scout, mode: non-blocking}
`)}, testKnown())
	if err != nil {
		t.Fatal(err)
	}
	want := []agent.Companion{
		{Agent: "critic", Description: "Criticizes.", Timeout: 10 * time.Minute}, {Agent: "scout", Mode: agent.CompanionNonBlocking},
	}
	if a := set.Agents[0]; a.MaxCompanions != 2 || !slices.Equal(a.Companions, want) {
		t.Errorf("companions = %+v and at most %d, want %+v and 2", a.Companions, a.MaxCompanions, want)
	}
}

func TestMistakesOfCompanionsAreReported(t *testing.T) {
	t.Parallel()
	for companion, want := range map[string]string{
		`{description: x}`:               "companions[0].agent: it is missing",
		`{agent: b, mode: sometimes}`:    "mode",
		`{agent: b, tools: []}`:          "tools",
		`{agent: b}, {agent: b}`:         "listed twice",
		`{agent: b, timeout: soon}`:      "timeout",
		`{agent: companion__b}`:          "reserved",
		`{agent: b}], maxCompanions: [1`: "maxCompanions",
	} {
		text := "agents: [{name: a, model: mine/x, companions: [" + companion + "]}]"
		if _, err := Parse(t.Context(), Source{Name: "a.yaml", Data: []byte(text)}, testKnown()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", companion, err, want)
		}
	}
}

func TestAFileDeclaresARemoteAgent(t *testing.T) {
	t.Parallel()
	known := testKnown()
	known.Remote = func(address, variable string) (string, error) {
		if address == "https://bad.example" {
			return "", errors.New("the host is not on the list")
		}
		return "key of " + variable, nil
	}
	parse := func(remote string) (*Set, error) {
		return Parse(t.Context(), Source{Name: "a.yaml", Data: []byte("agents: [{name: a, runTimeout: 1h, remote: " + remote + "}]")}, known)
	}
	set, err := parse(`{url: "https://other.example", agent: clerk, apiKeyEnv: OTHER_KEY}`)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := *set.Agents[0].Remote, (agent.Remote{URL: "https://other.example", Agent: "clerk", Key: "key of OTHER_KEY"}); got != want {
		t.Errorf("remote = %+v, want %+v", got, want)
	}
	for remote, want := range map[string]string{
		`{url: "https://bad.example", agent: clerk}`:                "not on the list",
		`{url: nowhere, agent: clerk}`:                              "address of a gateway",
		`{url: "https://other.example"}`:                            "remote.agent: it is missing",
		`{url: "https://other.example", agent: b, key: secret}`:     "key",
		`{url: "https://other.example", agent: b}, model: mine/x`:   "model",
		`{url: "https://other.example", agent: b}, tools: [note]`:   "neither model",
		`{url: "https://other.example", agent: b}, systemPrompt: x`: "neither model",
	} {
		if _, err := parse(remote); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", remote, err, want)
		}
	}
}
