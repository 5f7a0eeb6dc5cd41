package agents

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// agentFields is an agent as a file has it. Its own fields are those that have another form in agent.Agent.
type agentFields struct {
	agent.Agent
	Prompt   string
	Tools    []struct{} // each is read for itself
	StopWhen []stopRule
	Remote   *struct{ URL, Agent, APIKeyEnv string }

	CallerTools *struct {
		Allow []any // true or patterns
		Max   int
	}
	// Of the description of an endpoint.
	Callbacks []string
	Methods   []string
}

// agent reads an agent. at is the position of its name. The agent is usable if only some of its tools or fallbacks have a
// mistake; then it does not have them.
func (r *reader) agent(v value) (a Agent, at value, usable bool) {
	name, _ := v.field("name").text()
	part := Part{Kind: AgentPart, Name: name}
	defer r.within(part)()
	before := r.count()
	if v.kind() != "object" {
		v.mistake("an agent must be an object with fields")
		return Agent{}, v, false
	}
	var f agentFields
	s := read(v, "agent", fmt.Sprintf("agent %q", name), &f)
	at = v.at("name")
	if !v.has("name") {
		s.record(at, "name", "", "the agent has no name")
	}
	a = Agent{File: v.file.name, Agent: f.Agent, text: string(v.json())}
	a.Prompt = readPrompt(s, f.Prompt, f.StateSchema)
	switch {
	case s.wrong["remote"]:
		a.Remote = &agent.Remote{} // it needs no model
	case f.Remote != nil && f.Remote.APIKeyEnv != "" && v.file.binding != nil:
		s.mistakeAt("remote.apiKeyEnv", "remote: the description of an endpoint cannot name environment variables")
	case f.Remote != nil:
		key, err := r.providers.known.Remote(f.Remote.URL, f.Remote.APIKeyEnv)
		if err != nil {
			s.mistakeAt("remote.url", "remote: %v", err)
		}
		a.Remote = &agent.Remote{URL: f.Remote.URL, Agent: f.Remote.Agent, Key: key}
	default:
		r.readModels(s, &a)
	}
	if c := f.CallerTools; c != nil {
		a.CallerTools = &agent.CallerTools{Max: c.Max}
		for _, allowed := range c.Allow {
			switch allowed := allowed.(type) {
			case string:
				a.CallerTools.Allow = append(a.CallerTools.Allow, allowed)
			case bool:
				if !allowed {
					s.mistakeAt("callerTools.allow", "callerTools: allow is false; omit callerTools to permit no tools")
				}
				a.CallerTools.Allow = []string{"*"}
			}
		}
	}
	placed, mounts, complete := r.readTools(s)
	a.mounts = mounts
	for i := range placed {
		t := &placed[i]
		leave := r.within(Part{Kind: ToolPart, Name: t.tool.Name, Agent: name})
		before := r.count()
		t.tool = t.withSetState(s.what, a.StateSchema)
		t.wrong = t.wrong || r.count() > before
		leave()
		a.Tools = append(a.Tools, t.tool)
	}
	a.StopWhen = readStopWhen(s, f.StopWhen, a.Tools, complete)
	if a.Context.KeepTokens > a.Context.MaxTokens && !s.wrong["context"] {
		s.mistakeAt("context.keepTokens", "context: keepTokens is %d; it must be below maxTokens", a.Context.KeepTokens)
	}
	if f.Prompt != "" && a.SystemPrompt != "" {
		s.mistakeAt("prompt", "give either systemPrompt or prompt")
	}
	if slices.Contains(f.Callbacks, "prompt") && (f.Prompt != "" || a.SystemPrompt != "") {
		s.mistakeAt("callbacks", "give either systemPrompt, prompt or the callback prompt")
	}
	if slices.Contains(f.Callbacks, "stopWhen") && len(f.StopWhen) > 0 {
		s.mistakeAt("callbacks", "give either stopWhen or the callback stopWhen")
	}
	if v.file.binding != nil {
		v.file.binding.Agent(&a.Agent, f.Callbacks, f.Methods)
	}
	if a.OutputSchema == nil && !s.wrong["outputSchema"] && (a.Completion != "" || a.StrictOutput) {
		s.mistakeAt("outputSchema", "completion and strictOutput are for agents with an outputSchema")
	}
	reportProblems(s, a.Agent, placed)
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
	implied := slices.ContainsFunc(r.implied, func(p Problem) bool { return p.Part == part })
	own := slices.ContainsFunc(r.list[before:], func(m mistake) bool { return m.part == part })
	return a, at, !implied && !own
}

// reportProblems reports the problems of the whole agent, except in fields with a mistake.
func reportProblems(s *section, a agent.Agent, tools []placedTool) {
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
				leave := s.file.within(Part{Kind: ToolPart, Name: t.tool.Name, Agent: a.Name})
				t.at.mistake("%s: tool %q: %s%s", s.what, t.tool.Name, rest, p.Text)
				t.wrong = true
				leave()
			}
		case !s.wrong[name]:
			s.mistakeAt(name, "%s: %s", p.Field, p.Text)
		}
	}
}

// readModels reads the model of an agent and its fallbacks. A fallback that cannot be used is left out.
func (r *reader) readModels(s *section, a *Agent) {
	p := r.providers
	a.Models, a.Governors = map[string]model.Model{}, map[string][]model.Governor{}
	if before := r.count(); !s.wrong["model"] {
		if m, ok := p.find(s, "model", s.at("model"), a.Model); ok {
			a.addModel(p, a.Model, m)
		} else if r.count() == before { // the mistake is the provider's
			r.imply(r.part, "its model %q cannot be used", a.Model)
		}
	}
	a.Fallbacks = nil
	items, _ := s.field("fallbacks").items()
	for i, item := range items {
		path := fmt.Sprintf("fallbacks.%d", i)
		if s.wrong[path] {
			continue
		}
		name, _ := item.text()
		provider, _, _ := strings.Cut(name, "/")
		part := Part{Kind: ProviderPart, Name: provider, Agent: a.Name}
		before := r.count()
		leave := r.within(part)
		m, ok := p.find(s, path, item, name)
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
