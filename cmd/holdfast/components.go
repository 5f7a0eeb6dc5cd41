package main

import (
	"context"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/config"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/service"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
	"github.com/holdfast-run/holdfast/services/executor"
	"github.com/holdfast-run/holdfast/services/gateway"
	"github.com/holdfast-run/holdfast/services/state"
	"github.com/holdfast-run/holdfast/services/stream"
)

// component is a service as a part of a process, with the configuration of its own process.
type component struct {
	name  string
	calls bool // it calls the others, and ends before them
	// load reads the configuration, and returns what runs the service with it.
	load     func(environ []string) (run func(context.Context, *telemetry.Telemetry) error, err error)
	settings func(environ []string) []config.Setting
}

func componentOf[C any](p service.Program[C], calls bool) component {
	return component{
		name: p.Name, calls: calls, settings: p.Settings,
		load: func(environ []string) (func(context.Context, *telemetry.Telemetry) error, error) {
			c, err := p.Load(environ)
			return func(ctx context.Context, t *telemetry.Telemetry) error { return p.Run(ctx, c, t) }, err
		},
	}
}

// components returns all services.
func components(environ []string) []component {
	return []component{
		componentOf(state.Program(), false), componentOf(stream.Program(), false),
		componentOf(executor.Program(environ, executor.Peers{}), true), componentOf(gateway.Program(gateway.Peers{}), true),
	}
}

// componentsNamed returns the services of the names, and all without names. Invalid (SERVICE_UNKNOWN).
func componentsNamed(names, environ []string) ([]component, error) {
	all := components(environ)
	known := make([]string, len(all))
	for i, c := range all {
		known[i] = c.name
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fault.New(fault.Invalid, "SERVICE_UNKNOWN",
				"there is no service %q; the services are %s", name, strings.Join(known, ", "))
		}
	}
	if len(names) == 0 {
		return all, nil
	}
	return slices.DeleteFunc(all, func(c component) bool { return !slices.Contains(names, c.name) }), nil
}
