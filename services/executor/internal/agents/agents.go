package agents

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool/httptool"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool/mcptool"
)

// Known is what files may refer to, and what they may use.
type Known struct {
	// Tools are the built-in ones, by name.
	Tools map[string]agent.Tool
	// Providers are the kinds of models, by name.
	Providers []string
	// Models are models that are there without being declared, by provider.
	Models map[string]model.Model
	// Open makes a model. Each error is one of the file.
	Open func(s Settings) (model.Model, error)
	// HTTP is what HTTP tools work with. What it does not allow, no file can.
	HTTP httptool.Peers
	// MCP is what MCP servers may be. What it does not allow, no file can.
	MCP mcptool.Allowed
	// Connect connects an MCP server that is allowed. It is called from many goroutines.
	Connect func(ctx context.Context, c mcptool.Config) (Server, error)
}

// Agent is an agent with its models.
type Agent struct {
	agent.Agent
	// Models are those of the agent and its fallbacks, by provider/name.
	Models map[string]model.Model

	own    []agent.Tool
	mounts []*Mount
}

// Now gives the agent with the tools that its MCP servers have now. One whose name another
// tool has is left out.
func (a Agent) Now() agent.Agent {
	if len(a.mounts) == 0 {
		return a.Agent
	}
	now := a.Agent
	now.Tools = slices.Clone(a.own)
	for _, m := range a.mounts {
		for _, t := range m.tools() {
			if !slices.ContainsFunc(now.Tools, func(other agent.Tool) bool { return other.Name == t.Name }) {
				now.Tools = append(now.Tools, t)
			}
		}
	}
	return now
}

// Servers gives the MCP servers of the agent.
func (a Agent) Servers() []Server {
	var servers []Server
	for _, m := range a.mounts {
		if !slices.Contains(servers, m.Server) {
			servers = append(servers, m.Server)
		}
	}
	return servers
}

// Set is the agents of some files.
type Set struct {
	Agents []Agent
	Trail  *Trail
}

// Load reads files of agents: each of paths is a file, a folder or a pattern. All that
// is wrong with them is told at once: Invalid (AGENTS_INVALID), a line of the detail for
// each mistake, each with the name of the file and the line in it. Unavailable
// (MCP_UNAVAILABLE): the same, where nothing is wrong but that MCP servers do not answer.
// NotFound (AGENTS_NOT_FOUND). The trail is there in any case.
func Load(ctx context.Context, paths []string, known Known) (*Set, *Trail, error) {
	r := newReader(known)
	if err := r.load(paths); err != nil {
		return nil, r.trail, err
	}
	set, err := r.set(ctx)
	return set, r.trail, err
}

// Parse is Load for a file in memory.
func Parse(ctx context.Context, s Source, known Known) (*Set, error) {
	r := newReader(known)
	r.take(s, "")
	if len(r.files) == 0 {
		return nil, r.invalid()
	}
	return r.set(ctx)
}

// reader gathers what files declare, and every mistake in them.
type reader struct {
	known    Known
	trail    *Trail
	taken    map[string]bool // by whole path
	files    []*file
	order    map[string]int // of the files, by name
	mistakes []mistake
	away     int      // of the mistakes, those of MCP servers that do not answer
	fields   []judged // of conditions, in the order of their files

	providers map[string]*provider
	tools     map[string]*shared
	servers   map[string]*server
	agents    []declaration
}

// declaration is an agent that was not read yet.
type declaration struct {
	at       value
	defaults *object // of its file; may be nil
}

func newReader(known Known) *reader {
	return &reader{
		known: known, trail: newTrail(), taken: map[string]bool{}, order: map[string]int{},
		providers: map[string]*provider{}, tools: map[string]*shared{}, servers: map[string]*server{},
	}
}

// invalid is the mistakes, in the order of the files and their lines.
func (r *reader) invalid() error {
	slices.SortStableFunc(r.mistakes, func(a, b mistake) int {
		return cmp.Or(r.order[a.file]-r.order[b.file], a.line-b.line)
	})
	if len(r.mistakes) == r.away {
		return fault.New(fault.Unavailable, "MCP_UNAVAILABLE", "%s", told(r.mistakes))
	}
	return fault.New(fault.Invalid, "AGENTS_INVALID", "%s", told(r.mistakes))
}

// declarations notes what a file declares.
func (r *reader) declarations(f *file) {
	o := r.object(f.root, "")
	r.include(f, o)
	for _, m := range o.entries("models") {
		r.provider(m)
	}
	for _, item := range o.list("tools") {
		r.shareTool(item)
	}
	for _, m := range o.entries("mcpServers") {
		r.server(m)
	}
	var defaults *object
	if v, ok := o.field("defaults"); ok {
		defaults = r.object(v, "defaults")
		if defaults.has("name") {
			defaults.mistake("name", "agents have a name each")
		}
	}
	for _, item := range o.list("agents") {
		r.agents = append(r.agents, declaration{at: item, defaults: defaults})
	}
	o.end()
}

// set makes the agents of what was declared.
func (r *reader) set(ctx context.Context) (*Set, error) {
	if len(r.agents) == 0 && len(r.files) > 0 {
		r.mistake(value{file: r.files[0], line: 1}, `no agents: name at least one under "agents"`)
	}
	r.connect(ctx)
	set := &Set{Trail: r.trail}
	seen := map[string]value{}
	checked := map[*object]bool{}
	for _, d := range r.agents {
		a, at := r.agent(d)
		if former, ok := seen[a.Name]; ok && a.Name != "" {
			r.mistake(at, "the agent %q is there twice, first at %s:%d", a.Name, former.file.name, former.line)
		}
		seen[a.Name] = at
		set.Agents = append(set.Agents, a)
		if d.defaults != nil {
			checked[d.defaults] = true
		}
	}
	for defaults := range maps.Keys(checked) { // when all agents have asked for their fields
		defaults.end()
	}
	if len(r.mistakes) > 0 {
		return nil, r.invalid()
	}
	return set, nil
}
