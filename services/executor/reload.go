package executor

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/executor/internal/agents"
)

// files is where the agents in YAML of a registry come from.
type files struct {
	registry  *Registry
	config    AgentsConfig
	lookupEnv func(string) (string, bool)
	log       *slog.Logger

	mu    sync.Mutex
	trail *agents.Trail // what was looked at last, also when it was wrong
}

// Load serves the agents in YAML that the configuration names (see package internal/agents
// for their form), in place of those that were used before. An executor that runs with the
// registry looks from time to time whether the files have changed. Of the peers LookupEnv,
// which finds the variables that files name, and Log are used.
//
// Invalid (AGENTS_INVALID): the detail has one line for each mistake, with the
// file's name and the line in it. NotFound (AGENTS_NOT_FOUND): there is no such file.
// Conflict (AGENT_EXISTS): an agent of Go has the name. Invalid (CONFIG_INVALID,
// HOSTS_INVALID).
func (r *Registry) Load(ctx context.Context, c AgentsConfig, p Peers) error {
	p = p.withDefaults()
	f := &files{registry: r, config: c, lookupEnv: secrets(p.LookupEnv), log: p.Log}
	if len(split(c.AgentsFiles)) == 0 {
		return fault.New(fault.Invalid, "CONFIG_INVALID", "HOLDFAST_EXECUTOR_AGENTS names no file")
	}
	if c.AgentsPoll < 0 {
		return fault.New(fault.Invalid, "CONFIG_INVALID", "HOLDFAST_EXECUTOR_AGENTS_POLL must not be below 0")
	}
	if err := f.load(ctx); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.files = f
	return nil
}

// load reads the files and serves their agents.
func (f *files) load(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.read(ctx)
}

// read is load. The caller holds mu.
func (f *files) read(ctx context.Context) error {
	f.registry.mu.Lock()
	models := maps.Clone(f.registry.models)
	f.registry.mu.Unlock()
	l := &loader{config: f.config, lookupEnv: f.lookupEnv, models: models, log: f.log, pool: f.registry.servers}
	loaded, err := l.load(func(known agents.Known) (*agents.Set, error) {
		set, trail, err := agents.Load(ctx, split(f.config.AgentsFiles), known)
		f.trail = trail
		return set, err
	})
	if err != nil {
		return err
	}
	if err := f.registry.Use(loaded); err != nil {
		loaded.Close()
		return err
	}
	return nil
}

// follow loads the files whose trail has changed, and reports whether it has.
func (f *files) follow(ctx context.Context) (changed bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.trail.Changed() {
		return false, nil
	}
	return true, f.read(ctx)
}

// Reload reads the files of Load again, changed or not. Faults as of Load; then the
// former agents stay. Without files it does nothing.
func (r *Registry) Reload(ctx context.Context) error {
	if f := r.source(); f != nil {
		return f.load(ctx)
	}
	return nil
}

func (r *Registry) source() *files {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.files
}

// watch loads files that change until ctx ends. Mistakes are logged once; until they
// are mended, the former agents stay.
func (r *Registry) watch(ctx context.Context, log *slog.Logger) {
	f := r.source()
	if f == nil || f.config.AgentsPoll <= 0 {
		return
	}
	ticks := time.NewTicker(f.config.AgentsPoll)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		changed, err := f.follow(ctx)
		if changed {
			tell(ctx, log, r, err)
		}
	}
}

// tell logs what became of a reload.
func tell(ctx context.Context, log *slog.Logger, r *Registry, err error) {
	if err != nil {
		log.ErrorContext(ctx, "the files of agents have mistakes; the former agents stay", "error", err)
		return
	}
	log.InfoContext(ctx, "the files of agents were read again", "agents", r.Types())
}
