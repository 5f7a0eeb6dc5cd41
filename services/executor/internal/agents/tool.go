package agents

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool/httptool"
)

// anyInput is the input schema of a tool without one in the file.
const anyInput = `{"type":"object"}`

// tools finds built-in and declared tools by name.
type tools struct {
	builtIn  map[string]agent.Tool
	peers    httptool.Peers
	declared map[string]*declaredTool
}

func newTools(builtIn map[string]agent.Tool, peers httptool.Peers) *tools {
	return &tools{builtIn: builtIn, peers: peers, declared: map[string]*declaredTool{}}
}

// placedTool is a tool of an agent.
type placedTool struct {
	tool    agent.Tool
	at      value            // in the tools of the agent
	mounted bool             // from an MCP server
	wrong   bool             // has a mistake
	request *httptool.Config // of an HTTP tool
	// callbacks are what the endpoint is called for.
	callbacks  []string
	storeReads []string // prefixes of the keys that its calls read

	setState []stateSetter
}

// declaredTool is a declared tool. Agents use it by name.
type declaredTool struct {
	placedTool
	text string // of the declaration, to compare it with others
}

// declare adds a tool for all agents. Several files may declare the same tool.
func (ts *tools) declare(v value) {
	defer v.file.within(Part{Kind: ToolPart, Name: nameOf(v)})()
	t := ts.read(v, "tools")
	if t.tool.Name == "" {
		return
	}
	ts.add(t, string(v.json()))
}

// add adds a tool with the text of its declaration.
func (ts *tools) add(t placedTool, text string) {
	if former, ok := ts.declared[t.tool.Name]; ok {
		if former.text != text {
			t.at.mistake("the tool %q is declared differently at %s", t.tool.Name, former.at.place())
		}
		return
	}
	if _, ok := ts.builtIn[t.tool.Name]; ok {
		t.at.mistake("there is a built-in tool %q already; choose another name", t.tool.Name)
	}
	ts.declared[t.tool.Name] = &declaredTool{placedTool: t, text: text}
}

// nameOf returns the name in a declaration, for the mistakes in it.
func nameOf(v value) string {
	members, _ := v.members()
	for _, m := range members {
		if text, ok := m.text(); ok && slices.Contains([]string{"name", "use", "subAgent", "mcp", "openapi"}, m.name) {
			return text
		}
	}
	text, _ := v.text()
	return text
}

// readTools reads the tools of an agent: names, {use: name}, {mcp: server}, {openapi: document}, {subAgent: type} and
// declarations. They are complete unless an MCP server has not named its tools yet, or a tool cannot be read.
func (r *reader) readTools(s *section) (placed []placedTool, mounts []*Mount, complete bool) {
	seen := map[string]bool{}
	complete = true
	items, _ := s.field("tools").items()
	for _, item := range items {
		part := Part{Kind: ToolPart, Name: nameOf(item), Agent: r.part.Name}
		if item.has("mcp") {
			part.Kind = ServerPart
		}
		before := r.count()
		leave := r.within(part)
		found, mount := r.readTool(s.what, item)
		leave()
		wrong := mount == nil && !item.has("openapi") && r.count() > before // its settings, for example the approval, may be incomplete
		if mount != nil {
			mounts = append(mounts, mount)
			complete = complete && mount.Server.Tools() != nil
		}
		complete = complete && (mount != nil || len(found) > 0)
		for _, t := range found {
			t.wrong = t.wrong || wrong
			name := t.tool.Name
			if seen[name] && name != "" {
				leave := r.within(Part{Kind: ToolPart, Name: name, Agent: r.part.Name})
				t.at.mistake("%s: the tool %q is listed twice", s.what, name)
				leave()
				excludeTwice(placed, t)
				continue
			}
			seen[name] = true
			placed = append(placed, t)
		}
	}
	return placed, mounts, complete
}

// excludeTwice leaves out a tool listed twice with settings of its own: either entry may be the one that was
// meant. A tool of an MCP server yields to one of the agent.
func excludeTwice(placed []placedTool, second placedTool) {
	first := slices.IndexFunc(placed, func(t placedTool) bool { return t.tool.Name == second.tool.Name })
	switch {
	case second.mounted:
	case placed[first].mounted:
		placed[first] = second
	default:
		placed[first].wrong = true
	}
}

func (r *reader) readTool(what string, item value) ([]placedTool, *Mount) {
	switch kind := item.kind(); {
	case kind == "string":
		name, _ := item.text()
		return item.file.tools.find(what, item, name), nil
	case kind != "object":
		item.mistake("%s: %s", what, grammar().Defs["tool"].Extra["errorMessage"])
		return nil, nil
	case item.has("openapi"):
		return r.importTools(what, item), nil
	case item.has("mcp") && item.file.binding != nil:
		item.at("mcp").mistake("%s: mcp: the description of an endpoint cannot use MCP servers; name them in a file of agents", what)
		return nil, nil
	case item.has("mcp"):
		return r.mount(what, item)
	case item.has("subAgent"):
		name, _ := item.field("subAgent").text()
		t := agent.SubAgent[agent.Task](name, "")
		s := read(item, "subAgent", named(what, "sub-agent", name), &t)
		return []placedTool{{tool: t, at: item.at("subAgent"), wrong: len(s.wrong) > 0}}, nil
	case item.has("use"):
		return item.file.tools.use(what, item), nil
	}
	return []placedTool{item.file.tools.read(item, what)}, nil
}

// named begins the mistakes of an entry under the tools of an agent.
func named(what, kind, name string) string {
	if name == "" {
		return what + ": tools"
	}
	return fmt.Sprintf("%s: %s %q", what, kind, name)
}

// use reads {use: name}: a tool by name, with other settings for the agent.
func (ts *tools) use(what string, item value) []placedTool {
	name, _ := item.field("use").text()
	var f struct {
		behaviour
		Use      string
		SetState json.RawMessage
	}
	s := read(item, "usedTool", named(what, "tool", name), &f)
	if s.wrong["use"] {
		return nil
	}
	used := ts.find(what, item.at("use"), name)
	for i := range used {
		t := &used[i]
		f.rule = readApproval(s, f.Approval)
		f.apply(&t.tool)
		if f.SetState != nil {
			t.setState = readSetState(s)
		}
		f.rule.checkArguments(s, t.tool)
		t.wrong = t.wrong || len(s.wrong) > 0
		if t.request != nil && !t.wrong {
			t.tool, _ = httptool.New(t.tool, *t.request, ts.peers) // the declaration was made with the same request
		}
		if slices.Contains(t.callbacks, "execute") {
			t.tool = item.file.binding.Tool(t.tool, []string{"execute"}, t.storeReads) // it may be repeatable now, or no longer
		}
	}
	return used
}

// find returns a list with the tool of a name, or an empty list with a mistake.
func (ts *tools) find(what string, at value, name string) []placedTool {
	if t, ok := ts.declared[name]; ok {
		return []placedTool{{
			tool: t.tool, at: at, wrong: t.wrong, request: t.request, callbacks: t.callbacks, storeReads: t.storeReads, setState: t.setState,
		}}
	}
	if t, ok := ts.builtIn[name]; ok {
		return []placedTool{{tool: t, at: at}}
	}
	known := slices.Collect(maps.Keys(ts.builtIn))
	known = slices.AppendSeq(known, maps.Keys(ts.declared))
	slices.Sort(known)
	at.mistake("%s: there is no tool %q; known: %s%s", what, name, strings.Join(known, ", "), suggest(name, known))
	return nil
}

// read reads the declaration of a client tool, an HTTP tool or a tool of an endpoint.
func (ts *tools) read(v value, what string) placedTool {
	before := v.file.count()
	var f struct {
		Name, Description         string
		InputSchema, OutputSchema json.RawMessage
		Client                    bool
		HTTP                      *struct {
			httptool.Config
			Body json.RawMessage
		}
		SetState   json.RawMessage
		Callbacks  []string
		StoreReads []string
		Later      time.Duration
		behaviour
	}
	name, _ := v.field("name").text()
	own := what
	if name != "" {
		own = fmt.Sprintf("%s: tool %q", what, name)
	}
	s := read(v, "declaredTool", own, &f)
	if name == "" && !s.wrong["name"] && v.kind() == "object" {
		s.mistakeAt("name", "the tool has no name")
	}
	t := agent.Tool{
		Name: f.Name, Description: f.Description, InputSchema: f.InputSchema, OutputSchema: f.OutputSchema,
		Client: f.Client, LaterWithin: f.Later,
	}
	if t.InputSchema == nil {
		t.InputSchema = json.RawMessage(anyInput)
	}
	f.rule = readApproval(s, f.Approval)
	f.apply(&t)
	f.rule.checkArguments(s, t)
	read := placedTool{tool: t, at: v.at("name"), callbacks: f.Callbacks, storeReads: f.StoreReads}
	if f.SetState != nil {
		read.setState = readSetState(s)
	}
	executes := slices.Contains(f.Callbacks, "execute")
	switch {
	case s.wrong["client"] || s.wrong["callbacks"] || s.wrong["http"] && f.HTTP == nil:
	case executes && !f.Client && f.HTTP == nil: // below
	case v.file.binding != nil && (executes || !f.Client && f.HTTP == nil):
		s.mistakeAt("callbacks", "a tool has either the callback execute, and the endpoint runs it, or client: true, or http with a request")
	case f.Client == (f.HTTP != nil):
		s.mistakeAt("http", "a declared tool has either client: true, and a client answers it, or http with a request")
	case f.HTTP != nil:
		read.request = &f.HTTP.Config
		if json.Unmarshal(f.HTTP.Body, &read.request.Body) != nil { // no body, or a template
			read.request.BodyTemplate = f.HTTP.Body
		}
		made, err := httptool.New(t, *read.request, ts.peers)
		if err == nil {
			read.tool = made
		}
		s.reportFields("http", err)
	}
	if len(f.StoreReads) > 0 && !executes {
		s.mistakeAt("storeReads", "storeReads is for a tool with the callback execute")
	}
	if slices.Contains(f.Callbacks, "approval") && f.Approval != nil {
		s.mistakeAt("approval", "give either approval or the callback approval")
	}
	if v.file.binding != nil {
		read.tool = v.file.binding.Tool(read.tool, f.Callbacks, f.StoreReads)
	}
	read.wrong = v.file.count() > before
	return read
}

// behaviour is how calls of a tool are handled. Missing settings leave the tool as it is.
type behaviour struct {
	Retry                        agent.Retry
	Timeout, AnswerWithin        time.Duration
	Strict, ReadOnly, FinishWith *bool
	Approval                     json.RawMessage
	rule                         *approval // read from Approval
	Approvers                    string    // any or others; empty if missing
}

func (b behaviour) apply(t *agent.Tool) {
	t.Retry = cmp.Or(b.Retry, t.Retry)
	t.Timeout = cmp.Or(b.Timeout, t.Timeout)
	t.AnswerWithin = cmp.Or(b.AnswerWithin, t.AnswerWithin)
	if b.Strict != nil {
		t.Strict = *b.Strict
	}
	switch {
	case b.ReadOnly != nil:
		t.ReadOnly = *b.ReadOnly
	case b.Retry == agent.RetryNever: // a read-only call would be repeated
		t.ReadOnly = false
	}
	if b.FinishWith != nil {
		t.FinishWith = *b.FinishWith
	}
	b.rule.apply(t)
	if b.Approvers != "" {
		t.Approvers = agent.Anyone
	}
	if b.Approvers == string(agent.Others) {
		t.Approvers = agent.Others
	}
}
