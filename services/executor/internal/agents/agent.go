package agents

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// Limits of an agent in a file.
const (
	maxSteps       = 10_000
	maxRetries     = 100
	maxTemperature = 2
	maxSubAgents   = 1000
	maxCompanions  = 1000
	maxTreeDepth   = 100
)

// agent reads an agent. at is the place of its name. The agent is usable if only some of its tools or fallbacks have a
// mistake; then it does not have them.
func (r *reader) agent(d declaration) (a Agent, at value, usable bool) {
	part, before := Part{Kind: AgentPart}, r.count()
	leave := r.within(part)
	defer func() { leave() }()
	if _, ok := d.members(); !ok {
		d.mistake("an agent must be an object with fields")
		return Agent{}, d.value, false
	}
	o := newObject(d.value, "")
	name, at := readName(o)
	part.Name = name
	r.part = part
	unnamed := r.count()
	o.defaults = d.defaults // set late: defaults do not apply to the name
	stateSchema := o.schema("stateSchema")
	a = Agent{File: d.file.name, Agent: agent.Agent{
		Name: name, Description: o.text("description"), SystemPrompt: o.prose("systemPrompt"), Prompt: readPrompt(o, stateSchema),
		StateSchema: stateSchema, OutputSchema: o.schema("outputSchema"),
		Completion:   agent.Completion(o.oneOf("completion", string(agent.CompletionTool), string(agent.CompletionNative))),
		StrictOutput: o.isTrue("strictOutput"), Companions: readCompanions(o), MaxCompanions: o.integer("maxCompanions", 1, maxCompanions),
		MaxSubAgents: o.integer("maxSubAgents", 1, maxSubAgents), MaxDepth: o.integer("maxDepth", 1, maxTreeDepth),
		MaxSteps: readMaxSteps(o), MaxOutputTokens: o.integer("maxOutputTokens", 1, math.MaxInt32),
		Temperature: o.number("temperature", 0, maxTemperature), MaxRetries: readMaxRetries(o),
		Cache: agent.Cache(o.oneOf("cache", string(agent.CacheNone), string(agent.CacheAuto))), ProviderOptions: readOptions(o),
		RunTimeout: o.duration("runTimeout"), Context: readContext(o),
		OnBusy: agent.BusyPolicy(o.oneOf("onBusy", string(agent.BusyReject), string(agent.BusyEnqueue), string(agent.BusyInterrupt), string(agent.BusyRollback))),
	}}
	if o.has("remote") {
		a.Remote = r.readRemote(o)
	} else {
		r.readModels(o, &a)
	}
	placed, mounts, complete := r.readTools(o)
	a.mounts = mounts
	for i := range placed {
		placed[i].tool = r.withSetState(o, &placed[i], a.StateSchema)
		a.Tools = append(a.Tools, placed[i].tool)
	}
	a.StopWhen = readStopWhen(o, a.Tools, complete)
	o.end()
	reportContradictions(o, a.Agent)
	reportProblems(o, a.Agent, placed)
	a.keepTools(placed)
	implied := slices.ContainsFunc(r.implied, func(p Problem) bool { return p.Part == part })
	return a, at, unnamed == before && !implied && !r.hasSince(before, part)
}

// withSetState returns a tool with the writes of setState. Their mistakes are the tool's.
func (r *reader) withSetState(o *object, t *placedTool, stateSchema json.RawMessage) agent.Tool {
	defer r.within(Part{Kind: ToolPart, Name: t.tool.Name, Agent: r.part.Name})()
	before := r.count()
	tool := t.withSetState(o, stateSchema)
	t.wrong = t.wrong || r.count() > before
	return tool
}

// keepTools leaves out the tools with a mistake.
func (a *Agent) keepTools(placed []placedTool) {
	a.Tools = nil
	for _, t := range placed {
		switch {
		case t.wrong:
			a.without = append(a.without, t.tool.Name)
			continue
		case !t.mounted:
			a.own = append(a.own, t.tool)
		}
		a.Tools = append(a.Tools, t.tool)
	}
}

// reportContradictions reports fields that do not go together.
func reportContradictions(o *object, a agent.Agent) {
	if a.Prompt != nil && a.SystemPrompt != "" {
		o.mistakeAt("prompt", "give either systemPrompt or prompt")
	}
	if !o.has("outputSchema") && (a.Completion != "" || a.StrictOutput) {
		o.mistakeAt("outputSchema", "completion and strictOutput are for agents with an outputSchema")
	}
}

// readName reads the name of an agent. From then on the mistakes of the agent begin with it.
func readName(o *object) (name string, at value) {
	name = o.text("name")
	at, ok := o.field("name")
	if !ok {
		o.mistakeAt("name", "the agent has no name")
	}
	o.what = fmt.Sprintf("agent %q", name)
	return name, at
}

// reportProblems reports the problems of the whole agent, except in fields with a mistake.
func reportProblems(o *object, a agent.Agent, tools []placedTool) {
	for _, p := range a.Problems() {
		field, rest, _ := strings.Cut(p.Field, ".")
		name, number, listed := strings.Cut(strings.TrimSuffix(field, "]"), "[")
		i, err := strconv.Atoi(number)
		switch {
		case listed && name == "tools" && err == nil && i < len(tools):
			if t := &tools[i]; !t.wrong {
				if rest != "" {
					rest += ": "
				}
				leave := o.file.within(Part{Kind: ToolPart, Name: t.tool.Name, Agent: a.Name})
				t.at.mistake("%s: tool %q: %s%s", o.what, t.tool.Name, rest, p.Text)
				t.wrong = true
				leave()
			}
		case !o.isWrong(name):
			o.mistakeAt(name, "%s: %s", p.Field, p.Text)
		}
	}
}

// readMaxSteps reads the limit on steps: a number, or Infinity.
func readMaxSteps(o *object) int {
	if v, _ := o.field("maxSteps"); v.isInfinite() {
		return agent.NoMaxSteps
	}
	return o.integer("maxSteps", 1, maxSteps)
}

// readMaxRetries returns nil if the field is missing: 0 is not the default.
func readMaxRetries(o *object) *int {
	count := o.integer("maxRetries", 0, maxRetries)
	if !o.has("maxRetries") {
		return nil
	}
	return &count
}

// readOptions reads providerOptions: an object for each provider.
func readOptions(o *object) map[string]json.RawMessage {
	var options map[string]json.RawMessage
	for _, m := range o.entries("providerOptions") {
		if _, ok := m.members(); !ok {
			o.mistakeIn(m.value, "providerOptions", "providerOptions.%s must be an object", m.name)
			continue
		}
		if options == nil {
			options = map[string]json.RawMessage{}
		}
		options[m.name] = m.json()
	}
	return options
}

func readContext(o *object) agent.ContextPolicy {
	v, ok := o.field("context")
	if !ok {
		return agent.ContextPolicy{}
	}
	c := newObject(v, o.what+": context")
	policy := agent.ContextPolicy{
		MaxTokens: c.integer("maxTokens", 1, math.MaxInt32), KeepTokens: c.integer("keepTokens", 1, math.MaxInt32),
		Compaction: agent.Compaction(c.oneOf("compaction", string(agent.CompactWindow), string(agent.CompactSummary))),
	}
	if !c.has("maxTokens") {
		c.mistakeAt("maxTokens", "maxTokens is missing: the token budget of the messages for the model")
	}
	if policy.KeepTokens > policy.MaxTokens {
		c.mistakeAt("keepTokens", "keepTokens is %d, it must be below maxTokens", policy.KeepTokens)
	}
	c.end()
	if len(c.wrong) > 0 {
		o.wrong = append(o.wrong, "context")
	}
	return policy
}

// readCompanions reads the agents that the agent can consult.
func readCompanions(o *object) []agent.Companion {
	var companions []agent.Companion
	for _, item := range o.list("companions") {
		c := newObject(item, o.what+": companions")
		companions = append(companions, agent.Companion{
			Agent: c.text("agent"), Description: c.prose("description"), Timeout: c.duration("timeout"),
			Mode: agent.CompanionMode(c.oneOf("mode", string(agent.CompanionBlocking), string(agent.CompanionNonBlocking))),
		})
		c.end()
		if len(c.wrong) > 0 {
			o.wrong = append(o.wrong, "companions")
		}
	}
	return companions
}

// readRemote reads the agent of another Holdfast.
func (r *reader) readRemote(o *object) *agent.Remote {
	v, _ := o.field("remote")
	c := newObject(v, o.what+": remote")
	remote := &agent.Remote{URL: c.text("url"), Agent: c.text("agent")}
	variable := c.text("apiKeyEnv")
	c.end()
	if len(c.wrong) == 0 {
		key, err := r.providers.known.Remote(remote.URL, variable)
		if err != nil {
			c.mistakeAt("url", "%v", err)
		}
		remote.Key = key
	}
	if len(c.wrong) > 0 {
		o.wrong = append(o.wrong, "remote")
	}
	return remote
}

// readModels reads the model of an agent and its fallbacks. A fallback that cannot be used is left out.
func (r *reader) readModels(o *object, a *Agent) {
	p := r.providers
	at, _ := o.field("model")
	a.Model = o.text("model")
	a.Models, a.Governors = map[string]model.Model{}, map[string][]model.Governor{}
	if before := r.count(); !o.isWrong("model") {
		if m, ok := p.find(o, at, a.Model); ok {
			a.addModel(p, a.Model, m)
		} else if r.count() == before { // the mistake is the provider's
			r.imply(r.part, "its model %q cannot be used", a.Model)
		}
	}
	at, _ = o.field("fallbacks")
	for _, name := range o.distinct("fallbacks") {
		provider, _, _ := strings.Cut(name, "/")
		part := Part{Kind: ProviderPart, Name: provider, Agent: a.Name}
		before := r.count()
		leave := r.within(part)
		m, ok := p.find(o, at, name)
		leave()
		if !ok && r.count() == before {
			r.imply(part, "the fallback %q cannot be used", name)
		}
		if !ok {
			continue
		}
		a.Fallbacks = append(a.Fallbacks, name)
		a.addModel(p, name, m)
	}
}

// imply records a problem that follows from a mistake elsewhere.
func (r *reader) imply(p Part, format string, args ...any) {
	r.implied = append(r.implied, Problem{Part: p, Text: fmt.Sprintf(format, args...)})
}

func (a *Agent) addModel(p *providers, full string, m model.Model) {
	a.Models[full] = m
	if governors := p.governors(full); governors != nil {
		a.Governors[full] = governors
	}
}
