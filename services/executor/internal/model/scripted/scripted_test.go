package scripted_test

import (
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/scripted"
)

func TestX(t *testing.T) {
	for _, src := range []string{`
models:
  demo:
    chunk: 1 word
    delay: 1ms
    rules:
      - when: {toolResult: weather}
        reply: 'It is {{field .LastResult "sky"}} there.'
      - when: {lastUser: '(?i)weather in (?P<city>\w+)'}
        reply:
          - reasoning: They want the weather.
          - text: Let me look.
          - call: {name: weather, arguments: {city: '{{.Group.city}}', days: 3, deep: {a: [x, 2.5, null, true]}}}
      - reply: 'You said: {{join .Users ", "}}'
`, "models:\n  demo:\n    rules:\n      - when: {lastUser: '(('}\n        reply: x\n",
		"models:\n  demo:\n    rules:\n      - whn: {lastUser: '('}\n        reply: x\n",
		"models:\n  demo:\n    rules:\n      - reply:\n        - text: x\n        - text: y\n          wait: 3s\n",
		"models:\n  demo:\n    rules:\n      - reply:\n        - text: 'x {{.Foo'\n",
		"models:\n  demo:\n    rules:\n      - reply:\n        - finish: bad\n",
		"models:\n  demo:\n    rules:\n      - reply: a\n      - reply: b\n",
		"models:\n  demo:\n    delay: xx\n    rules:\n      - reply: a\n",
		"models:\n  demo:\n    rules:\n      - reply: 12\n        chunk: 1\n",
		"models:\n  demo:\n    rules:\n      - reply: \n",
		"", "models:\n  demo:\n", "a: [", "models: {}\n---\na: b\n", "models:\n  demo: 3\n",
	} {
		s, err := scripted.Parse([]byte(src))
		if err != nil {
			t.Log(err)
			continue
		}
		m := scripted.New(s)
		for _, u := range []string{"hi", "weather in Paris"} {
			for e, err := range m.Generate(t.Context(), model.Request{Model: "demo", Messages: []agent.Message{{Role: agent.RoleUser, Parts: []agent.Part{agent.Text{Text: u}}}}}) {
				if c, ok := e.(model.CallEnd); ok {
					t.Log(string(c.Arguments))
				}
				t.Logf("%#v %v", e, err)
			}
		}
	}
}
