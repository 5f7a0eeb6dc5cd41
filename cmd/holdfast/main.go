// Command holdfast runs Holdfast and inspects it: `holdfast dev` runs all services in one process for development,
// `holdfast serve` for production, and the other commands show and change what a running system does.
package main

import (
	"context"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/holdfast-run/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/process"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		process.ReserveHeap(process.ServiceReserve) // as in the services' own processes
	}
	process.Main(func(ctx context.Context) error {
		t := &cli.Terminal{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Environ: os.Environ()}
		noColor, _ := t.Lookup("NO_COLOR")
		shell, _ := t.Lookup("TERM")
		t.Colors = noColor == "" && shell != "dumb" && term.IsTerminal(int(os.Stdout.Fd()))
		t.Asks = term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd()))
		return execute(ctx, t, os.Args[1:])
	})
}

// run executes a command without a person at its input.
func run(ctx context.Context, args, environ []string, stdout, stderr io.Writer) error {
	return execute(ctx, &cli.Terminal{In: eof{}, Out: stdout, Err: stderr, Environ: environ}, args)
}

// eof is an input without content.
type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }

// execute executes a command. Invalid (COMMAND_UNKNOWN, ARGUMENT_UNKNOWN, ARGUMENT_MISSING, FLAG_INVALID), and the
// faults of the command.
func execute(ctx context.Context, t *cli.Terminal, args []string) error {
	root := newRoot(t) //nolint:contextcheck // the commands have the context of ExecuteContext
	root.SetArgs(args)
	root.SetIn(t.In)
	root.SetOut(t.Out)
	root.SetErr(t.Err)
	return root.ExecuteContext(ctx)
}

// The groups of commands in the help.
const (
	runGroup     = "run"
	inspectGroup = "inspect"
	prepareGroup = "prepare"
)

// newRoot returns the command holdfast with all its commands.
func newRoot(t *cli.Terminal) *cobra.Command {
	g := cli.NewGateway(t)
	root := cli.Group("holdfast", "A durable runtime for LLM agents")
	root.Long = "Holdfast keeps conversations with LLM agents alive."
	root.SetUsageTemplate(root.UsageTemplate() + "\n" + process.ExitCodes + "\n")
	root.Version = process.Version()
	root.SetVersionTemplate("holdfast {{.Version}}\n")
	root.SilenceErrors = true
	root.SilenceUsage = true
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fault.New(fault.Invalid, "FLAG_INVALID", "%v; %q lists the flags", err, c.CommandPath()+" --help")
	})
	root.AddGroup(
		&cobra.Group{ID: runGroup, Title: "Run Holdfast:"},
		&cobra.Group{ID: inspectGroup, Title: "Look inside a running system:"},
		&cobra.Group{ID: prepareGroup, Title: "Prepare and check:"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
		}
		root.AddCommand(commands...)
	}
	add(runGroup, newDev(t), newServe(t))
	add(inspectGroup, cli.Sessions(g), cli.Runs(g), cli.Calls(g), cli.Chat(g), newAgents(t, g), cli.Usage(g), cli.Audit(g), newDoctor(t, g))
	add(prepareGroup, newKeys(t), cli.Tokens(g), newConfig(t), newMigrate(t), newBackup(t), newRestore(t), newMan(t))
	return root
}
