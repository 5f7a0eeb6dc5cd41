// Package service is the program of a service with a process of its own. It answers --help and --version, refuses
// other arguments, and runs the service with the configuration of the environment.
package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/process"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
)

// Prefix begins the names of the variables of Holdfast.
const Prefix = "HOLDFAST_"

// Program is the program of a service. C is its configuration, a struct for config.Load.
type Program[C any] struct {
	// Name is the name of the service, for example gateway.
	Name string
	// About describes the service, in lines of at most 100 characters.
	About string
	// Telemetry returns the part of the configuration for telemetry.
	Telemetry func(*C) *telemetry.Config
	// Run runs the service until ctx ends.
	Run func(ctx context.Context, c C, t *telemetry.Telemetry) error
}

// Main is the main function of the program. It does not return.
func (p Program[C]) Main() {
	process.ReserveHeap(process.ServiceReserve)
	signal.Ignore(syscall.SIGHUP) // an executor reads its files again; no service ends with a terminal
	process.Main(func(ctx context.Context) error {
		return p.Execute(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
	})
}

// Execute runs the program: the service without arguments, or --help or --version. Invalid (ARGUMENT_UNKNOWN,
// CONFIG_INVALID), and the faults of the service.
func (p Program[C]) Execute(ctx context.Context, args, environ []string, stdout, stderr io.Writer) error {
	switch {
	case len(args) == 0:
		return p.Serve(ctx, environ, stderr)
	case len(args) == 1 && (args[0] == "--help" || args[0] == "-h" || args[0] == "help"):
		return p.help(stdout)
	case len(args) == 1 && args[0] == "--version":
		_, err := fmt.Fprintf(stdout, "holdfast %s %s\n", p.Name, process.Version())
		return err
	}
	return fault.New(fault.Invalid, "ARGUMENT_UNKNOWN",
		"%s takes no argument %.100q: environment variables configure it, and --help lists them", p.Name, args[0])
}

func (p Program[C]) help(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "%s\n\nOptions:\n  --help     show this text\n  --version  show the version\n\n%s\n\n"+
		"Environment variables, with their defaults:\n", p.About, process.ExitCodes); err != nil {
		return err
	}
	var c C
	return config.Help(w, c)
}

// Load returns the configuration in environ. Invalid (CONFIG_INVALID).
func (p Program[C]) Load(environ []string) (C, error) {
	var c C
	p.Telemetry(&c).ServiceName = "holdfast-" + p.Name
	err := config.Load(&c, environ)
	return c, err
}

// Serve runs the service with the configuration in environ and with telemetry, until ctx ends. Log lines go to
// stderr. It warns of variables that begin like those of the service and are none.
func (p Program[C]) Serve(ctx context.Context, environ []string, stderr io.Writer) (err error) {
	c, err := p.Load(environ)
	if err != nil {
		return err
	}
	t, err := telemetry.Setup(ctx, *p.Telemetry(&c), stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Shutdown(ctx)) }()
	for _, name := range config.Unknown(environ, Prefix+strings.ToUpper(p.Name)+"_", c) {
		t.Log.WarnContext(ctx, "unknown environment variable has no effect", "name", name)
	}
	return p.Run(ctx, c, t)
}

// Variables returns the variables of the service.
func (p Program[C]) Variables() []config.Variable {
	var c C
	return config.Variables(c)
}

// Settings returns the variables of the service with their values in environ, without secrets.
func (p Program[C]) Settings(environ []string) []config.Setting {
	var c C
	return config.Settings(c, environ)
}
