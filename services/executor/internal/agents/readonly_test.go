package agents

import (
	"fmt"
	"testing"
)

func TestAFileDeclaresReadOnlyTools(t *testing.T) {
	t.Parallel()
	known := testKnown()
	clock := builtIn("clock")
	clock.ReadOnly = true
	known.Tools["clock"] = clock
	for tool, want := range map[string]bool{
		"note":                             false,
		"clock":                            true,
		"{use: note, readOnly: true}":      true,
		"{use: clock, timeout: 5s}":        true,
		"{use: clock, readOnly: false}":    false,
		"{use: clock, retry: never}":       false,
		"{use: clock, retry: safe}":        true,
		"{use: declared}":                  true,
		"{use: declared, readOnly: false}": false,
	} {
		text := fmt.Sprintf(`tools: [{name: declared, http: {url: "http://127.0.0.1/"}, readOnly: true}]
agents: [{name: a, model: mine/x, tools: [%s]}]
`, tool)
		known.HTTP.Policy.Hosts = []string{"127.0.0.1"}
		set, err := Parse(t.Context(), Source{Name: "a.yaml", Data: []byte(text)}, known)
		if err != nil {
			t.Fatalf("%s: %v", tool, err)
		}
		if got := set.Agents[0].Tools[0].ReadOnly; got != want {
			t.Errorf("%s is read-only = %v, want %v", tool, got, want)
		}
	}
}
