package scripted_test

import (
	"context"
	"fmt"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/scripted"
)

func Example() {
	script, err := scripted.Parse([]byte(`
models:
  demo:
    chunk: 3 words
    rules:
      - when: {toolResult: weather}
        reply: 'It is {{field .LastResult "sky"}} there.'
      - when: {lastUser: '(?i)weather in (?P<city>\w+)'}
        reply:
          - text: Let me look.
          - call: {name: weather, arguments: {city: '{{.Group.city}}'}}
      - reply: 'You said: {{join .Users ", "}}'
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	question := agent.Message{Role: agent.RoleUser, Parts: []agent.Part{agent.Text{Text: "How is the weather in Rome?"}}}
	request := model.Request{Model: "demo", Messages: []agent.Message{question}}
	for event, err := range scripted.New(script).Generate(context.Background(), request) {
		switch e := event.(type) {
		case model.TextDelta:
			fmt.Printf("%q\n", e.Text)
		case model.CallEnd:
			fmt.Printf("call with %s\n", e.Arguments)
		case model.Finish:
			fmt.Println(e.Reason)
		case nil:
			fmt.Println(err)
		}
	}
	// Output:
	// "Let me look."
	// call with {"city":"Rome"}
	// tool-calls
}
