// Command holdfast is the binary for developers: `holdfast dev` runs all services in one process, `holdfast keys
// new` creates an API key.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/process"
)

const usage = `Holdfast keeps conversations with LLM agents alive.

  holdfast dev [--listen 127.0.0.1:8080] [--data .holdfast] [--agents FILE|FOLDER]...
      Run all four services in this process, on SQLite and an embedded
      JetStream whose files survive restarts. Files of agents that change are
      read again.

  holdfast keys new --tenant NAME [--name NAME] [--file FILE]
      Make an API key. The key is printed once; its hash goes to FILE, or is
      printed as well.
`

func main() {
	process.Main(func(ctx context.Context) error {
		err := run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	})
}

func run(ctx context.Context, args, environ []string, stdout, stderr io.Writer) error {
	switch {
	case len(args) == 0 || args[0] == "help" || args[0] == "-h" || args[0] == "--help":
		_, err := io.WriteString(stdout, usage)
		return err
	case args[0] == "dev":
		return dev(ctx, args[1:], environ, stdout, stderr)
	case args[0] == "keys" && len(args) > 1 && args[1] == "new":
		return newKey(args[2:], stdout)
	}
	return fault.New(fault.Invalid, "COMMAND_UNKNOWN", "there is no command %q\n\n%s", fmt.Sprint(args), usage)
}
