// Command dice is an executor whose agent rolls dice, after asking. Its model follows a script, so it needs no key.
package main

import (
	"context"
	"log"
	"math/rand/v2"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor"
)

const script = `
models:
  player:
    rules:
      - when: {toolFailed: roll}
        reply: 'I keep my die.'
      - when: {toolResult: roll}
        reply: 'It shows {{field .LastResult "eyes"}}.'
      - reply: [{text: 'I roll a die.'}, {call: {name: roll, arguments: {sides: 6}}}]
`

type die struct {
	Sides int `json:"sides" jsonschema:"how many sides the die has, at least 1"`
}

type throw struct {
	Eyes int `json:"eyes"`
}

func roll(_ context.Context, _ *agent.Call, in die) (throw, error) {
	return throw{Eyes: 1 + rand.IntN(max(in.Sides, 1))}, nil
}

var player = agent.Agent{Name: "player", Description: "Rolls a die if you permit it.", Model: "scripted/player", Tools: []agent.Tool{
	agent.NewTool("roll", "Rolls a die.", roll, agent.RequireApproval(), agent.ReadOnly()),
}}

func main() {
	model, err := executor.OpenModel(executor.ModelConfig{Provider: "scripted", Script: script})
	if err != nil {
		log.Fatal(err)
	}
	agents := executor.NewRegistry()
	if err := agents.Model("scripted", model); err != nil {
		log.Fatal(err)
	}
	if err := agents.Register(player); err != nil {
		log.Fatal(err)
	}
	executor.Main(agents)
}
