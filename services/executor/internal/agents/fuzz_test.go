package agents

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
)

func FuzzAnAgentsFileIsReadOrRefused(f *testing.F) {
	f.Add([]byte(whole))
	examples, err := filepath.Glob("../../../../examples/*/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range examples {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	for _, seed := range []string{"agents: [*a]", "a: &a [*a]", "agents:\n- {name: a, model: mine/x, tools: [{use: calculate, approval: {when: [{field: a.b, equals: 1e999}]}}]}", "? [a]: b", "---\n---\n", "agents: !!set {a}"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		set, err := Parse(t.Context(), Source{Name: "agents.yaml", Data: text}, testKnown())
		if err != nil {
			if !errors.Is(err, fault.Invalid) {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		for _, a := range set.Agents {
			if a.Name == "" {
				t.Errorf("%q has an agent without a name", text)
			}
		}
	})
}

func FuzzAnApprovalConditionIsDecided(f *testing.F) {
	const file = `
agents:
  - name: a
    model: mine/x
    tools: [{use: calculate, approval: {when: [{field: n, greaterThan: 100}]}}]
`
	for _, seed := range []string{`{"n":101}`, `{"N":1}`, `{"n":1e999}`, `{"n":"101"}`, `{"n":{"n":1}}`, `[]`, `{"n":-0.0e-999999999999}`} {
		f.Add([]byte(seed))
	}
	set, err := Parse(f.Context(), Source{Name: "agents.yaml", Data: []byte(file)}, testKnown())
	if err != nil {
		f.Fatal(err)
	}
	approves := set.Agents[0].Tools[0].NeedsApproval
	f.Fuzz(func(t *testing.T, input []byte) {
		call := &agent.Call{Input: input}
		first, second := approves(t.Context(), call), approves(t.Context(), call)
		if first != second {
			t.Errorf("%q needs approval: %v, then %v", input, first, second)
		}
	})
}
