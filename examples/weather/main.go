// Command weather is a custom executor: an agent and its tools in Go.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor"
)

type place struct {
	City string `json:"city" jsonschema:"the name of the city"`
}

func forecast(_ context.Context, _ *agent.Call, in place) (string, error) {
	return fmt.Sprintf("In %s it will be sunny, at %d degrees.", in.City, 15+len(in.City)), nil
}

func clock(_ context.Context, _ *agent.Call, _ struct{}) (string, error) {
	return time.Now().Format(time.RFC1123), nil
}

var weather = agent.Agent{Name: "weather", Model: "openai/gpt-5-mini", SystemPrompt: "You tell people the weather.", Tools: []agent.Tool{
	agent.NewTool("forecast", "Tells tomorrow's weather in a city.", forecast, agent.ReadOnly()),
	agent.NewTool("clock", "Tells the date and the time.", clock, agent.ReadOnly()),
}}

func main() {
	agents := executor.NewRegistry()
	if err := agents.Register(weather); err != nil {
		log.Fatal(err)
	}
	executor.Main(agents)
}
