package agents

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// Limits of what files may say.
const (
	maxSteps       = 10_000
	maxRetries     = 100
	maxTemperature = 2
)

// agent reads an agent, and gives where its name is.
func (r *reader) agent(d declaration) (Agent, value) {
	if _, ok := r.members(d.at, maxDepth); !ok {
		r.mistake(d.at, "an agent must be an object with fields")
		return Agent{}, d.at
	}
	o := r.object(d.at, "")
	name, at := r.name(o)
	o.defaults = d.defaults // for all but the name
	a := Agent{Agent: agent.Agent{
		Name: name, Description: o.text("description"), SystemPrompt: r.prose(o, "systemPrompt"), Prompt: r.prompt(o),
		StateSchema: r.schema(o, "stateSchema"), OutputSchema: r.schema(o, "outputSchema"),
		Completion:   agent.Completion(o.oneOf("completion", string(agent.CompletionTool), string(agent.CompletionNative))),
		StrictOutput: o.boolean("strictOutput"),
		MaxSteps:     o.steps("maxSteps"), MaxOutputTokens: o.integer("maxOutputTokens", 1, math.MaxInt32),
		Temperature: o.number("temperature", 0, maxTemperature), MaxRetries: r.retries(o),
		Cache: agent.Cache(o.oneOf("cache", string(agent.CacheNone), string(agent.CacheAuto))), ProviderOptions: r.options(o),
		RunTimeout: o.duration("runTimeout"), Context: r.context(o),
		OnBusy: agent.BusyPolicy(o.oneOf("onBusy", string(agent.BusyReject), string(agent.BusyEnqueue), string(agent.BusyInterrupt), string(agent.BusyRollback))),
	}}
	r.models(o, &a)
	var tools []placed
	tools, a.mounts = r.agentTools(o)
	for _, t := range tools {
		a.Tools = append(a.Tools, t.tool)
		if t.mount == nil {
			a.own = append(a.own, t.tool)
		}
	}
	a.StopWhen = r.stopWhen(o, a.Tools)
	o.end()
	if a.Prompt != nil && a.SystemPrompt != "" {
		o.mistake("prompt", "give either systemPrompt or prompt")
	}
	if !o.has("outputSchema") && (a.Completion != "" || a.StrictOutput) {
		o.mistake("outputSchema", "completion and strictOutput are for agents with an outputSchema")
	}
	r.problems(o, a.Agent, tools)
	return a, at
}

// name reads the name of an agent, with which its mistakes begin from there on.
func (r *reader) name(o *object) (name string, at value) {
	name = o.text("name")
	at, there := o.field("name")
	if !there {
		o.mistake("name", "the agent has no name")
	}
	o.what = fmt.Sprintf("agent %q", name)
	return name, at
}

// problems notes what is wrong with an agent as a whole, where reading it has not said so.
func (r *reader) problems(o *object, a agent.Agent, tools []placed) {
	for _, p := range a.Problems() {
		field, rest, _ := strings.Cut(p.Field, ".")
		name, number, listed := strings.Cut(strings.TrimSuffix(field, "]"), "[")
		i, err := strconv.Atoi(number)
		switch {
		case listed && name == "tools" && err == nil && i < len(tools):
			if t := tools[i]; !t.wrong {
				r.mistake(t.at, "%s: tool %q: %s%s", o.what, t.tool.Name, spaced(rest), p.Text)
			}
		case !slices.Contains(o.wrong, name):
			o.mistake(name, "%s: %s", p.Field, p.Text)
		}
	}
}

// models reads which models the agent is on.
func (r *reader) models(o *object, a *Agent) {
	at, _ := o.field("model")
	a.Model = o.text("model")
	a.Models = map[string]model.Model{}
	if !slices.Contains(o.wrong, "model") {
		if m, ok := r.model(o, at, a.Model); ok {
			a.Models[a.Model] = m
		}
	}
	a.Fallbacks = o.texts("fallbacks")
	at, _ = o.field("fallbacks")
	for _, full := range a.Fallbacks {
		if m, ok := r.model(o, at, full); ok {
			a.Models[full] = m
		}
	}
}

// retries reads maxRetries, of which 0 is not the default.
func (r *reader) retries(o *object) *int {
	count := o.integer("maxRetries", 0, maxRetries)
	if !o.has("maxRetries") {
		return nil
	}
	return &count
}

// options reads providerOptions: an object for each provider.
func (r *reader) options(o *object) map[string]json.RawMessage {
	var options map[string]json.RawMessage
	for _, m := range o.entries("providerOptions") {
		if _, ok := r.members(m.value, maxDepth); !ok {
			o.wrong = append(o.wrong, "providerOptions")
			r.mistake(m.value, "%s: providerOptions.%s must be an object", o.what, m.name)
			continue
		}
		if options == nil {
			options = map[string]json.RawMessage{}
		}
		options[m.name] = r.json(m.value)
	}
	return options
}

// context reads the context policy.
func (r *reader) context(o *object) agent.ContextPolicy {
	v, ok := o.field("context")
	if !ok {
		return agent.ContextPolicy{}
	}
	c := r.object(v, o.what+": context")
	policy := agent.ContextPolicy{
		MaxTokens: c.integer("maxTokens", 1, math.MaxInt32), KeepTokens: c.integer("keepTokens", 1, math.MaxInt32),
		Compaction: agent.Compaction(c.oneOf("compaction", string(agent.CompactWindow), string(agent.CompactSummary))),
	}
	if !c.has("maxTokens") {
		c.mistake("maxTokens", "maxTokens is missing: the budget of what the model is shown")
	}
	if policy.KeepTokens > policy.MaxTokens {
		c.mistake("keepTokens", "keepTokens is %d, it must be below maxTokens", policy.KeepTokens)
	}
	c.end()
	if len(c.wrong) > 0 {
		o.wrong = append(o.wrong, "context")
	}
	return policy
}

// prose reads a text, or the file that holds it: {file: prompt.md}.
func (r *reader) prose(o *object, name string) string {
	v, there := o.field(name)
	if _, ok := r.members(v, maxDepth); !there || !ok {
		return o.text(name)
	}
	from := r.object(v, o.what+": "+name)
	source, ok := r.content(from, "file")
	from.end()
	if ok && !utf8.Valid(source.Data) {
		from.mistake("file", "the file is not UTF-8 text")
	}
	return string(source.Data)
}

// schema reads a JSON Schema, or the file that holds it, in YAML or JSON: {file: answer.json}.
func (r *reader) schema(o *object, name string) json.RawMessage {
	v, there := o.field(name)
	if !there {
		return nil
	}
	members, ok := r.members(v, maxDepth)
	if !ok {
		o.wants(name, "a JSON Schema, or {file: …} with one")
		return nil
	}
	at := v
	if len(members) == 1 && members[0].name == "file" {
		source, ok := r.content(r.object(v, o.what+": "+name), "file")
		if !ok {
			return nil
		}
		f := r.parse(source)
		if f == nil {
			return nil
		}
		v = f.root
	}
	raw := r.json(v)
	if raw == nil {
		return nil
	}
	if _, err := agent.CompileSchema(raw); err != nil {
		o.wrong = append(o.wrong, name)
		r.mistake(at, "%s: %s: %s", o.what, name, sentence(err))
		return nil
	}
	return raw
}
