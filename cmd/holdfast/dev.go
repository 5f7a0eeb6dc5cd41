package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
)

// devOptions are the command line's options.
type devOptions struct {
	listen string
	data   string
	agents []string
	// endpoints are URLs of agent endpoints.
	endpoints []string
	expose    bool
}

// newDev returns the command that runs the whole system.
func newDev(t *cli.Terminal) *cobra.Command {
	var o devOptions
	c := &cobra.Command{
		Use: "dev", Short: "Run all four services in this process, for development", Args: cli.NoArguments,
		Long: `Run all four services in this process, on SQLite and an embedded JetStream whose files survive restarts.
Files of agents that change are read again, and endpoints are asked every half second whether their agents have
changed. Without files and endpoints there are demo agents, which need no API key.`,
		RunE: func(c *cobra.Command, _ []string) error { return dev(c.Context(), o, t) },
	}
	c.Flags().StringVar(&o.listen, "listen", "127.0.0.1:8080", "the address of the gateway")
	c.Flags().StringVar(&o.data, "data", ".holdfast", "the folder that keeps everything")
	c.Flags().BoolVar(&o.expose, "expose", false,
		"let executors of other processes join, at HOLDFAST_STATE_LISTEN and HOLDFAST_STREAM_LISTEN")
	c.Flags().StringArrayVar(&o.agents, "agents", nil,
		"a YAML file of agents, a folder or a pattern; may be given several times; the demo agents without")
	c.Flags().StringArrayVar(&o.endpoints, "endpoint", nil,
		"the URL of an application with agents of its own (docs/endpoint.md); may be given several times. Requests to it are\n"+
			"signed with HOLDFAST_EXECUTOR_ENDPOINT_SECRETS, and unsigned without")
	return c
}

// dev runs the whole system until ctx ends.
func dev(ctx context.Context, o devOptions, t *cli.Terminal) error {
	lines := &runLines{out: t.Out}
	err := holdfast.Run(ctx, holdfast.Options{
		Data: o.data, Expose: o.expose, Env: o.environ(t.Environ), Hooks: agent.Hooks{AfterRun: lines.print}, ServiceName: "holdfast-dev",
		LogOutput: t.Err, AgentsChanged: lines.printChange,
		Ready: func(r *holdfast.Runtime) error {
			lines.mu.Lock()
			defer lines.mu.Unlock()
			return welcome(t.Out, o, r)
		},
	})
	f, ok := fault.From(err)
	if !ok {
		return err
	}
	detail := flagsForOptions.Replace(f.Detail)
	if detail == f.Detail {
		return err
	}
	return &fault.Fault{Kind: f.Kind, Reason: f.Reason, Detail: detail, Meta: f.Meta}
}

// flagsForOptions names the flags in place of the options that they set.
var flagsForOptions = strings.NewReplacer("Options.Listen", "--listen", "Options.Data", "--data")

// environ returns the environment with what the flags say.
func (o devOptions) environ(environ []string) []string {
	environ = append([]string{"HOLDFAST_EXECUTOR_ENDPOINT_POLL=500ms", "HOLDFAST_EXECUTOR_STORED_AGENTS=true"}, environ...)
	environ = append(environ, "HOLDFAST_GATEWAY_LISTEN="+o.listen)
	if len(o.agents) > 0 {
		environ = append(environ, "HOLDFAST_EXECUTOR_AGENTS="+strings.Join(o.agents, ";"))
	}
	if len(o.endpoints) > 0 {
		environ = append(environ, "HOLDFAST_EXECUTOR_ENDPOINTS="+strings.Join(o.endpoints, ";"))
	}
	return environ
}

// welcome prints the addresses and an example request. The lines of runs follow it.
func welcome(w io.Writer, o devOptions, r *holdfast.Runtime) error {
	invitation := ""
	if r.StateAddr() != nil {
		invitation = fmt.Sprintf("\n  join    HOLDFAST_EXECUTOR_STATE_ADDRESS=%v HOLDFAST_EXECUTOR_STREAM_ADDRESS=%v go run ./your/executor\n",
			r.StateAddr(), r.StreamAddr())
	}
	_, err := fmt.Fprintf(w, `Holdfast is up.

  open    http://%[1]s  (a chat), http://%[1]s/console/  (everything inside)
  or      curl -N http://%[1]s/chat -d '{"id":"hello-1","messages":[{"id":"m1","role":"user","parts":[{"type":"text","text":"What is 6 * 7?"}]}]}'

  agents  %[2]v  (choose one with "agentType" in the body)
  data    %[3]s  (stop with Ctrl-C, start again: everything is there)
%[4]s
`, r.Addr(), r.Agents().Types(), o.data, invitation)
	for _, p := range r.Agents().Problems() {
		if err == nil {
			_, err = fmt.Fprintf(w, "  out of service: %s %q: %s\n", p.Kind, p.Name, cli.OneLine(p.Text))
		}
	}
	return err
}
