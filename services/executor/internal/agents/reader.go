package agents

import (
	"context"
	"maps"
	"path/filepath"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// maxFiles bounds the files of a set.
const maxFiles = 1000

// reader reads the files of a set. It collects the declarations of all files first, since an agent may
// use tools, servers and providers of a later file.
type reader struct {
	*sources
	taken map[string]bool // absolute paths
	files []*file

	known     Known
	providers *providers
	tools     *tools
	servers   *servers
	endpoints []*declaredEndpoint
	awaits    bool // agents of an endpoint that no file names
	agents    []value
	imports   []value // of operations for all agents
	fetched   map[string]fetched
	documents map[string]*openedDocument // by path or URL
	// operations are those that became tools.
	operations []Operation
	imported   int       // operations, also those that did not
	unread     []string  // files
	implied    []Problem // of agents that need a part with a mistake
}

func newReader(known Known) *reader {
	return &reader{
		sources: &sources{
			mistakes: mistakes{order: map[string]int{}, described: map[string]map[string]string{}}, versions: newVersions(),
		},
		taken:     map[string]bool{},
		fetched:   map[string]fetched{},
		documents: map[string]*openedDocument{},
		known:     known,
		providers: &providers{known: known, declared: map[string]*provider{}},
		tools:     newTools(known.Tools, known.HTTP),
		servers:   &servers{known: known, declared: map[string]*server{}},
	}
}

// load reads the files of the patterns, and their included files.
func (r *reader) load(patterns []string) error {
	var missing []error
	read := 0
	for _, pattern := range patterns {
		found := r.versions.find(pattern)
		if len(found) == 0 {
			missing = append(missing, fault.New(fault.NotFound, "AGENTS_NOT_FOUND", "there is no agents file %q", pattern))
			r.unreadable(pattern, "there is no such file")
		}
		for _, path := range found {
			source, err := r.versions.read(path)
			if err != nil {
				missing = append(missing, fault.New(fault.NotFound, "AGENTS_NOT_FOUND", "the agents cannot be read: %v", err))
				r.unreadable(path, err.Error())
				continue
			}
			read++
			r.take(source, path)
		}
	}
	if read == 0 && len(missing) > 0 {
		return missing[0]
	}
	return nil
}

// unreadable records a file that cannot be read.
func (r *reader) unreadable(path, reason string) {
	defer r.within(Part{Kind: FilePart, Name: path})()
	r.unread = append(r.unread, path)
	r.add(path, position{1, 1}, "the file cannot be read: %s", reason)
}

// include reads the files that a file includes.
func (r *reader) include(item value, pattern string) {
	pattern = item.file.path(pattern)
	found := r.versions.find(pattern)
	if len(found) == 0 && !mayMatchNothing(pattern) {
		item.mistake("there is no file %q to include", pattern)
	}
	for _, path := range found {
		source, err := r.versions.read(path)
		if err != nil {
			item.mistake("the included file cannot be read: %v", err)
			r.unread = append(r.unread, path)
			continue
		}
		r.take(source, path)
	}
}

// take collects the declarations of a file, once per path. A file in memory has no path.
func (r *reader) take(s Source, path string) {
	if path != "" {
		absolute, err := filepath.Abs(path)
		if err != nil {
			absolute = path
		}
		if r.taken[absolute] {
			return
		}
		r.taken[absolute] = true
	}
	r.order[s.Name] = len(r.order)
	if len(r.files) == maxFiles {
		r.add(s.Name, position{1, 1}, "there are more than %d files of agents", maxFiles)
		return
	}
	defer r.within(Part{Kind: FilePart, Name: s.Name})()
	f := r.parse(s)
	if f == nil {
		r.unread = append(r.unread, s.Name)
		return
	}
	f.tools = r.tools
	r.files = append(r.files, f)
	r.declare(f)
}

// declare collects the declarations of a file.
func (r *reader) declare(f *file) {
	read(f.root, "", "", nil)
	switch {
	case f.stored:
		r.declareServers(f)
	case f.binding == nil:
		r.declareForAll(f)
	}
	tools, _ := f.root.field("tools").items()
	for _, item := range tools {
		if item.has("openapi") {
			r.imports = append(r.imports, item) // once its document is fetched
			continue
		}
		f.tools.declare(item)
	}
	defaults, _ := f.root.field("defaults").members()
	known := f.grammar().Defs["agent"].Properties
	for _, m := range defaults {
		if _, ok := known[m.name]; !ok {
			m.mistake("defaults: there is no field %q%s", m.name, suggest(m.name, slices.Sorted(maps.Keys(known))))
		}
		if m.name == "name" {
			m.mistake("defaults must not have a name")
		}
	}
	defaults = slices.DeleteFunc(defaults, func(m member) bool { return m.name == "name" || known[m.name] == nil })
	agents, _ := f.root.field("agents").items()
	for _, item := range agents {
		item.defaults = defaults
		r.agents = append(r.agents, item)
	}
}

// declareForAll collects what the agents of all files and descriptions use.
func (r *reader) declareForAll(f *file) {
	included, _ := f.root.field("include").items()
	for _, item := range included {
		if pattern, _ := item.text(); pattern != "" {
			r.include(item, pattern)
		}
	}
	models, _ := f.root.field("models").members()
	for _, m := range models {
		leave := r.within(Part{Kind: ProviderPart, Name: m.name})
		r.providers.declare(m)
		leave()
	}
	r.declareServers(f)
	endpoints, _ := f.root.field("endpoints").items()
	for _, item := range endpoints {
		r.declareEndpoint(item)
	}
}

func (r *reader) declareServers(f *file) {
	servers, _ := f.root.field("mcpServers").members()
	for _, m := range servers {
		leave := r.within(Part{Kind: ServerPart, Name: m.name})
		r.servers.declare(m)
		leave()
	}
}

// set makes the agents of all files.
func (r *reader) set(ctx context.Context) (*Set, error) {
	r.describe(ctx)
	if len(r.agents) == 0 && len(r.files) > 0 && len(r.endpoints) == 0 && !r.awaits {
		r.files[0].at(1, 1).mistake(`no agents: name at least one under "agents"`)
	}
	r.fetch(ctx)
	r.declareImported()
	r.servers.connect(ctx)
	set := &Set{Versions: r.versions, providers: r.providers, Incomplete: map[string]bool{}, Unread: r.unread}
	seen := map[string]value{}
	for _, v := range r.agents {
		before := len(r.implied) + r.count()
		a, at, usable := r.agent(v)
		former, twice := seen[a.Name]
		if twice && a.Name != "" {
			leave := r.within(Part{Kind: AgentPart, Name: a.Name})
			at.mistake("the agent %q is declared twice, first at %s", a.Name, former.place())
			leave()
		}
		if len(r.implied)+r.count() > before || !usable {
			set.Incomplete[a.Name] = true
		}
		if usable && !twice {
			set.Agents = append(set.Agents, a)
		}
		seen[a.Name] = at
	}
	err := r.err() // sorts the mistakes
	set.Problems = append(r.problems(), r.implied...)
	set.Operations = r.operations
	return set, err
}

// path resolves a path in a file against the folder of the file.
func (f *file) path(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(f.dir, path)
}
