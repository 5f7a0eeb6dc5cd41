// Command counter is an executor with an agent whose methods clients call.
package main

import (
	"context"
	"encoding/json"
	"log"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor"
)

func add(_ context.Context, c *agent.MethodCall) (any, error) {
	var a, b int
	if err := c.Arg(0, &a); err != nil {
		return nil, err
	}
	err := c.Arg(1, &b)
	return a + b, err
}

func increment(ctx context.Context, c *agent.MethodCall) (any, error) {
	var count int64
	err := c.Update(ctx, func(draft agent.State) error {
		was, _ := draft["count"].(json.Number)
		count, _ = was.Int64()
		count++
		draft["count"] = count
		return nil
	})
	return count, err
}

func countdown(ctx context.Context, c *agent.MethodCall) (any, error) {
	from := 0
	if err := c.Arg(0, &from); err != nil {
		return nil, err
	}
	for n := from; n > 0; n-- {
		if err := c.Send(ctx, n); err != nil {
			return nil, err
		}
	}
	return "go", nil
}

func lookup(context.Context, *agent.Call, struct{}) (string, error) { return "", nil }

func main() {
	agents := executor.NewRegistry()
	if err := agents.Register(agent.Agent{
		Name: "Counter", Model: "openai/gpt-5-mini",
		Tools:   []agent.Tool{agent.NewTool("lookup", "Looks something up.", lookup, agent.ReadOnly())},
		Methods: []agent.Method{{Name: "add", Call: add}, {Name: "increment", Call: increment}, {Name: "countdown", Call: countdown}},
	}); err != nil {
		log.Fatal(err)
	}
	executor.Main(agents)
}
