package agents

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool/httptool"
)

// placed is a tool of an agent, with the place where the agent has it.
type placed struct {
	tool  agent.Tool
	at    value
	mount *Mount           // of a tool of an MCP server
	wrong bool             // it was told what is wrong with it
	http  *httptool.Config // of an HTTP tool
}

// noInput is the schema of arguments that a file says nothing of.
var noInput = json.RawMessage(`{"type":"object"}`)

// shareTool notes a tool that a file declares for all agents.
func (r *reader) shareTool(v value) {
	t := r.declaredTool(v, "tools")
	if t.tool.Name == "" {
		return
	}
	text := string(r.json(v))
	if former, ok := r.tools[t.tool.Name]; ok {
		if former.text != text {
			r.mistake(t.at, "the tool %q is declared otherwise at %s:%d", t.tool.Name, former.at.file.name, former.at.line)
		}
		return
	}
	if _, ok := r.known.Tools[t.tool.Name]; ok {
		r.mistake(t.at, "there is a built-in tool %q already; choose another name", t.tool.Name)
	}
	r.tools[t.tool.Name] = &shared{placed: t, text: text}
}

// shared is a tool that files share by its name.
type shared struct {
	placed
	text string // of the declaration, to tell whether another one is the same
}

// agentTools reads the tools of an agent: names, declarations, {use: name} and {mcp: server}
// with what is different.
func (r *reader) agentTools(o *object) (tools []placed, mounts []*Mount) {
	seen := map[string]bool{}
	for _, item := range o.list("tools") {
		found, mount := r.agentTool(o, item)
		if mount != nil {
			mounts = append(mounts, mount)
		}
		for _, t := range found {
			name := t.tool.Name
			if seen[name] && name != "" {
				r.mistake(t.at, "%s: the tool %q is there twice", o.what, name)
				continue
			}
			seen[name] = true
			tools = append(tools, t)
		}
	}
	return tools, mounts
}

func (r *reader) agentTool(o *object, item value) ([]placed, *Mount) {
	if name, ok := item.text(); ok {
		return r.namedTool(o, item, name), nil
	}
	if _, ok := r.members(item, maxDepth); !ok {
		r.mistake(item, "%s: a tool is a name, an object with use or mcp, or a declaration", o.what)
		return nil, nil
	}
	entry := r.object(item, o.what+": tools")
	if entry.has("mcp") {
		return r.mounted(o, entry)
	}
	if !entry.has("use") {
		return []placed{r.declaredTool(item, o.what)}, nil
	}
	at, _ := entry.field("use")
	used := r.namedTool(o, at, entry.text("use"))
	for i := range used {
		entry.what = fmt.Sprintf("%s: tool %q", o.what, used[i].tool.Name)
		former := len(r.fields)
		r.behaviour(entry)(&used[i].tool)
		r.checkFields(r.fields[former:], used[i].tool)
		used[i].wrong = used[i].wrong || len(entry.wrong) > 0
		if http := used[i].http; http != nil && !used[i].wrong { // what is different may be of the request
			used[i].tool, _ = httptool.New(used[i].tool, *http, r.known.HTTP) // it was made before
		}
	}
	if len(used) > 0 {
		entry.end()
	}
	return used, nil
}

// namedTool gives a tool that is built in or declared.
func (r *reader) namedTool(o *object, at value, name string) []placed {
	if t, ok := r.tools[name]; ok {
		return []placed{{tool: t.tool, at: at, wrong: t.wrong, http: t.http}}
	}
	if t, ok := r.known.Tools[name]; ok {
		return []placed{{tool: t, at: at}}
	}
	known := slices.Collect(maps.Keys(r.known.Tools))
	known = slices.AppendSeq(known, maps.Keys(r.tools))
	slices.Sort(known)
	r.mistake(at, "%s: there is no tool %q; known: %s%s", o.what, name, strings.Join(known, ", "), meant(name, known))
	return nil
}

// declaredTool reads a tool that is answered from outside, or that calls a URL.
func (r *reader) declaredTool(v value, what string) placed {
	before := len(r.mistakes)
	o := r.object(v, what)
	t := agent.Tool{Name: o.text("name"), Description: r.prose(o, "description"), InputSchema: noInput}
	at, _ := o.field("name")
	if t.Name == "" {
		o.mistake("name", "the tool has no name")
	} else {
		o.what = fmt.Sprintf("%s: tool %q", what, t.Name)
	}
	if o.has("inputSchema") {
		t.InputSchema = r.schema(o, "inputSchema")
	}
	t.OutputSchema = r.schema(o, "outputSchema")
	t.Client = o.boolean("client")
	former := len(r.fields)
	r.behaviour(o)(&t)
	r.checkFields(r.fields[former:], t)
	var config *httptool.Config
	switch http, ok := o.field("http"); {
	case t.Client == ok:
		o.mistake("http", "a tool that is declared has either client: true, and is answered from outside, or http, with a request")
	case ok:
		config = r.http(http, o.what)
		t = r.httpTool(o, t, *config)
	}
	o.end()
	return placed{tool: t, at: at, wrong: len(r.mistakes) > before, http: config}
}

// behaviour reads how a tool is run, and gives what sets that.
func (r *reader) behaviour(o *object) func(*agent.Tool) {
	retry := agent.Retry(o.oneOf("retry", string(agent.RetryNever), string(agent.RetrySafe)))
	timeout, answerWithin := o.duration("timeout"), o.duration("answerWithin")
	strict, isStrict := o.boolean("strict"), o.has("strict")
	readOnly, isReadOnly := o.boolean("readOnly"), o.has("readOnly")
	finish, finishes := o.boolean("finishWith"), o.has("finishWith")
	approve := r.approval(o)
	return func(t *agent.Tool) {
		t.Retry = cmp.Or(retry, t.Retry)
		t.Timeout = cmp.Or(timeout, t.Timeout)
		t.AnswerWithin = cmp.Or(answerWithin, t.AnswerWithin)
		if isStrict {
			t.Strict = strict
		}
		switch {
		case isReadOnly:
			t.ReadOnly = readOnly
		case retry == agent.RetryNever: // whatever the tool is without that
			t.ReadOnly = false
		}
		if finishes {
			t.FinishWith = finish
		}
		if approve != nil {
			approve(t)
		}
	}
}
