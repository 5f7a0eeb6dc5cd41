package executor

import (
	"context"
	"log/slog"
	"maps"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/executor/internal/agents"
)

// files is where the agents in YAML of a registry come from. Guarded by the registry's
// loading.
type files struct {
	registry  *Registry
	config    AgentsConfig
	lookupEnv func(string) (string, bool)
	log       *slog.Logger

	trail *agents.Trail // what was looked at last, also when it was wrong
	seen  *agents.Trail // how it was at the last look, when it has changed since
	wait  time.Duration // from a reload that failed to the next; 0 when it is not tried again
	left  time.Duration // of wait
}

// Load serves the agents in YAML that the configuration names (see package internal/agents
// for their form), in place of those that were used before. An executor that runs with the
// registry looks from time to time whether the files have changed. Of the peers LookupEnv,
// which finds the variables that files name, and Log are used.
//
// Invalid (AGENTS_INVALID): the detail has one line for each mistake, with the
// file's name and the line in it. NotFound (AGENTS_NOT_FOUND): there is no such file.
// Conflict (AGENT_EXISTS): an agent of Go has the name. Invalid (CONFIG_INVALID,
// HOSTS_INVALID). Unavailable (MCP_UNAVAILABLE): the files are right, but MCP servers that
// they name do not answer.
func (r *Registry) Load(ctx context.Context, c AgentsConfig, p Peers) error {
	p = p.withDefaults()
	f := &files{registry: r, config: c, lookupEnv: p.LookupEnv, log: p.Log}
	if len(split(c.AgentsFiles)) == 0 {
		return fault.New(fault.Invalid, "CONFIG_INVALID", "HOLDFAST_EXECUTOR_AGENTS names no file")
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
	l := &loader{config: f.config, lookupEnv: f.lookupEnv, models: models, log: f.log, pool: f.registry.servers}
	loaded, err := l.load(func(known agents.Known) (*agents.Set, error) {
		set, trail, err := agents.Load(ctx, split(f.config.AgentsFiles), known)
		f.trail, f.seen = trail, nil
		return set, err
	})
	f.again(fault.ReasonOf(err) == "MCP_UNAVAILABLE")
	if err != nil {
		return err
	}
	if err := f.registry.Use(loaded); err != nil {
		loaded.Close()
		return err
	}
	return nil
}

// longestWait is how far apart two attempts at files may be that are right but for
// MCP servers that are away.
const longestWait = time.Minute

// again says whether the files are to be read again although they are as they were: first
// after one look, then after twice as long each time.
func (f *files) again(yes bool) {
	if !yes {
		f.wait, f.left = 0, 0
		return
	}
	f.wait = min(max(2*f.wait, f.config.AgentsPoll), max(longestWait, f.config.AgentsPoll))
	f.left = f.wait
}

// follow is one look, and reports whether there is something to tell about it. It loads files
// that have changed and are not being written: nothing has happened to them between two looks.
func (f *files) follow(ctx context.Context) (news bool, err error) {
	now := f.trail.Look()
	switch {
	case f.trail.Same(now):
		f.seen = nil
		if f.left -= f.config.AgentsPoll; f.wait == 0 || f.left > 0 {
			return false, nil
		}
		err = f.read(ctx)
		return f.wait == 0, err
	case now.Same(f.seen):
		return true, f.read(ctx)
	default:
		f.seen = now
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

// idleLook is the time between two looks whether there are files to follow.
const idleLook = time.Second

// watch loads files that change until ctx ends, those of the newest Load. Mistakes are
// logged once; until they are mended, the former agents stay.
func (r *Registry) watch(ctx context.Context, log *slog.Logger) {
	for {
		interval := idleLook
		f := r.source()
		if f != nil && f.config.AgentsPoll > 0 {
			interval = f.config.AgentsPoll
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(interval):
		}
		if news, err := r.look(ctx, f); news && ctx.Err() == nil {
			tell(ctx, log, r, err)
		}
	}
}

// look follows the files, unless they are not followed, or not the registry's any more.
func (r *Registry) look(ctx context.Context, f *files) (news bool, err error) {
	r.loading.Lock()
	defer r.loading.Unlock()
	if f == nil || f != r.source() || f.config.AgentsPoll <= 0 {
		return false, nil
	}
	return f.follow(ctx)
}

// tell logs what became of a reload.
func tell(ctx context.Context, log *slog.Logger, r *Registry, err error) {
	switch {
	case fault.ReasonOf(err) == "MCP_UNAVAILABLE":
		log.ErrorContext(ctx, "MCP servers of the agents do not answer; the former agents stay", "error", err)
	case err != nil:
		log.ErrorContext(ctx, "the files of agents have mistakes; the former agents stay", "error", err)
	default:
		log.InfoContext(ctx, "the files of agents were read again", "agents", r.Types())
	}
}
