package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdfast-run/holdfast/cmd/holdfast/internal/cli"
	"github.com/holdfast-run/holdfast/services/state"
)

// newBackup returns the command that copies the database.
func newBackup(t *cli.Terminal) *cobra.Command {
	return &cobra.Command{
		Use: "backup FILE", Short: "Copy the SQLite database to a new file, while Holdfast runs", Args: cli.Arguments(1, 1),
		Long: `Copy the database of HOLDFAST_STATE_SQLITE_PATH to a new file, while Holdfast runs. "holdfast dev" has its
database in .holdfast/state.db. The copy has everything that was committed when the command began. Back up
Postgres with its own tools.`,
		RunE: func(c *cobra.Command, args []string) error {
			return copyDatabase(c.Context(), t, args[0], state.Backup, "wrote the database to %s\n")
		},
	}
}

// newRestore returns the command that makes a database of a copy.
func newRestore(t *cli.Terminal) *cobra.Command {
	return &cobra.Command{
		Use: "restore FILE", Short: "Make the SQLite database from a backup", Args: cli.Arguments(1, 1),
		Long: `Check a backup, and make the database of HOLDFAST_STATE_SQLITE_PATH from it. The command replaces no database:
stop Holdfast and move the former one away, with the files beside it that end in -wal and -shm.`,
		RunE: func(c *cobra.Command, args []string) error {
			return copyDatabase(c.Context(), t, args[0], state.Restore, "restored the database from %s\n")
		},
	}
}

func copyDatabase(
	ctx context.Context, t *cli.Terminal, file string, do func(context.Context, state.Config, string) error, done string,
) error {
	c, err := databaseOf(t)
	if err != nil {
		return err
	}
	if err := do(ctx, c, file); err != nil {
		return err
	}
	_, err = fmt.Fprintf(t.Out, done, file)
	if err == nil && c.Files != "database" {
		_, err = fmt.Fprintf(t.Out, "the bytes of files are not in it: HOLDFAST_STATE_FILES is %s\n", c.Files)
	}
	return err
}
