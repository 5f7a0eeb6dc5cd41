// Command holdfast is the binary for developers: `holdfast dev` runs all services in one process, `holdfast keys`
// manages API keys.
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

  holdfast keys new --tenant NAME [--name NAME] [--expires 720h] [--file FILE]
      Make an API key. The key is printed once; its hash goes to FILE, or is
      printed as well. Gateways take over changes of FILE within seconds.

  holdfast keys list --file FILE
  holdfast keys revoke --tenant NAME [--name NAME] --file FILE
  holdfast keys rotate --tenant NAME [--name NAME] [--grace 24h] --file FILE
      Show the keys of FILE, remove one, or make its successor and let it
      expire after the grace. These rewrite FILE without its comments.
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
	case args[0] == "keys" && len(args) > 1 && keysCommands[args[1]] != nil:
		return keysCommands[args[1]](args[2:], stdout)
	}
	return fault.New(fault.Invalid, "COMMAND_UNKNOWN", "there is no command %q\n\n%s", fmt.Sprint(args), usage)
}
