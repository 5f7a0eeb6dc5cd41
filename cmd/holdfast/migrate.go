package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-run/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfast-run/holdfast/services/state"
)

// newMigrate returns the commands on the schema of the database.
func newMigrate(t *cli.Terminal) *cobra.Command {
	status := &cobra.Command{
		Use: "status", Short: "Show which migrations the database has; changes nothing", Args: cli.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error { return migrate(c.Context(), t, state.ReadSchema) },
	}
	up := &cobra.Command{
		Use: "up", Short: "Apply the missing migrations, as the start of the state service does", Args: cli.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error { return migrate(c.Context(), t, state.Migrate) },
	}
	var withSQL bool
	plan := &cobra.Command{
		Use: "plan", Short: "List the migrations that \"migrate up\" would apply; changes nothing", Args: cli.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error { return planMigrations(c.Context(), t, withSQL) },
	}
	plan.Flags().BoolVar(&withSQL, "sql", false, "print their SQL, for a review")
	t.AddJSON(status, up, plan)
	group := cli.Group("migrate", "Show and update the schema of the database", status, plan, up)
	group.Long = "Show and update the schema of the database of HOLDFAST_STATE_POSTGRES_URL or HOLDFAST_STATE_SQLITE_PATH."
	return group
}

func migrate(ctx context.Context, t *cli.Terminal, do func(context.Context, state.Config) (state.Schema, error)) error {
	c, err := databaseOf(t)
	if err != nil {
		return err
	}
	schema, err := do(ctx, c)
	if err != nil {
		return err
	}
	if t.JSON {
		return t.PrintJSON(map[string]any{
			"server": schema.Server, "applied": schema.Applied, "known": schema.Known, "current": schema.Applied == schema.Known,
		})
	}
	_, err = fmt.Fprintln(t.Out, schemaLine(schema))
	return err
}

// planMigrations prints the missing migrations.
func planMigrations(ctx context.Context, t *cli.Terminal, withSQL bool) error {
	c, err := databaseOf(t)
	if err != nil {
		return err
	}
	schema, err := state.ReadSchema(ctx, c)
	if err != nil {
		return err
	}
	if t.JSON {
		names := []string{}
		for _, m := range schema.Missing {
			names = append(names, m.Name)
		}
		return t.PrintJSON(map[string]any{"server": schema.Server, "applied": schema.Applied, "missing": names})
	}
	var text strings.Builder
	for _, m := range schema.Missing {
		if !withSQL {
			text.WriteString(m.Name + "\n")
			continue
		}
		text.WriteString("-- " + m.Name + "\n" + m.SQL + "\n") // for psql
	}
	if len(schema.Missing) == 0 {
		text.WriteString(schemaLine(schema) + "\n")
	}
	_, err = fmt.Fprint(t.Out, text.String())
	return err
}

// schemaLine describes a schema.
func schemaLine(s state.Schema) string {
	switch {
	case s.Server == "":
		return fmt.Sprintf("there is no database yet, and %d migrations are to be applied", s.Known)
	case s.Applied < s.Known:
		return fmt.Sprintf("%s has migration %d of %d: %d are missing", s.Server, s.Applied, s.Known, s.Known-s.Applied)
	case s.Applied > s.Known:
		return fmt.Sprintf("%s has migration %d, and this release knows %d: it is older than the database", s.Server, s.Applied, s.Known)
	}
	return fmt.Sprintf("%s has all %d migrations", s.Server, s.Known)
}
