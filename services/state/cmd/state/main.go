// Command state runs the state service. `state expire` expires sessions in a running service.
package main

import (
	"context"
	"io"
	"os"

	"github.com/holdfast-run/holdfast/pkg/process"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	"github.com/holdfast-run/holdfast/services/state"
)

func main() {
	process.ReserveHeap(process.ServiceReserve)
	process.Main(func(ctx context.Context) error {
		return run(ctx, rpc.TCP(), os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
	})
}

// commands describes what the program does beside serving.
const commands = `

Without arguments it serves. Its other command is

  state expire [--address HOST:PORT] [--limit N]
      Expire sessions in a running state service, and print how many.`

func run(ctx context.Context, network rpc.Network, args, environ []string, stdout, stderr io.Writer) error {
	if len(args) > 0 && args[0] == "expire" {
		return expire(ctx, network, args[1:], environ, stdout, stderr)
	}
	program := state.Program()
	program.About += commands
	return program.Execute(ctx, args, environ, stdout, stderr)
}
