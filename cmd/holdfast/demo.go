package main

import (
	"context"
	"embed"
	"fmt"
	"log/slog"
	"strings"

	"github.com/holdfast-run/holdfast/services/executor"
)

// demo holds the demo agents: scripted.yaml, researcher.yaml and editor.yaml need no key. The file of a model provider is used if
// its key is set. It also holds the script of the agent in Go.
//
//go:embed demo
var demo embed.FS

// loadAgents loads agents from files and reloads them on changes. Without files it loads the demo agents.
func loadAgents(ctx context.Context, c executor.AgentsConfig, environ []string, log *slog.Logger) (*executor.Registry, error) {
	registry := executor.NewRegistry()
	if c.AgentsFiles != "" {
		return registry, registry.Load(ctx, c, executor.RegistryPeers{LookupEnv: lookup(environ), Log: log})
	}
	agents, err := demoAgents(environ) //nolint:contextcheck // the demo agents connect to nothing
	if err != nil {
		return nil, err
	}
	if err := registry.Use(agents); err != nil {
		return nil, err
	}
	return registry, registerShopper(registry)
}

func lookup(environ []string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for _, line := range environ {
			if value, ok := strings.CutPrefix(line, name+"="); ok {
				return value, true
			}
		}
		return "", false
	}
}

// demoAgents combines the scripted agents with agents for each provider key in the environment.
func demoAgents(environ []string) (*executor.Agents, error) {
	find := lookup(environ)
	names := []string{"scripted", "researcher", "editor"}
	variables := map[string]string{"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY", "gemini": "GEMINI_API_KEY"}
	for provider, variable := range variables {
		if key, ok := find(variable); ok && key != "" {
			names = append(names, provider)
		}
	}
	agents := &executor.Agents{}
	for _, name := range names {
		text, err := demo.ReadFile("demo/" + name + ".yaml")
		if err != nil {
			return nil, fmt.Errorf("read the demo agents: %w", err)
		}
		more, err := executor.ParseAgents(text, "", find)
		if err != nil {
			return nil, fmt.Errorf("demo agents of %s: %w", name, err)
		}
		agents = agents.With(more)
	}
	return agents, nil
}
