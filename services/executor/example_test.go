package executor_test

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor"
)

// A registry holds agents of Go. executor.Main(agents) would run an executor with them.
func ExampleRegistry() {
	agents := executor.NewRegistry()
	err := agents.Register(agent.Agent{
		Name:  "weather",
		Model: "openai/gpt-5-mini",
		Tools: []agent.Tool{
			agent.NewTool("forecast", "Tells the weather.", func(_ context.Context, _ *agent.Call, in struct {
				City string `json:"city"`
			}) (string, error) {
				return "Sunny in " + in.City, nil
			}),
		},
	})
	if err != nil {
		fmt.Println(err)
	}
	err = agents.RegisterFactory("assistant", "Knows whom it talks to.", func(_ context.Context, f executor.For) (agent.Agent, error) {
		return agent.Agent{Model: "openai/gpt-5-mini", SystemPrompt: "You talk to " + f.UserID}, nil
	})
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println(agents.Types())
	fmt.Println(agents.Register(agent.Agent{Name: "weather", Model: "gpt"}))
	// Output:
	// [assistant weather]
	// AGENT_INVALID: agent "weather": model: it is "gpt", and must be provider/name, for example openai/gpt-5
}

// shouting is a model of one's own: it says what it heard, louder.
type shouting struct{}

func (shouting) Generate(_ context.Context, r executor.ModelRequest) iter.Seq2[executor.ModelEvent, error] {
	return func(yield func(executor.ModelEvent, error) bool) {
		heard := r.Messages[len(r.Messages)-1].Text()
		_ = yield(executor.TextDelta{Text: strings.ToUpper(heard)}, nil) &&
			yield(executor.Finish{Reason: executor.FinishStop}, nil)
	}
}

// A registry serves providers of one's own beside those that Holdfast has.
func ExampleRegistry_Model() {
	agents := executor.NewRegistry()
	if err := agents.Model("loud", shouting{}); err != nil {
		fmt.Println(err)
	}
	if err := agents.Register(agent.Agent{Name: "echo", Model: "loud/any"}); err != nil {
		fmt.Println(err)
	}
	request := executor.ModelRequest{Messages: []agent.Message{{Role: agent.RoleUser, Parts: []agent.Part{agent.Text{Text: "hello"}}}}}
	for event := range (shouting{}).Generate(context.Background(), request) {
		fmt.Printf("%T %v\n", event, event)
	}
	// Output:
	// model.TextDelta {HELLO}
	// model.Finish {stop}
}
