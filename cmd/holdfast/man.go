package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/holdfast-run/holdfast/cmd/holdfast/internal/cli"
)

// newMan returns the command that writes the pages of man.
func newMan(t *cli.Terminal) *cobra.Command {
	return &cobra.Command{
		Use: "man FOLDER", Short: "Write a page of man for each command", Args: cli.Arguments(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o750); err != nil {
				return err
			}
			header := &doc.GenManHeader{Section: "1", Source: "Holdfast", Manual: "Holdfast"}
			if err := doc.GenManTree(c.Root(), header, args[0]); err != nil {
				return err
			}
			_, err := fmt.Fprintf(t.Out, "wrote the pages; read one with: man -l %s/holdfast.1\n", args[0])
			return err
		},
	}
}
