// Package demo has the demo agents. They need no API key: their models follow scripts.
package demo

import (
	"embed"
	"fmt"

	"github.com/holdfast-run/holdfast/services/executor"
)

// files holds the demo agents: scripted.yaml, researcher.yaml and editor.yaml need no key. The file of a model provider is used if
// its key is set. It also holds the script of the agent in Go.
//
//go:embed *.yaml
var files embed.FS

// Register adds the demo agents to the registry. lookupEnv finds the keys of model providers.
func Register(registry *executor.Registry, lookupEnv func(string) (string, bool)) error {
	agents, err := inFiles(lookupEnv)
	if err != nil {
		return err
	}
	if err := registry.Use(agents); err != nil {
		return err
	}
	return registerShopper(registry)
}

// inFiles combines the scripted agents with agents for each provider key in the environment.
func inFiles(lookupEnv func(string) (string, bool)) (*executor.Agents, error) {
	names := []string{"scripted", "researcher", "editor"}
	variables := map[string]string{"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY", "gemini": "GEMINI_API_KEY"}
	for provider, variable := range variables {
		if key, ok := lookupEnv(variable); ok && key != "" {
			names = append(names, provider)
		}
	}
	agents := &executor.Agents{}
	for _, name := range names {
		text, err := files.ReadFile(name + ".yaml")
		if err != nil {
			return nil, fmt.Errorf("read the demo agents: %w", err)
		}
		more, err := executor.ParseAgents(text, "", lookupEnv)
		if err != nil {
			return nil, fmt.Errorf("demo agents of %s: %w", name, err)
		}
		agents = agents.With(more)
	}
	return agents, nil
}
