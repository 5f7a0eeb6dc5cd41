package demo

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor"
)

// list is the custom state of the shopper.
type list struct {
	Items []string `json:"items"`
}

func (l list) String() string {
	if len(l.Items) == 0 {
		return "Your shopping list is empty."
	}
	return fmt.Sprintf("Your shopping list: %s.", strings.Join(l.Items, ", "))
}

// registerShopper registers the demo agent in Go. It keeps a shopping list in the custom state of its session.
func registerShopper(agents *executor.Registry) error {
	script, err := files.ReadFile("shopper.script.yaml")
	if err != nil {
		return fmt.Errorf("read the demo agents: %w", err)
	}
	model, err := executor.OpenModel(executor.ModelConfig{Provider: "scripted", Script: string(script)})
	if err != nil {
		return fmt.Errorf("demo agents: %w", err)
	}
	if err := agents.Model("demo", model); err != nil {
		return err
	}
	return agents.Register(agent.Agent{
		Name: "shopper", Model: "demo/shopper", MaxSteps: 8,
		Description: "Keeps a shopping list in the state of the session.",
		StateSchema: []byte(`{"type":"object","properties":{"items":{"type":"array","items":{"type":"string"},"default":[]}}}`),
		Prompt: func(_ context.Context, run *agent.RunView) (string, error) {
			items, _ := run.State["items"].([]any)
			var l list
			for _, item := range items {
				l.Items = append(l.Items, fmt.Sprint(item))
			}
			return l.String(), nil
		},
		Tools: []agent.Tool{agent.NewTool("add_item", "Adds an item to the shopping list.", addItem, agent.Safe())},
	})
}

type item struct {
	Item string `json:"item" jsonschema:"what to buy"`
}

type added struct {
	Text string `json:"text"`
}

func addItem(_ context.Context, call *agent.Call, in item) (added, error) {
	var now list
	err := agent.UpdateState(call, func(l *list) error {
		l.Items = append(l.Items, strings.TrimSpace(in.Item))
		now = *l
		return nil
	})
	return added{Text: now.String()}, err
}
