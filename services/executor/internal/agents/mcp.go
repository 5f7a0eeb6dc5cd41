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

// Server is an MCP server that is connected.
type Server interface {
	// Tools gives its tools as they are now. Not to be changed.
	Tools() []agent.Tool
}

// Mount is the tools of an MCP server that an agent has.
type Mount struct {
	Server Server
	only   []string // the tools, as agents know them; empty for all
	adjust func(*agent.Tool)
}

// tools gives the tools as they are now.
func (m *Mount) tools() []agent.Tool {
	var tools []agent.Tool
	for _, t := range m.Server.Tools() {
		if len(m.only) == 0 || slices.Contains(m.only, t.Name) {
			m.adjust(&t)
			tools = append(tools, t)
		}
	}
	return tools
}

// server is an MCP server that was declared.
type server struct {
	at     value
	config mcptool.Config
	wrong  bool
	server Server // nil before it is connected
}

// server reads how an MCP server is reached.
func (r *reader) server(m member) {
	before := len(r.mistakes)
	o := r.object(m.value, fmt.Sprintf("MCP server %q", m.name))
	c := mcptool.Config{
		Name: m.name, Command: r.command(o), Env: o.textsByName("env"), Dir: o.text("dir"),
		URL: o.text("url"), Headers: o.textsByName("headers"),
		Include: o.texts("include"), Exclude: o.texts("exclude"), Prefix: o.text("prefix"),
		Approve: o.texts("approve"), Safe: o.texts("safe"), ReadOnly: o.texts("readOnly"), TrustHints: o.boolean("trustHints"),
		Timeout: o.duration("timeout"), ConnectTimeout: o.duration("connectTimeout"),
	}
	if c.Dir != "" {
		c.Dir = m.value.file.path(c.Dir)
	}
	o.end()
	if len(r.mistakes) == before {
		r.serverMistakes(o, c.Check(r.known.MCP))
	}
	declared := &server{at: m.value, config: c, wrong: len(r.mistakes) > before}
	if former, ok := r.servers[m.name]; ok {
		if !reflect.DeepEqual(c, former.config) {
			r.mistake(m.value, "the MCP server %q is declared otherwise at %s:%d", m.name, former.at.file.name, former.at.line)
		}
		return
	}
	r.servers[m.name] = declared
}

// command reads a program with its arguments: a list, or a text with args beside it.
func (r *reader) command(o *object) []string {
	v, _ := o.field("command")
	var command []string
	if text, ok := v.text(); ok {
		command = []string{text}
	} else {
		command = r.words(o, "command")
	}
	return append(command, r.words(o, "args")...)
}

// words reads a list of texts, which may repeat.
func (r *reader) words(o *object, name string) []string {
	var words []string
	for _, item := range o.list(name) {
		word, ok := item.text()
		if !ok {
			o.wrong = append(o.wrong, name)
			r.mistake(item, "%s: %s must be a list of texts; put them in quotes", o.what, name)
		}
		words = append(words, word)
	}
	return words
}

// serverMistakes tells each mistake of a server at its field.
func (r *reader) serverMistakes(o *object, err error) {
	if err == nil {
		return
	}
	f, ok := errors.AsType[*fault.Fault](err)
	if !ok || f.Reason != "MCP_INVALID" {
		r.mistake(o.at, "%s: %s", o.what, sentence(err))
		return
	}
	for line := range strings.SplitSeq(f.Detail, "\n") {
		field, _, _ := strings.Cut(line, ":")
		o.mistake(field, "%s", line)
	}
}

// connect connects the servers, all at once, unless there are mistakes.
func (r *reader) connect(ctx context.Context) {
	if len(r.mistakes) > 0 {
		return
	}
	names := slices.Sorted(maps.Keys(r.servers))
	failures := make([]error, len(names))
	var connecting sync.WaitGroup
	for i, name := range names {
		connecting.Go(func() {
			s := r.servers[name]
			s.server, failures[i] = r.known.Connect(ctx, s.config)
		})
	}
	connecting.Wait()
	for i, name := range names {
		if failures[i] != nil {
			r.servers[name].wrong = true
			r.mistake(r.servers[name].at, "%s", sentence(failures[i]))
			if fault.ReasonOf(failures[i]) == "MCP_UNAVAILABLE" {
				r.away++
			}
		}
	}
}

// mounted reads which tools of an MCP server an agent has.
func (r *reader) mounted(o, entry *object) ([]placed, *Mount) {
	name := entry.text("mcp")
	entry.what = fmt.Sprintf("%s: MCP server %q", o.what, name)
	mount := &Mount{only: entry.texts("tools"), adjust: r.behaviour(entry)}
	entry.end()
	s, ok := r.servers[name]
	if !ok {
		known := slices.Sorted(maps.Keys(r.servers))
		entry.mistake("mcp", "there is none of this name under mcpServers; known: %s%s", strings.Join(known, ", "), meant(name, known))
		return nil, nil
	}
	if s.wrong || s.server == nil {
		return nil, nil
	}
	mount.Server = s.server
	var names []string
	for _, t := range s.server.Tools() {
		names = append(names, t.Name)
	}
	for _, only := range mount.only {
		if !slices.Contains(names, only) {
			entry.mistake("tools", "it has no tool %q; known: %s%s", only, strings.Join(names, ", "), meant(only, names))
		}
	}
	at, _ := entry.field("mcp")
	var tools []placed
	for _, t := range mount.tools() {
		tools = append(tools, placed{tool: t, at: at, mount: mount, wrong: len(entry.wrong) > 0})
	}
	return tools, mount
}
