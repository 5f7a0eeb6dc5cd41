package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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
			if err := writePages(c.Root(), args[0]); err != nil {
				return err
			}
			_, err := fmt.Fprintf(t.Out, "wrote the pages; read one with: man -l %s/holdfast.1\n", args[0])
			return err
		},
	}
}

// writePages writes the pages of a command and of those below it. The generator of cobra would bring two libraries along, to
// convert Markdown.
func writePages(c *cobra.Command, folder string) error {
	for _, below := range c.Commands() {
		if !below.IsAvailableCommand() || below.IsAdditionalHelpTopicCommand() {
			continue
		}
		if err := writePages(below, folder); err != nil {
			return err
		}
	}
	c.InitDefaultHelpFlag()
	return os.WriteFile(filepath.Join(folder, pageOf(c)+".1"), []byte(manPage(c)), 0o600)
}

// pageOf is the name of a command's page.
func pageOf(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// manPage is the page of a command, in the macros of man.
func manPage(c *cobra.Command) string {
	var page strings.Builder
	section := func(heading string, lines ...string) {
		fmt.Fprintf(&page, ".SH %s\n%s\n", heading, strings.Join(lines, "\n"))
	}
	fmt.Fprintf(&page, ".TH %q 1 \"\" Holdfast Holdfast\n", strings.ToUpper(pageOf(c)))
	section("NAME", roff(pageOf(c))+` \- `+roff(c.Short))
	section("SYNOPSIS", `\fB`+roff(c.UseLine())+`\fP`)
	text := c.Long
	if text == "" {
		text = c.Short
	}
	section("DESCRIPTION", roff(text))
	options(c.NonInheritedFlags(), "OPTIONS", section)
	options(c.InheritedFlags(), "OPTIONS INHERITED FROM PARENT COMMANDS", section)
	if c.HasExample() {
		section("EXAMPLE", ".nf", roff(c.Example), ".fi")
	}
	var others []string
	if c.HasParent() {
		others = append(others, `\fB`+roff(pageOf(c.Parent()))+`\fP(1)`)
	}
	for _, below := range c.Commands() {
		if below.IsAvailableCommand() && !below.IsAdditionalHelpTopicCommand() {
			others = append(others, `\fB`+roff(pageOf(below))+`\fP(1)`)
		}
	}
	if len(others) > 0 {
		section("SEE ALSO", strings.Join(others, ", "))
	}
	return page.String()
}

// options writes a section with flags, if there are some.
func options(flags *pflag.FlagSet, heading string, section func(heading string, lines ...string)) {
	var lines []string
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Deprecated != "" {
			return
		}
		name := "--" + f.Name
		if f.Shorthand != "" && f.ShorthandDeprecated == "" {
			name = "-" + f.Shorthand + ", " + name
		}
		value, usage := pflag.UnquoteUsage(f)
		head := `\fB` + roff(name) + `\fP`
		if value != "" {
			head += ` \fI` + roff(value) + `\fP`
		}
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" && f.DefValue != "0" {
			usage += " (default " + f.DefValue + ")"
		}
		lines = append(lines, ".TP", head, roff(usage))
	})
	if len(lines) > 0 {
		section(heading, lines...)
	}
}

// roff escapes a text. An empty line begins a paragraph, and no line begins with a request.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(strings.TrimSpace(text))
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		switch {
		case strings.TrimSpace(line) == "":
			lines[i] = ".PP"
		case strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'"):
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
