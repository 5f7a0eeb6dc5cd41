package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-run/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/executor"
)

// newAgents returns the commands on agents, those of executors and those in files.
func newAgents(t *cli.Terminal, g *cli.Gateway) *cobra.Command {
	var endpoints []string
	sources := func(c *cobra.Command, args []string) error { // files, or endpoints alone
		return cli.Arguments(1-min(len(endpoints), 1), maxAgentFiles)(c, args)
	}
	check := &cobra.Command{
		Use: "check FILE…", Short: "Check files of agents, and print each mistake with its file and line", Args: sources,
		Long: `Check files of agents as an executor in this environment reads them, with its API keys and permitted hosts:
files, folders or patterns. Each mistake has a line with its file, line and column, and the command then
ends with 1. An executor serves what has no mistake; the command asks for everything. It connects the MCP servers
that the files name and the environment permits; a server that does not answer is a mistake too. With --endpoint it
checks the description of an endpoint as well, and names the places in its application's code.`,
		RunE: func(c *cobra.Command, args []string) error { return checkAgents(c.Context(), t, args, endpoints) },
	}
	describe := &cobra.Command{
		Use: "describe FILE…", Short: "Show the agents in files: models, tools, approvals, limits", Args: sources,
		RunE: func(c *cobra.Command, args []string) error { return describeAgents(c.Context(), t, args, endpoints) },
	}
	for _, c := range []*cobra.Command{check, describe} {
		c.Flags().StringArrayVar(&endpoints, "endpoint", nil, "the URL of an agent endpoint; may be given several times")
	}
	schema := &cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of files of agents, for editors", Args: cli.NoArguments,
		RunE: func(*cobra.Command, []string) error {
			_, err := t.Out.Write(executor.AgentsSchema())
			return err
		},
	}
	t.AddJSON(check, describe)
	return cli.Group("agents", "List and store agents, and check and describe files of agents",
		append([]*cobra.Command{cli.ListAgents(g), check, describe, schema}, cli.StoredAgents(g)...)...)
}

// maxAgentFiles is the most arguments of agents check, as many as an executor reads files.
const maxAgentFiles = 1000

// readAgents reads files of agents and the descriptions of endpoints as an executor does. Close the registry.
func readAgents(ctx context.Context, t *cli.Terminal, files, endpoints []string) (*executor.Registry, error) {
	var c executor.AgentsConfig
	if err := config.Load(&c, t.Environ); err != nil {
		return nil, err
	}
	c.AgentsFiles = strings.Join(files, ";")
	c.Endpoints = strings.Join(endpoints, ";")
	registry := executor.NewRegistry()
	err := registry.Load(ctx, c, executor.RegistryPeers{LookupEnv: t.Lookup, Log: slog.New(slog.DiscardHandler)})
	return registry, err
}

// checkAgents prints the mistakes of files. cli.ErrFailed: there are some.
func checkAgents(ctx context.Context, t *cli.Terminal, files, endpoints []string) (err error) {
	registry, err := readAgents(ctx, t, files, endpoints)
	if registry != nil {
		defer func() { _ = registry.Close() }()
	}
	mistakes := []string{}
	switch {
	case fault.ReasonOf(err) == "AGENTS_INVALID":
		f, _ := fault.From(err)
		mistakes = strings.Split(f.Detail, "\n")
	case err != nil:
		return err
	default:
		mistakes = append(mistakes, registry.Diagnose()...)
	}
	switch {
	case t.JSON:
		view := map[string]any{"valid": len(mistakes) == 0, "mistakes": mistakes}
		if operations := registry.Operations(); len(operations) > 0 {
			view["operations"] = operationViews(operations)
		}
		err = t.PrintJSON(view)
	case len(mistakes) == 0:
		_, err = fmt.Fprintf(t.Out, "no mistakes; agents: %s\n", strings.Join(registry.Types(), ", "))
	default:
		_, err = io.WriteString(t.Out, strings.Join(mistakes, "\n")+"\n")
	}
	if err == nil && !t.JSON {
		err = printOperations(t, registry.Operations())
	}
	if err == nil && len(mistakes) > 0 {
		return fmt.Errorf("%w: %d mistakes", cli.ErrFailed, len(mistakes))
	}
	return err
}

// operationView is what is shown of a tool that comes from an OpenAPI document.
type operationView struct {
	Tool     string `json:"tool"`
	Method   string `json:"method"`
	Path     string `json:"path"`
	ReadOnly bool   `json:"readOnly"`
	Document string `json:"document"`
}

func operationViews(operations []executor.RegistryOperation) []operationView {
	views := make([]operationView, len(operations))
	for i, o := range operations {
		views[i] = operationView{Tool: o.Tool, Method: o.Method, Path: o.Path, ReadOnly: o.ReadOnly, Document: o.Document}
	}
	return views
}

// printOperations prints the tools that come from OpenAPI documents.
func printOperations(t *cli.Terminal, operations []executor.RegistryOperation) error {
	if len(operations) == 0 {
		return nil
	}
	rows := make([][]string, len(operations))
	for i, o := range operations {
		kind := ""
		if o.ReadOnly {
			kind = "read-only"
		}
		rows[i] = []string{o.Tool, o.Method, o.Path, kind, o.Document}
	}
	return t.Table([]string{"TOOL", "METHOD", "PATH", "KIND", "DOCUMENT"}, rows)
}

// agentView is what is shown of an agent.
type agentView struct {
	Name         string     `json:"name"`
	Description  string     `json:"description,omitempty"`
	Model        string     `json:"model,omitempty"`
	Fallbacks    []string   `json:"fallbacks,omitempty"`
	SystemPrompt string     `json:"systemPrompt,omitempty"`
	MaxSteps     int        `json:"maxSteps,omitempty"`
	Output       bool       `json:"outputSchema"`
	Tools        []toolView `json:"tools"`
}

type toolView struct {
	Name        string   `json:"name"`
	Description string   `json:"description,omitempty"`
	Traits      []string `json:"traits,omitempty"` // what sets it apart: client, approval, read-only, sub-agent
}

func describeAgents(ctx context.Context, t *cli.Terminal, files, endpoints []string) error {
	registry, err := readAgents(ctx, t, files, endpoints)
	if registry != nil {
		defer func() { _ = registry.Close() }()
	}
	if err != nil {
		return err
	}
	views := []agentView{}
	for _, name := range registry.Types() {
		if a, ok := registry.Get(name); ok {
			views = append(views, viewOf(a))
		}
	}
	if t.JSON {
		return t.PrintJSON(views)
	}
	for i, v := range views {
		if err := printAgent(t, i, v); err != nil {
			return err
		}
	}
	return nil
}

func viewOf(a agent.Agent) agentView {
	v := agentView{
		Name: a.Name, Description: a.Description, Model: a.Model, Fallbacks: a.Fallbacks, SystemPrompt: a.SystemPrompt,
		MaxSteps: a.MaxSteps, Output: len(a.OutputSchema) > 0, Tools: []toolView{},
	}
	for _, tool := range a.Tools {
		v.Tools = append(v.Tools, toolView{tool.Name, tool.Description, traits(tool)})
	}
	return v
}

func printAgent(t *cli.Terminal, i int, v agentView) error {
	text := ""
	if i > 0 {
		text = "\n"
	}
	text += v.Name
	if v.Description != "" {
		text += ": " + cli.OneLine(v.Description)
	}
	text += "\n"
	for _, line := range [][2]string{
		{"model", strings.Join(append([]string{v.Model}, v.Fallbacks...), ", then ")}, {"prompt", cli.OneLine(v.SystemPrompt)},
	} {
		if line[1] != "" {
			text += fmt.Sprintf("  %-7s %s\n", line[0], line[1])
		}
	}
	if _, err := io.WriteString(t.Out, text); err != nil || len(v.Tools) == 0 {
		return err
	}
	rows := make([][]string, len(v.Tools))
	for i, tool := range v.Tools {
		rows[i] = []string{tool.Name, strings.Join(tool.Traits, ", "), cli.OneLine(tool.Description)}
	}
	return t.Table([]string{"  TOOL", "KIND", "DESCRIPTION"}, rows)
}

// traits says what sets a tool apart.
func traits(t agent.Tool) []string {
	var list []string
	if t.SubAgent != "" {
		list = append(list, "sub-agent")
	}
	if t.Client {
		list = append(list, "client")
	}
	switch {
	case t.Approval:
		list = append(list, "approval")
	case t.ApproveWhen != nil:
		list = append(list, "approval by a rule")
	}
	if t.Approvers == agent.Others {
		list = append(list, "approved by others")
	}
	switch {
	case t.ReadOnly:
		list = append(list, "read-only")
	case t.Retry == agent.RetrySafe:
		list = append(list, "safe")
	}
	return list
}
