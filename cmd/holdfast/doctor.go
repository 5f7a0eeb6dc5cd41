package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-run/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state"
	"github.com/holdfast-run/holdfast/services/stream"
)

// probeTimeout bounds the check of a database or of NATS.
const probeTimeout = 10 * time.Second

// newDoctor returns the command that checks a system.
func newDoctor(t *cli.Terminal, g *cli.Gateway) *cobra.Command {
	var patience time.Duration
	c := &cobra.Command{
		Use: "doctor", Short: "Check a system: gateway, credentials, agents, stuck sessions, database, NATS", Args: cli.NoArguments,
		Long: `Check a system, with one line for each check. The command ends with 1 if one fails. The database and NATS
are checked if the environment names them: HOLDFAST_STATE_POSTGRES_URL or HOLDFAST_STATE_SQLITE_PATH,
and HOLDFAST_STREAM_NATS_URL.`,
		RunE: func(c *cobra.Command, _ []string) error {
			checks := append(g.CheckUp(c.Context(), patience), checkDatabase(c.Context(), t), checkNATS(c.Context(), t))
			return printChecks(t, checks)
		},
	}
	c.Flags().DurationVar(&patience, "queued-for", time.Minute, "a run that is queued for longer is stuck")
	g.AddFlags(c)
	return c
}

// printChecks prints checks. cli.ErrFailed: one has failed.
func printChecks(t *cli.Terminal, checks []cli.Check) error {
	if t.JSON {
		if err := t.PrintJSON(checks); err != nil {
			return err
		}
	}
	failures := 0
	for _, c := range checks {
		if c.Result == cli.Failed {
			failures++
		}
		if t.JSON {
			continue
		}
		if err := t.PrintCheck(c); err != nil {
			return err
		}
	}
	if failures > 0 {
		return fmt.Errorf("%w: %d of %d checks", cli.ErrFailed, failures, len(checks))
	}
	return nil
}

// databaseVariables returns the variables that name a database.
func databaseVariables() []string {
	return []string{"HOLDFAST_STATE_POSTGRES_URL", "HOLDFAST_STATE_SQLITE_PATH"}
}

// databaseOf returns the configuration of the database in the environment. A variable with the location of a database
// selects its kind, unless HOLDFAST_STATE_STORE does. Invalid (DATABASE_UNNAMED, CONFIG_INVALID).
func databaseOf(t *cli.Terminal) (state.Config, error) {
	environ := slices.Clone(t.Environ)
	if kind, _ := t.Lookup("HOLDFAST_STATE_STORE"); kind == "" {
		switch url, _ := t.Lookup("HOLDFAST_STATE_POSTGRES_URL"); url {
		case "":
			environ = append(environ, "HOLDFAST_STATE_STORE=sqlite")
		default:
			environ = append(environ, "HOLDFAST_STATE_STORE=postgres")
		}
	}
	named := slices.ContainsFunc(databaseVariables(), func(name string) bool { value, _ := t.Lookup(name); return value != "" })
	if !named {
		return state.Config{}, fault.New(fault.Invalid, "DATABASE_UNNAMED",
			"no database is configured: set %s", strings.Join(databaseVariables(), " or "))
	}
	var c state.Config
	return c, config.Load(&c, environ)
}

func checkDatabase(ctx context.Context, t *cli.Terminal) cli.Check {
	c, err := databaseOf(t)
	if fault.ReasonOf(err) == "DATABASE_UNNAMED" {
		return cli.Check{Name: "database", Result: cli.Skipped, Text: strings.Join(databaseVariables(), " or ") + " would name it"}
	}
	var schema state.Schema
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		schema, err = state.ReadSchema(ctx, c)
	}
	switch {
	case err != nil:
		return cli.FailedCheck("database", err)
	case schema.Applied < schema.Known:
		return cli.Check{
			Name: "database", Result: cli.Failed,
			Text: schemaLine(schema) + "; \"holdfast migrate up\" or the start of the state service applies them",
		}
	case schema.Applied > schema.Known:
		return cli.Check{Name: "database", Result: cli.Failed, Text: schemaLine(schema)}
	}
	return cli.Check{Name: "database", Result: cli.Passed, Text: schemaLine(schema)}
}

func checkNATS(ctx context.Context, t *cli.Terminal) cli.Check {
	if url, _ := t.Lookup("HOLDFAST_STREAM_NATS_URL"); url == "" {
		return cli.Check{Name: "nats", Result: cli.Skipped, Text: "HOLDFAST_STREAM_NATS_URL would name it"}
	}
	var c stream.Config
	err := config.Load(&c, t.Environ)
	var version string
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		version, err = stream.Probe(ctx, c)
	}
	if err != nil {
		return cli.FailedCheck("nats", err)
	}
	return cli.Check{Name: "nats", Result: cli.Passed, Text: "NATS " + version + " with JetStream answers"}
}
