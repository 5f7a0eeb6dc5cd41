// Command goapp is the conformance app in Go: an executor with the agents that tsapp and pyapp serve at an endpoint. Their
// tools, hooks and other functions do what the suite says, in the arguments of a call or in the custom state.
package main

import (
	"log"
	"os"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor"
)

func main() {
	out := outside{url: os.Getenv("OUTSIDE_URL")}
	agents := executor.NewRegistry()
	model, err := executor.OpenModel(executor.ModelConfig{Provider: "openai", BaseURL: os.Getenv("MODEL_URL"), APIKey: "a-key"})
	if err != nil {
		log.Fatal(err)
	}
	if err := agents.Model("suite", model); err != nil {
		log.Fatal(err)
	}
	for _, a := range out.agents(os.Getenv("EDITION")) {
		if err := agents.Register(a); err != nil {
			log.Fatal(err)
		}
	}
	executor.Main(agents)
}

// agents returns the agents of an edition of the app. Edition 2 has another prompt and one agent more.
func (o outside) agents(edition string) []agent.Agent {
	list := []agent.Agent{
		o.puppet(), o.worker(), o.schemed(), o.prompter(), o.stopper(), o.finisher(), o.guarded(), o.guardedOutput(), o.hooked(), o.leading(),
		o.compacting(), o.advised(), o.limited(), o.methodical(), o.unusual(), o.bare(),
	}
	if edition == "2" {
		list[0].SystemPrompt = "You are the second puppet."
		list = append(list, agent.Agent{Name: "newcomer", SystemPrompt: "You are new."})
	}
	for i := range list {
		list[i].Model = "suite/model"
	}
	return list
}
