package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/holdfast-run/holdfast/pkg/client"
	"github.com/holdfast-run/holdfast/pkg/fault"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
)

// maxApplied is the most files of one agents apply.
const maxApplied = 1000

// StoredAgents returns the commands on agents that a tenant stores.
func StoredAgents(g *Gateway) []*cobra.Command {
	apply := &cobra.Command{
		Use: "apply FILE…", Short: "Store the agents in files, in YAML or JSON", Args: Arguments(1, maxApplied),
		Long: `Store the agents in files: each file has one agent, or is a file of agents. An executor checks them first, and
each mistake has a line with its file, line and column; the command then ends with 1. An agent that has not changed
stays as it is. Executors run stored agents if HOLDFAST_EXECUTOR_STORED_AGENTS is true, as it is with holdfast dev.`,
		RunE: func(c *cobra.Command, files []string) error {
			return g.with(c.Context(), shortPatience, func(h *client.Client) error { return g.applyAll(c.Context(), h, files) })
		},
	}
	get := &cobra.Command{
		Use: "get AGENT", Short: "Print the definition of a stored agent", Args: Arguments(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			return g.with(c.Context(), shortPatience, func(h *client.Client) error {
				found, err := h.StoredAgent(c.Context(), args[0])
				switch {
				case err != nil:
					return err
				case g.JSON:
					return g.printMessage(found)
				}
				return g.printf("%s\n", Clean(found.GetDefinition()))
			})
		},
	}
	remove := &cobra.Command{
		Use: "delete AGENT…", Short: "Delete stored agents. Runs in progress go on", Args: Arguments(1, maxApplied),
		RunE: func(c *cobra.Command, names []string) error {
			return g.with(c.Context(), shortPatience, func(h *client.Client) error {
				for _, name := range names {
					if err := h.DeleteAgent(c.Context(), name, nil); err != nil {
						return err
					}
					if err := g.printf("deleted %s\n", Clean(name)); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	commands := []*cobra.Command{apply, get, remove}
	for _, c := range commands {
		g.AddFlags(c)
	}
	return commands
}

// applied is what agents apply has done with an agent.
type applied struct {
	Agent   string `json:"agent"`
	Outcome string `json:"outcome"`
	Hash    string `json:"hash"`
}

// applyAll stores the agents of the files. ErrFailed: some have mistakes, which it has printed.
func (g *Gateway) applyAll(ctx context.Context, h *client.Client, files []string) error {
	done, mistakes := []applied{}, []string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, name := range agentsIn(file, text) {
			put, err := h.PutAgent(ctx, &agentv1.PutAgentRequest{AgentType: name, Definition: string(text), File: filepath.ToSlash(file)})
			if f, ok := fault.From(err); ok && f.Reason == "AGENTS_INVALID" {
				mistakes = append(mistakes, strings.Split(f.Detail, "\n")...)
				break // of the whole file
			}
			if err != nil {
				return fmt.Errorf("store the agent %q of %s: %w", name, file, err)
			}
			done = append(done, applied{name, put.GetOutcome(), put.GetHash()})
		}
	}
	var err error
	if g.JSON {
		err = g.PrintJSON(map[string]any{"agents": done, "mistakes": mistakes})
	} else {
		for _, a := range done {
			if err = g.printf("%s %s %s\n", a.Outcome, Clean(a.Agent), a.Hash); err != nil {
				return err
			}
		}
		for _, line := range mistakes {
			if err = g.printf("%s\n", Clean(line)); err != nil {
				return err
			}
		}
	}
	if err == nil && len(mistakes) > 0 {
		return fmt.Errorf("%w: %d mistakes", ErrFailed, len(mistakes))
	}
	return err
}

// agentsIn returns the names of the agents in a file. A text that cannot be read has the name of its file, so that an executor
// says what is wrong with it.
func agentsIn(file string, text []byte) (names []string) {
	var content struct {
		Name   string
		Agents []struct{ Name string }
	}
	_ = yaml.Unmarshal(text, &content) // the executor reports it
	for _, a := range content.Agents {
		if a.Name != "" {
			names = append(names, a.Name)
		}
	}
	switch {
	case len(names) > 0:
	case content.Name != "":
		names = []string{content.Name}
	default:
		base := filepath.Base(file)
		names = []string{strings.TrimSuffix(base, filepath.Ext(base))}
	}
	return names
}
