package registry

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/executor/internal/agents"
)

// Peers is what Load works with. Nil fields have a default.
type Peers struct {
	LookupEnv func(string) (string, bool) // finds the variables that files name; nil finds none
	Log       *slog.Logger                // nil is slog.Default
	// Changed is called after each later reading of the agents that has changed something, for people who watch. Nil is
	// called for none.
	Changed func(Change)
}

// Change is what a reading of the agents has changed.
type Change struct {
	Added, Changed, Removed []string // names of agents
	// Problems are the lines of what is out of service now.
	Problems []string
}

// files is the source of a registry's agents in YAML. The registry's loading guards it.
type files struct {
	registry  *Registry
	config    AgentsConfig
	lookupEnv func(string) (string, bool)
	log       *slog.Logger
	tell      func(Change) // nil for nobody

	loaded  *agents.Versions // the files as last read, also when they were invalid
	changed *agents.Versions // as last seen, when they have changed since; nil otherwise
}

// Load serves the agents in the YAML files that the configuration names (see
// docs/agents-yaml.md). They replace the agents of an earlier Load or Use. An
// executor that runs with the registry follows the files.
//
// A mistake takes only its part out of service: a file that is not YAML, a provider, an MCP server, a tool, an agent.
// Problems returns these parts. An agent read without mistakes before keeps its former definition.
//
// Invalid (AGENTS_INVALID): there are mistakes, and no agent at all to serve. The detail has one line for each mistake,
// with the file's name and the line in it. NotFound (AGENTS_NOT_FOUND): there is no file at all. Invalid (CONFIG_INVALID,
// HOSTS_INVALID). TooLarge (TOO_MANY_AGENTS).
func (r *Registry) Load(ctx context.Context, c AgentsConfig, p Peers) error {
	f := &files{registry: r, config: c, lookupEnv: p.LookupEnv, log: cmp.Or(p.Log, slog.Default()), tell: p.Changed}
	if f.lookupEnv == nil {
		f.lookupEnv = noVariables
	}
	if len(splitPaths(c.AgentsFiles))+len(splitPaths(c.Endpoints)) == 0 {
		return fault.New(fault.Invalid, "CONFIG_INVALID", "HOLDFAST_EXECUTOR_AGENTS names no file, and HOLDFAST_EXECUTOR_ENDPOINTS no endpoint")
	}
	if c.EndpointPoll < 0 || c.EndpointCalls < 0 {
		return fault.New(fault.Invalid, "CONFIG_INVALID", "HOLDFAST_EXECUTOR_ENDPOINT_POLL and HOLDFAST_EXECUTOR_ENDPOINT_CALLS must be above 0")
	}
	if c.AgentsPoll < 0 {
		return fault.New(fault.Invalid, "CONFIG_INVALID", "HOLDFAST_EXECUTOR_AGENTS_POLL must not be below 0")
	}
	r.loading.Lock()
	defer r.loading.Unlock()
	if err := f.read(ctx); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.files = f
	return nil
}

// read reads the files and serves their agents. The caller holds loading.
func (f *files) read(ctx context.Context) error {
	f.registry.mu.Lock()
	models := maps.Clone(f.registry.models)
	f.registry.mu.Unlock()
	l := &loader{
		config: f.config, lookupEnv: f.lookupEnv, models: models, log: f.log, servers: f.registry.servers, endpoints: f.registry.endpoints,
		documents: f.registry.documents,
	}
	set, err := l.load(func(known agents.Known) (*agents.Set, error) {
		described, err := l.describeAll(ctx)
		if err != nil {
			return nil, err
		}
		set, versions, err := agents.Load(ctx, splitPaths(f.config.AgentsFiles), described, known)
		f.loaded = versions
		f.changed = nil
		return set, err
	})
	f.registry.documents.next(time.Now())
	if set == nil {
		return err
	}
	former, err := f.registry.serve(set, err)
	if err != nil {
		set.Close()
		return err
	}
	if former != nil {
		former.Close()
	}
	f.registry.report(ctx, f.log)
	if c := set.since(former); f.tell != nil && former != nil && !reflect.ValueOf(c).IsZero() {
		c.Problems = f.registry.Diagnose()
		f.tell(c)
	}
	return nil
}

// since returns what differs from a former set, without the problems that are the same.
func (a *Agents) since(former *Agents) (c Change) {
	if former == nil {
		return c
	}
	find := func(list []agents.Agent, name string) (agents.Agent, bool) {
		i := slices.IndexFunc(list, func(a agents.Agent) bool { return a.Name == name })
		if i < 0 {
			return agents.Agent{}, false
		}
		return list[i], true
	}
	for _, now := range a.list {
		switch before, had := find(former.list, now.Name); {
		case !had:
			c.Added = append(c.Added, now.Name)
		case !now.Equals(before):
			c.Changed = append(c.Changed, now.Name)
		}
	}
	for _, before := range former.list {
		if _, has := find(a.list, before.Name); !has {
			c.Removed = append(c.Removed, before.Name)
		}
	}
	if !slices.Equal(a.problems, former.problems) {
		c.Problems = []string{}
	}
	return c
}

// check compares the files with the loaded ones, and reports whether to log the result. It reads changed files
// once two checks have seen them alike, since they are complete then.
func (f *files) check(ctx context.Context) (report bool, err error) {
	now := f.loaded.Current()
	switch {
	case f.loaded.Equal(now):
		f.changed = nil
		return false, nil
	case now.Equal(f.changed):
		return true, f.read(ctx)
	default:
		f.changed = now
		return false, nil
	}
}

// Reload reads the files of Load again, changed or not. Faults as of Load; then the
// former agents stay. Without files it does nothing.
func (r *Registry) Reload(ctx context.Context) error {
	r.loading.Lock()
	defer r.loading.Unlock()
	if f := r.source(); f != nil {
		return f.read(ctx)
	}
	return nil
}

func (r *Registry) source() *files {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.files
}

// sourcePoll is how often follow checks whether files were loaded.
const sourcePoll = time.Second

// follow reads the files of the latest Load when they change, until ctx ends. It logs mistakes
// once. Until they are repaired, the former agents stay.
func (r *Registry) follow(ctx context.Context, log *slog.Logger) {
	for {
		interval := sourcePoll
		f := r.source()
		if f != nil && f.config.AgentsPoll > 0 {
			interval = f.config.AgentsPoll
		}
		select {
		case <-ctx.Done():
			return
		case <-r.endpoints.changed:
			if err := r.Reload(ctx); ctx.Err() == nil {
				r.logReload(ctx, log, err)
			}
			continue
		case <-time.After(interval):
		}
		if f != nil && r.documents.isDue(time.Now()) {
			if err := r.Reload(ctx); ctx.Err() == nil {
				r.logReload(ctx, log, err)
			}
			continue
		}
		if report, err := r.check(ctx, f); report && ctx.Err() == nil {
			r.logReload(ctx, log, err)
		}
	}
}

// check checks the files once, if they are still the registry's and followed.
func (r *Registry) check(ctx context.Context, f *files) (report bool, err error) {
	r.loading.Lock()
	defer r.loading.Unlock()
	if f == nil || f != r.source() || f.config.AgentsPoll <= 0 {
		return false, nil
	}
	return f.check(ctx)
}

// ReloadAndLog reads the files of the registry again and logs the result.
func ReloadAndLog(ctx context.Context, r *Registry, log *slog.Logger) {
	r.logReload(ctx, log, r.Reload(ctx))
}

// logReload logs the result of a reload.
func (r *Registry) logReload(ctx context.Context, log *slog.Logger, err error) {
	if err != nil {
		log.ErrorContext(ctx, "the agents cannot be read again; the former ones stay", "error", err)
		return
	}
	log.InfoContext(ctx, "the agents were read again", "agents", r.Types())
}
