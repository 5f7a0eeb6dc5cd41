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

// placedTool is a tool of an agent.
type placedTool struct {
	tool    agent.Tool
	at      value            // in the tools of the agent
	mounted bool             // from an MCP server
	wrong   bool             // has a mistake
	request *httptool.Config // of an HTTP tool

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
	text := string(v.json())
	if former, ok := ts.declared[t.tool.Name]; ok {
		if former.text != text {
			t.at.mistake("the tool %q is declared differently at %s:%v", t.tool.Name, former.at.file.name, former.at.place)
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
		if text, ok := m.text(); ok && slices.Contains([]string{"name", "use", "subAgent", "mcp"}, m.name) {
			return text
		}
	}
	text, _ := v.text()
	return text
}

// readTools reads the tools of an agent: names, {use: name}, {mcp: server}, {subAgent: type} and declarations. They are
// complete unless an MCP server has not named its tools yet, or a tool cannot be read.
func (r *reader) readTools(o *object) (placed []placedTool, mounts []*Mount, complete bool) {
	seen := map[string]bool{}
	complete = true
	for _, item := range o.list("tools") {
		part := Part{Kind: ToolPart, Name: nameOf(item), Agent: r.part.Name}
		if members, _ := item.members(); slices.ContainsFunc(members, func(m member) bool { return m.name == "mcp" }) {
			part.Kind = ServerPart
		}
		before := r.count()
		leave := r.within(part)
		found, mount := r.readTool(o, item)
		leave()
		wrong := mount == nil && r.count() > before // its settings, for example the approval, may be incomplete
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
				t.at.mistake("%s: the tool %q is listed twice", o.what, name)
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

// excludeTwice leaves out a tool that is listed twice with settings of its own: either entry may be the one that was
// meant. A tool of an MCP server yields to one of the agent.
func excludeTwice(placed []placedTool, again placedTool) {
	first := slices.IndexFunc(placed, func(t placedTool) bool { return t.tool.Name == again.tool.Name })
	switch {
	case again.mounted:
	case placed[first].mounted:
		placed[first] = again
	default:
		placed[first].wrong = true
	}
}

func (r *reader) readTool(o *object, item value) ([]placedTool, *Mount) {
	if name, ok := item.text(); ok {
		return r.tools.find(o, item, name), nil
	}
	if _, ok := item.members(); !ok {
		item.mistake("%s: a tool is a name, an object with use, mcp or subAgent, or a declaration", o.what)
		return nil, nil
	}
	entry := newObject(item, o.what+": tools")
	switch {
	case entry.has("mcp"):
		return r.mount(o, entry)
	case entry.has("subAgent"):
		return []placedTool{readSubAgent(o, entry)}, nil
	case entry.has("use"):
		return r.tools.use(o, entry), nil
	}
	return []placedTool{r.tools.read(item, o.what)}, nil
}

// readSubAgent reads {subAgent: type}: a tool whose calls another agent answers.
func readSubAgent(o, entry *object) placedTool {
	before := entry.file.count()
	at, _ := entry.field("subAgent")
	t := agent.SubAgent[agent.Task](entry.text("subAgent"), entry.prose("description"))
	entry.what = fmt.Sprintf("%s: sub-agent %q", o.what, t.SubAgent)
	if entry.has("inputSchema") {
		t.InputSchema = entry.schema("inputSchema")
	}
	t.OutputSchema, t.Timeout = entry.schema("outputSchema"), entry.duration("timeout")
	t.Strict, t.FinishWith = entry.isTrue("strict"), entry.isTrue("finishWith")
	entry.end()
	return placedTool{tool: t, at: at, wrong: entry.file.count() > before}
}

// use reads {use: name}: a tool by name, with other settings for the agent.
func (ts *tools) use(o, entry *object) []placedTool {
	at, _ := entry.field("use")
	used := ts.find(o, at, entry.text("use"))
	for i := range used {
		t := &used[i]
		entry.what = fmt.Sprintf("%s: tool %q", o.what, t.tool.Name)
		b := readBehaviour(entry)
		b.apply(&t.tool)
		if entry.has("setState") {
			t.setState = readSetState(entry)
		}
		b.approval.checkArguments(t.tool)
		t.wrong = t.wrong || len(entry.wrong) > 0
		if t.request != nil && !t.wrong {
			t.tool, _ = httptool.New(t.tool, *t.request, ts.peers) // the declaration was made with the same request
		}
	}
	if len(used) > 0 {
		entry.end()
	}
	return used
}

// find returns a list with the tool of a name, or an empty list with a mistake.
func (ts *tools) find(o *object, at value, name string) []placedTool {
	if t, ok := ts.declared[name]; ok {
		return []placedTool{{tool: t.tool, at: at, wrong: t.wrong, request: t.request, setState: t.setState}}
	}
	if t, ok := ts.builtIn[name]; ok {
		return []placedTool{{tool: t, at: at}}
	}
	known := slices.Collect(maps.Keys(ts.builtIn))
	known = slices.AppendSeq(known, maps.Keys(ts.declared))
	slices.Sort(known)
	at.mistake("%s: there is no tool %q; known: %s%s", o.what, name, strings.Join(known, ", "), suggest(name, known))
	return nil
}

// read reads the declaration of a client tool or an HTTP tool.
func (ts *tools) read(v value, what string) placedTool {
	before := v.file.count()
	o := newObject(v, what)
	t := agent.Tool{Name: o.text("name"), Description: o.prose("description"), InputSchema: json.RawMessage(anyInput)}
	at, _ := o.field("name")
	if t.Name == "" {
		o.mistakeAt("name", "the tool has no name")
	} else {
		o.what = fmt.Sprintf("%s: tool %q", what, t.Name)
	}
	if o.has("inputSchema") {
		t.InputSchema = o.schema("inputSchema")
	}
	t.OutputSchema = o.schema("outputSchema")
	t.Client = o.isTrue("client")
	b := readBehaviour(o)
	b.apply(&t)
	b.approval.checkArguments(t)
	setters := readSetState(o)
	var request *httptool.Config
	switch http, ok := o.field("http"); {
	case t.Client == ok:
		o.mistakeAt("http", "a declared tool has either client: true, and a client answers it, or http with a request")
	case ok:
		request, t = ts.readHTTP(newObject(http, o.what+": http"), t)
	}
	o.end()
	return placedTool{tool: t, at: at, wrong: v.file.count() > before, request: request, setState: setters}
}

// behaviour is how calls of a tool are handled. Missing settings leave the tool as it is.
type behaviour struct {
	retry                        agent.Retry
	timeout, answerWithin        time.Duration
	strict, readOnly, finishWith *bool
	approval                     *approval
	approvers                    string // any or others; empty if missing
}

func readBehaviour(o *object) behaviour {
	return behaviour{
		retry:   agent.Retry(o.oneOf("retry", string(agent.RetryNever), string(agent.RetrySafe))),
		timeout: o.duration("timeout"), answerWithin: o.duration("answerWithin"),
		strict: o.boolean("strict"), readOnly: o.boolean("readOnly"), finishWith: o.boolean("finishWith"),
		approval: readApproval(o), approvers: o.oneOf("approvers", "any", string(agent.Others)),
	}
}

func (b behaviour) apply(t *agent.Tool) {
	t.Retry = cmp.Or(b.retry, t.Retry)
	t.Timeout = cmp.Or(b.timeout, t.Timeout)
	t.AnswerWithin = cmp.Or(b.answerWithin, t.AnswerWithin)
	if b.strict != nil {
		t.Strict = *b.strict
	}
	switch {
	case b.readOnly != nil:
		t.ReadOnly = *b.readOnly
	case b.retry == agent.RetryNever: // a read-only call would be repeated
		t.ReadOnly = false
	}
	if b.finishWith != nil {
		t.FinishWith = *b.finishWith
	}
	b.approval.apply(t)
	if b.approvers != "" {
		t.Approvers = agent.Anyone
	}
	if b.approvers == string(agent.Others) {
		t.Approvers = agent.Others
	}
}
