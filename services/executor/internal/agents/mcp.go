package agents

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool/mcptool"
)

// Server is a connected MCP server.
type Server interface {
	// Tools returns its current tools; nil until it has named them. They must not be modified.
	Tools() []agent.Tool
}

// Mount is the tools of an MCP server in an agent.
type Mount struct {
	Server    Server
	name      string   // of the server
	only      []string // names of the tools; empty for all
	required  bool     // the agent is not served without these tools
	behaviour behaviour
}

// absent returns the listed tools that the server does not have. Until it has named its tools, nothing is known.
func (m *Mount) absent() []string {
	tools := m.Server.Tools()
	if tools == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(m.only), func(name string) bool {
		return slices.ContainsFunc(tools, func(t agent.Tool) bool { return t.Name == name })
	})
}

// missing says what the mount lacks; "" for nothing.
func (m *Mount) missing() string {
	if m.Server.Tools() == nil {
		return fmt.Sprintf("the MCP server %q, which it requires, has not been reached yet", m.name)
	}
	if absent := m.absent(); len(absent) > 0 {
		return fmt.Sprintf("the MCP server %q has no tool %s, which it requires", m.name, strings.Join(absent, ", "))
	}
	return ""
}

// tools returns the current tools.
func (m *Mount) tools() []agent.Tool {
	var tools []agent.Tool
	for _, t := range m.Server.Tools() {
		if len(m.only) == 0 || slices.Contains(m.only, t.Name) {
			m.behaviour.apply(&t)
			if t.Repeatable() {
				t = mcptool.Repeating(t)
			}
			tools = append(tools, t)
		}
	}
	return tools
}

// servers finds MCP servers by name.
type servers struct {
	known    Known
	declared map[string]*server
}

// server is an MCP server of a file.
type server struct {
	at     value
	config mcptool.Config
	wrong  bool
	server Server // nil until it is connected
}

// declare reads how an MCP server is reached. Several files may declare the same server.
func (s *servers) declare(m member) {
	before := m.file.count()
	var f struct {
		mcptool.Config
		Args []string
	}
	checked := read(m.value, "mcpServer", fmt.Sprintf("MCP server %q", m.name), &f)
	c := f.Config
	c.Name = m.name
	c.Command = append(c.Command, f.Args...)
	if c.Dir != "" {
		c.Dir = m.file.path(c.Dir)
	}
	if len(checked.wrong) == 0 {
		checked.reportFields("", c.Check(s.known.MCP))
	}
	if former, ok := s.declared[m.name]; ok {
		if !reflect.DeepEqual(c, former.config) {
			m.mistake("the MCP server %q is declared differently at %s:%v", m.name, former.at.file.name, former.at.position)
		}
		return
	}
	s.declared[m.name] = &server{at: m.value, config: c, wrong: m.file.count() > before}
}

// connect connects all servers concurrently.
func (s *servers) connect(ctx context.Context) {
	names := slices.Sorted(maps.Keys(s.declared))
	failures := make([]error, len(names))
	var connecting sync.WaitGroup
	for i, name := range names {
		declared := s.declared[name]
		if declared.wrong {
			continue
		}
		connecting.Go(func() { declared.server, failures[i] = s.known.Connect(ctx, declared.config) })
	}
	connecting.Wait()
	for i, name := range names {
		if failures[i] == nil {
			continue
		}
		declared := s.declared[name]
		declared.wrong, declared.server = true, nil
		leave := declared.at.file.within(Part{Kind: ServerPart, Name: name})
		declared.at.mistake("%s", detail(failures[i]))
		leave()
	}
}

// mount reads {mcp: server}: the tools of an MCP server, or some of them.
func (r *reader) mount(what string, item value) ([]placedTool, *Mount) {
	name, _ := item.field("mcp").text()
	s, before := r.servers, r.count()
	var f struct {
		behaviour
		MCP      string
		Tools    []string
		Required bool
	}
	entry := read(item, "mountedTools", named(what, "MCP server", name), &f)
	f.rule = readApproval(entry, f.Approval)
	mount := &Mount{name: name, only: f.Tools, required: f.Required, behaviour: f.behaviour}
	if entry.wrong["mcp"] {
		return nil, nil
	}
	declared, ok := s.declared[name]
	if !ok {
		known := slices.Sorted(maps.Keys(s.declared))
		entry.mistakeAt("mcp", "there is no such server under mcpServers; known: %s%s", strings.Join(known, ", "), suggest(name, known))
		return nil, nil
	}
	if declared.wrong || declared.server == nil {
		part := Part{Kind: ServerPart, Name: name, Agent: r.part.Agent}
		if mount.required {
			part = Part{Kind: AgentPart, Name: r.part.Agent}
		}
		r.imply(part, "the MCP server %q cannot be used", name)
		return nil, nil
	}
	mount.Server = declared.server
	var names []string
	for _, t := range declared.server.Tools() {
		names = append(names, t.Name)
	}
	wrong := r.count() > before
	for _, only := range mount.absent() {
		leave := r.within(Part{Kind: ToolPart, Name: only, Agent: r.part.Agent})
		entry.mistakeAt("tools", "it has no tool %q; known: %s%s", only, strings.Join(names, ", "), suggest(only, names))
		leave()
	}
	if wrong {
		return nil, nil // for example an approval that cannot be read
	}
	var placed []placedTool
	for _, t := range mount.tools() {
		placed = append(placed, placedTool{tool: t, at: item.at("mcp"), mounted: true})
	}
	return placed, mount
}
