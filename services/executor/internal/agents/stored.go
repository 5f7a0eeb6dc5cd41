package agents

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Limits of a stored agent.
const (
	maxStoredText  = 1 << 20 // bytes of the text
	maxStoredTools = 500     // entries under its tools
)

// Definition is an agent that a tenant stores.
type Definition struct {
	// Agent is its name.
	Agent string
	// File is the name of the text in mistakes.
	File string
	// Text is YAML or JSON: one agent, whose name may be missing, or a file of agents that has the agent.
	Text []byte
}

// storing is the grammar of stored agents, decoded: that of a file without what belongs to the machine of an executor. It must
// not be modified.
var storing = sync.OnceValue(func() *jsonschema.Schema {
	var s jsonschema.Schema
	if err := json.Unmarshal(Schema, &s); err != nil {
		panic("agents: schema.json: " + err.Error())
	}
	for _, name := range []string{"include", "models", "endpoints"} {
		delete(s.Properties, name)
	}
	for _, name := range []string{"command", "args", "env", "dir"} {
		delete(s.Defs["mcpServer"].Properties, name)
	}
	return &s
})

// ParseStored reads the definition of a stored agent. It uses the providers of a set of files, which may be nil. It returns the
// agent, and the definition as data: a file of agents, as JSON, with this agent alone and what it uses.
//
// Invalid (AGENTS_INVALID): the detail has a line for each mistake in the text, also of other agents in it, as
// file:line:column: text. An agent with a mistake is none: no part of it is left out.
func ParseStored(ctx context.Context, d Definition, providers *Set, known Known) (a Agent, definition []byte, err error) {
	r := newReader(known)
	if providers != nil && providers.providers != nil {
		r.providers.declared = maps.Clone(providers.providers.declared)
	}
	r.order[d.File] = 0
	v := r.takeStored(d)
	if r.count() > 0 {
		return Agent{}, nil, r.err()
	}
	set, err := r.set(ctx)
	if err != nil {
		return Agent{}, nil, err
	}
	at := slices.IndexFunc(set.Agents, func(a Agent) bool { return a.Name == d.Agent })
	if at < 0 || set.Incomplete[d.Agent] { // a provider of the executor's files has a mistake
		for _, p := range set.Problems {
			v.mistake("agent %q: %s", d.Agent, p.Text)
		}
		return Agent{}, nil, r.err()
	}
	definition, err = v.alone()
	return set.Agents[at], definition, err
}

// takeStored collects the declarations of a definition, and returns the value of its agent.
func (r *reader) takeStored(d Definition) value {
	defer r.within(Part{Kind: AgentPart, Name: d.Agent})()
	f := &file{sources: r.sources, name: d.File}
	f.root = value{file: f, position: position{1, 1}}
	switch {
	case len(d.Text) > maxStoredText:
		f.root.mistake("the definition has %d bytes; at most %d are allowed", len(d.Text), maxStoredText)
		return f.root
	case json.Valid(d.Text):
		f = r.parseJSON(d.File, d.Text, true)
	default:
		f = r.parse(Source{Name: d.File, Data: d.Text})
	}
	if f == nil {
		return value{}
	}
	f.stored, f.tools = true, r.tools
	r.files = append(r.files, f)
	var own value
	if f.root.has("agents") {
		r.declare(f)
		i := slices.IndexFunc(r.agents, func(v value) bool { return nameIn(v) == d.Agent })
		if i < 0 {
			f.root.at("agents").mistake("there is no agent %q in the file", d.Agent)
			return f.root
		}
		own = r.agents[i]
	} else {
		own = f.root
		if name := nameIn(own); name != "" && name != d.Agent {
			own.at("name").mistake("the name is %q; the agent is to be stored as %q", name, d.Agent)
			return own
		}
		own.defaults = []member{{"name", value{file: f, position: own.position, node: textOf(placeOne(), d.Agent)}}}
		r.agents = append(r.agents, own)
	}
	for _, v := range r.agents {
		if tools, _ := v.field("tools").items(); len(tools) > maxStoredTools {
			v.at("tools").mistake("agent %q: tools: there are %d entries; at most %d are allowed", nameIn(v), len(tools), maxStoredTools)
		}
	}
	return own
}

// nameIn returns the name of an agent, empty without one.
func nameIn(agent value) string {
	name, _ := agent.field("name").text()
	return name
}

// alone returns a file of agents, as JSON, that has this agent alone, with the tools and servers of its file that it uses.
func (v value) alone() ([]byte, error) {
	alone := map[string]any{"agents": []json.RawMessage{v.json()}}
	used := map[string]bool{} // names of tools and servers
	tools, _ := v.field("tools").items()
	for _, item := range tools {
		name, _ := item.text()
		for _, field := range []string{"use", "mcp"} {
			if of, ok := item.field(field).text(); ok {
				name = of
			}
		}
		used[name] = true
	}
	var declared []json.RawMessage
	root := v.file.root
	if root.has("agents") {
		items, _ := root.field("tools").items()
		for _, item := range items {
			if used[nameOf(item)] {
				declared = append(declared, item.json())
			}
		}
		servers := map[string]json.RawMessage{}
		members, _ := root.field("mcpServers").members()
		for _, m := range members {
			if used[m.name] {
				servers[m.name] = m.json()
			}
		}
		if len(servers) > 0 {
			alone["mcpServers"] = servers
		}
	}
	if len(declared) > 0 {
		alone["tools"] = declared
	}
	text, err := json.Marshal(alone)
	if err != nil { // a value that has no JSON
		return nil, fault.New(fault.Invalid, "AGENTS_INVALID", "%s", fmt.Sprintf("%s:1:1: the definition has no JSON: %v", v.file.name, err))
	}
	return text, nil
}
