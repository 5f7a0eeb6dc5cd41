package main

import (
	"context"
	"errors"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-run/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/pkg/process"
	"github.com/holdfast-run/holdfast/pkg/service"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
)

// serveConfig is the configuration of the process itself.
type serveConfig struct {
	Telemetry telemetry.Config
	Grace     time.Duration `env:"HOLDFAST_SHUTDOWN_GRACE" envDefault:"10s" doc:"time for calls and steps to end at shutdown"`
}

// endGrace is how long a service may take beyond the grace: it waits for its own tasks for six seconds of it.
const endGrace = 12 * time.Second

// flushGrace bounds the export of the last spans.
const flushGrace = 5 * time.Second

// flush exports the last spans.
func flush(ctx context.Context, t *telemetry.Telemetry) {
	ctx, cancel := context.WithTimeout(ctx, flushGrace)
	defer cancel()
	if err := t.Shutdown(ctx); err != nil {
		t.Log.WarnContext(ctx, "spans were lost at shutdown", "error", err)
	}
}

// newServe returns the command that runs services for production.
func newServe(t *cli.Terminal) *cobra.Command {
	var names []string
	c := &cobra.Command{
		Use: "serve", Short: "Run any of the services in this process, for production", Args: cli.NoArguments,
		Long: `Run any of the services in this process, with the configuration of their own processes: environment
variables, which "holdfast config" lists. They listen on and call the configured addresses, and refuse
addresses that others reach without credentials. At shutdown, executor and gateway end before the
services that they call.`,
		Example: "  holdfast serve\n  holdfast serve --services gateway,executor",
		RunE:    func(c *cobra.Command, _ []string) error { return serve(c.Context(), t, names) },
	}
	c.Flags().StringSliceVar(&names, "services", nil, "the services to run: state, stream, executor, gateway; all without")
	return c
}

// serve runs services until ctx ends. Invalid (SERVICE_UNKNOWN, CONFIG_INVALID), and the faults of the services.
func serve(ctx context.Context, t *cli.Terminal, names []string) (err error) {
	signal.Ignore(syscall.SIGHUP) // an executor reads its files again; no service ends with a terminal
	selected, err := componentsNamed(names, t.Environ)
	if err != nil {
		return err
	}
	c := serveConfig{Telemetry: telemetry.Config{ServiceName: "holdfast"}}
	problems := config.Load(&c, t.Environ)
	runs := make([]func(context.Context, *telemetry.Telemetry) error, len(selected))
	for i, s := range selected {
		run, err := s.load(t.Environ)
		problems, runs[i] = errors.Join(problems, err), run
	}
	if problems != nil {
		return problems
	}
	tel, err := telemetry.Setup(ctx, c.Telemetry, t.Err)
	if err != nil {
		return err
	}
	defer flush(context.WithoutCancel(ctx), tel)
	for _, name := range unknownVariables(t.Environ) {
		tel.Log.WarnContext(ctx, "unknown environment variable has no effect", "name", name)
	}
	var called, callers []process.Task
	for i, s := range selected {
		task := process.Task{Name: s.name, Run: func(ctx context.Context) error { return runs[i](ctx, tel) }}
		if s.calls {
			callers = append(callers, task)
		} else {
			called = append(called, task)
		}
	}
	return process.RunInOrder(ctx, c.Grace+endGrace, called, callers)
}

// unknownVariables returns the variables of Holdfast in environ that nothing reads.
func unknownVariables(environ []string) []string {
	known := map[string]bool{cli.URLVariable: true, cli.KeyVariable: true}
	for _, s := range components(environ) {
		for _, setting := range s.settings(nil) {
			known[setting.Name] = true
		}
	}
	var unknown []string
	for _, name := range config.Unknown(environ, service.Prefix) {
		if !known[name] {
			unknown = append(unknown, name)
		}
	}
	return unknown
}
