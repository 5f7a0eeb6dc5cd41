// Command crier is an executor of an agent in Go whose tool tells user interfaces of
// what it does, and changes the custom state.
package main

import (
	"context"
	"log"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor"
)

const script = `
models:
  crier:
    rules:
      - when: {toolResult: cry}
        reply: 'It is known.'
      - reply: [{call: {name: cry, arguments: {news: '{{.LastUser}}'}}}]
`

type news struct {
	News string `json:"news"`
}

type kept struct {
	Last string `json:"last"`
}

func cry(ctx context.Context, call *agent.Call, in news) (string, error) {
	if err := call.Emit(ctx, "news", in); err != nil {
		return "", err
	}
	return "cried", agent.UpdateState(call, func(k *kept) error {
		k.Last = in.News
		return nil
	})
}

func main() {
	agents := executor.NewRegistry()
	model, err := executor.OpenModel(executor.ModelConfig{Provider: "scripted", Script: script})
	if err != nil {
		log.Fatal(err)
	}
	if err := agents.Model("demo", model); err != nil {
		log.Fatal(err)
	}
	if err := agents.Register(agent.Agent{
		Name: "crier", Model: "demo/crier", Tools: []agent.Tool{agent.NewTool("cry", "Cries the news.", cry, agent.Safe())},
	}); err != nil {
		log.Fatal(err)
	}
	executor.Main(agents)
}
