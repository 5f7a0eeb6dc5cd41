package aisdk_test

import (
	"strings"
	"testing"
)

// unnamed are clients that do not tell their version in the address.
var unnamed = []client{
	{"ai 7.0.173, unnamed", 7, "ai", ""},
	{"ai 6.0.326, unnamed", 6, "ai6", ""},
	{"ai 6.0.0, unnamed", 6, "ai600", ""},
	{"ai 5.0.277, unnamed", 5, "ai5", ""},
	{"ai 5.0.0, unnamed", 5, "ai500", ""},
	{"ai 6.0.0 behind another's address", 6, "ai600", "?aiSdk=7"}, // its user agent counts
}

// Clients of all versions accept the stream of a gateway that does not know their version.
func TestClientsOfAllVersionsNeedNotTellTheirVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range unnamed {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			mine := unnamedScenarios(c)
			results := w.play(t, c, mine)
			for _, s := range mine {
				t.Run(s.Name, func(t *testing.T) { judge(t, s, results[s.Name]) })
			}
		})
	}
}

func unnamedScenarios(c client) []scenario {
	ready := func(want string) func(*testing.T, *played) {
		return func(t *testing.T, p *played) {
			p.ready(t)
			if got := p.Messages[len(p.Messages)-1].Text(); got != want {
				t.Errorf("the answer is %q, want %q", got, want)
			}
		}
	}
	note := c.uniqueText("note it", c.Name)
	return []scenario{
		{Name: "a text of " + c.Name, Agent: "helper", Steps: []step{send("hello")}, check: ready("You said: hello")},
		{Name: "a server tool of " + c.Name, Agent: "helper", Steps: []step{send(note)}, check: ready(`I was told: {"written":true}`)},
		{
			Name: "a refused request of " + c.Name, Agent: "helper", Steps: []step{send("hello"), send(strings.Repeat("long ", 300_000))},
			check: func(t *testing.T, p *played) {
				if p.Status != "error" || !strings.HasPrefix(p.Error, "The message is too large: ") {
					t.Errorf("the chat is %s with %q, want a sentence", p.Status, p.Error)
				}
			},
		},
	}
}
