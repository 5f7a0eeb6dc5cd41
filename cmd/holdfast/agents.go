package main

import (
	"embed"
	"fmt"
	"strings"

	"github.com/holdfast-run/holdfast/services/executor"
)

// demo holds the demo agents: demo.yaml for everybody, and a file for each
// provider whose key is in the environment.
//
//go:embed demo
var demo embed.FS

// loadAgents reads the agents of the file, or the demo agents when it is
// empty.
func loadAgents(file string, environ []string) (*executor.Agents, error) {
	if file != "" {
		return executor.LoadAgents(file, lookup(environ))
	}
	return demoAgents(environ)
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

// demoAgents joins the scripted agents with those on real models for which
// there is a key.
func demoAgents(environ []string) (*executor.Agents, error) {
	find := lookup(environ)
	text, err := demo.ReadFile("demo/scripted.yaml")
	if err != nil {
		return nil, fmt.Errorf("read the demo agents: %w", err)
	}
	agents, err := executor.ParseAgents(text, "", find)
	if err != nil {
		return nil, fmt.Errorf("demo agents: %w", err)
	}
	for provider, variable := range map[string]string{"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"} {
		if key, ok := find(variable); !ok || key == "" {
			continue
		}
		text, err := demo.ReadFile("demo/" + provider + ".yaml")
		if err != nil {
			return nil, fmt.Errorf("read the demo agents: %w", err)
		}
		more, err := executor.ParseAgents(text, "", find)
		if err != nil {
			return nil, fmt.Errorf("demo agents on %s: %w", provider, err)
		}
		agents = agents.With(more)
	}
	return agents, nil
}

// names gives the agents' names, in their order.
func names(agents *executor.Agents) []string {
	var all []string
	for _, a := range agents.Definitions() {
		all = append(all, a.Name)
	}
	return all
}
