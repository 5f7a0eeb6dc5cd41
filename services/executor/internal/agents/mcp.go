package agents

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool/mcptool"
)

// Server is a connected MCP server.
type Server interface {
	// Tools returns its current tools. They must not be modified.
	Tools() []agent.Tool
}

// Mount is the tools of an MCP server in an agent.
type Mount struct {
	Server    Server
	only      []string // names of the tools; empty for all
	behaviour behaviour
}

// tools returns the current tools.
func (m *Mount) tools() []agent.Tool {
	var tools []agent.Tool
	for _, t := range m.Server.Tools() {
		if len(m.only) == 0 || slices.Contains(m.only, t.Name) {
			m.behaviour.apply(&t)
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
	o := newObject(m.value, fmt.Sprintf("MCP server %q", m.name))
	c := mcptool.Config{
		Name: m.name, Command: readCommand(o), Env: o.texts("env"), Dir: o.text("dir"),
		URL: o.text("url"), Headers: o.texts("headers"),
		Include: o.distinct("include"), Exclude: o.distinct("exclude"), Prefix: o.text("prefix"),
		Approve: o.distinct("approve"), Safe: o.distinct("safe"), ReadOnly: o.distinct("readOnly"), TrustHints: o.isTrue("trustHints"),
		Timeout: o.duration("timeout"), ConnectTimeout: o.duration("connectTimeout"),
	}
	if c.Dir != "" {
		c.Dir = m.file.path(c.Dir)
	}
	o.end()
	if m.file.count() == before {
		reportServer(o, c.Check(s.known.MCP))
	}
	if former, ok := s.declared[m.name]; ok {
		if !reflect.DeepEqual(c, former.config) {
			m.mistake("the MCP server %q is declared differently at %s:%v", m.name, former.at.file.name, former.at.place)
		}
		return
	}
	s.declared[m.name] = &server{at: m.value, config: c, wrong: m.file.count() > before}
}

// readCommand reads a program with its arguments: a list, or a string with args beside it.
func readCommand(o *object) []string {
	v, _ := o.field("command")
	var command []string
	if text, ok := v.text(); ok {
		command = []string{text}
	} else {
		command = o.words("command")
	}
	return append(command, o.words("args")...)
}

// reportServer reports each line of a server's error at its field.
func reportServer(o *object, err error) {
	if err == nil {
		return
	}
	f, ok := errors.AsType[*fault.Fault](err)
	if !ok || f.Reason != "MCP_INVALID" {
		o.mistake("%s: %s", o.what, detail(err))
		return
	}
	for line := range strings.SplitSeq(f.Detail, "\n") {
		field, _, _ := strings.Cut(line, ":")
		o.mistakeAt(field, "%s", line)
	}
}

// connect connects all servers concurrently.
func (s *servers) connect(ctx context.Context) {
	names := slices.Sorted(maps.Keys(s.declared))
	failures := make([]error, len(names))
	var connecting sync.WaitGroup
	for i, name := range names {
		connecting.Go(func() {
			declared := s.declared[name]
			declared.server, failures[i] = s.known.Connect(ctx, declared.config)
		})
	}
	connecting.Wait()
	for i, name := range names {
		if failures[i] == nil {
			continue
		}
		declared := s.declared[name]
		declared.wrong = true
		declared.at.mistake("%s", detail(failures[i]))
		if fault.ReasonOf(failures[i]) == "MCP_UNAVAILABLE" {
			declared.at.file.unavailable++
		}
	}
}

// mount reads {mcp: server}: the tools of an MCP server, or some of them.
func (s *servers) mount(o, entry *object) ([]placedTool, *Mount) {
	name := entry.text("mcp")
	entry.what = fmt.Sprintf("%s: MCP server %q", o.what, name)
	mount := &Mount{only: entry.distinct("tools"), behaviour: readBehaviour(entry)}
	if a := mount.behaviour.approval; a != nil {
		a.arguments = nil // the mount outlives the file
	}
	entry.end()
	declared, ok := s.declared[name]
	if !ok {
		known := slices.Sorted(maps.Keys(s.declared))
		entry.mistakeAt("mcp", "there is no such server under mcpServers; known: %s%s", strings.Join(known, ", "), suggest(name, known))
		return nil, nil
	}
	if declared.wrong || declared.server == nil {
		return nil, nil
	}
	mount.Server = declared.server
	var names []string
	for _, t := range declared.server.Tools() {
		names = append(names, t.Name)
	}
	for _, only := range mount.only {
		if !slices.Contains(names, only) {
			entry.mistakeAt("tools", "it has no tool %q; known: %s%s", only, strings.Join(names, ", "), suggest(only, names))
		}
	}
	at, _ := entry.field("mcp")
	var placed []placedTool
	for _, t := range mount.tools() {
		placed = append(placed, placedTool{tool: t, at: at, mounted: true, wrong: len(entry.wrong) > 0})
	}
	return placed, mount
}
