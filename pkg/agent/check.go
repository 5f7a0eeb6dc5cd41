package agent

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Limits of an agent. The state service has the same limits on names and descriptions.
const (
	maxAgentName   = 256 // bytes
	maxDescription = 4096
	maxAgentSteps  = 10_000
	maxAgentTools  = 1000
	maxRetries     = 100
	maxTemperature = 2
	maxToolName    = 64
	maxSubAgents   = 1000
	maxDepth       = 100
)

// Problem is a mistake that prevents the registration of an agent.
type Problem struct {
	// Field is the path of the field, as in YAML: tools[2].inputSchema.
	Field string
	// Text is a sentence without a full stop.
	Text string
}

// Check returns Invalid (AGENT_INVALID) for an agent with problems. The detail has one line for each.
// Check calls no function of the agent.
func (a Agent) Check() error {
	problems := a.Problems()
	if len(problems) == 0 {
		return nil
	}
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = fmt.Sprintf("agent %.80q: %s: %s", a.Name, p.Field, p.Text)
	}
	return fault.New(fault.Invalid, "AGENT_INVALID", "%s", strings.Join(lines, "\n"))
}

// Problems returns the problems that Check reports.
func (a Agent) Problems() []Problem {
	var p problems
	a.checkNames(&p)
	if a.Remote != nil {
		a.checkRemote(&p)
	} else {
		a.checkModel(&p)
	}
	a.checkLimits(&p)
	a.checkChoices(&p)
	if a.StateSchema != nil {
		p.checkSchema("stateSchema", a.StateSchema)
		if n := len(a.StateSchema); n > MaxStateSchema {
			p.add("stateSchema", "it has %d bytes; at most %d are allowed", n, MaxStateSchema)
		}
	}
	if a.OutputSchema != nil {
		p.checkSchema("outputSchema", a.OutputSchema)
	}
	a.checkTools(&p)
	a.checkMethods(&p)
	a.checkCompanions(&p)
	a.checkCaller(&p)
	return p
}

type problems []Problem

func (p *problems) add(field, format string, args ...any) {
	*p = append(*p, Problem{field, fmt.Sprintf(format, args...)})
}

func (a Agent) checkNames(p *problems) {
	switch {
	case a.Name == "":
		p.add("name", "it is missing")
	case len(a.Name) > maxAgentName:
		p.add("name", "it has %d bytes; at most %d are allowed", len(a.Name), maxAgentName)
	case !utf8.ValidString(a.Name) || strings.ContainsFunc(a.Name, unicode.IsControl):
		p.add("name", "it has control characters")
	}
	if len(a.Description) > maxDescription {
		p.add("description", "it has %d bytes; at most %d are allowed", len(a.Description), maxDescription)
	}
	p.checkText("description", a.Description)
	p.checkText("systemPrompt", a.SystemPrompt)
}

func (p *problems) checkText(field, text string) {
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		p.add(field, "it must be UTF-8 without NUL characters")
	}
}

func (a Agent) checkModel(p *problems) {
	p.checkModelName("model", a.Model)
	for i, name := range a.Fallbacks {
		field := fmt.Sprintf("fallbacks[%d]", i)
		p.checkModelName(field, name)
		if name == a.Model || slices.Contains(a.Fallbacks[:i], name) {
			p.add(field, "%q is listed already", name)
		}
	}
	for provider, options := range a.ProviderOptions {
		var members map[string]json.RawMessage
		if json.Unmarshal(options, &members) != nil || members == nil {
			p.add("providerOptions."+provider, "it is not a JSON object")
		}
	}
}

func (p *problems) checkModelName(field, model string) {
	if provider, name, ok := strings.Cut(model, "/"); !ok || provider == "" || name == "" {
		p.add(field, "it is %q, and must be provider/name, for example openai/gpt-5", model)
	}
}

func (a Agent) checkLimits(p *problems) {
	if a.MaxSteps != NoMaxSteps {
		p.checkRange("maxSteps", a.MaxSteps, maxAgentSteps)
	}
	p.checkRange("maxSubAgents", a.MaxSubAgents, maxSubAgents)
	p.checkRange("maxDepth", a.MaxDepth, maxDepth)
	p.checkRange("maxOutputTokens", a.MaxOutputTokens, math.MaxInt32)
	p.checkRange("context.maxTokens", a.Context.MaxTokens, math.MaxInt32)
	p.checkRange("context.keepTokens", a.Context.KeepTokens, math.MaxInt32)
	if a.Context.KeepTokens > a.Context.MaxTokens {
		p.add("context.keepTokens", "it is %d, and must not be above maxTokens, which is %d", a.Context.KeepTokens, a.Context.MaxTokens)
	}
	if a.MaxRetries != nil {
		p.checkRange("maxRetries", *a.MaxRetries, maxRetries)
	}
	if t := a.Temperature; t != nil && !(*t >= 0 && *t <= maxTemperature) {
		p.add("temperature", "it is %v, and must be between 0 and %d", *t, maxTemperature)
	}
	p.checkDuration("runTimeout", a.RunTimeout)
}

func (p *problems) checkRange(field string, value, most int) {
	if value < 0 || value > most {
		p.add(field, "it is %d, and must be between 0 and %d", value, most)
	}
}

func (p *problems) checkDuration(field string, value time.Duration) {
	if value < 0 {
		p.add(field, "it is %v, and must not be below 0", value)
	}
}

func (a Agent) checkChoices(p *problems) {
	checkChoice(p, "completion", a.Completion, CompletionTool, CompletionNative)
	checkChoice(p, "cache", a.Cache, CacheNone, CacheAuto)
	checkChoice(p, "onBusy", a.OnBusy, BusyReject, BusyEnqueue, BusyInterrupt, BusyRollback)
	checkChoice(p, "context.compaction", a.Context.Compaction, CompactWindow, CompactSummary)
	if a.Context.Compact != nil && a.Context.Compaction != CompactSummary {
		p.add("context.compaction", "it must be %s for an agent with a Compact function", CompactSummary)
	}
}

func checkChoice[T ~string](p *problems, field string, value T, known ...T) {
	if value != "" && !slices.Contains(known, value) {
		texts := make([]string, len(known))
		for i, k := range known {
			texts[i] = string(k)
		}
		p.add(field, "it is %q, and must be one of %s", value, strings.Join(texts, ", "))
	}
}

// checkSchema checks a schema that must have the type object.
func (p *problems) checkSchema(field string, raw json.RawMessage) {
	if _, err := CompileSchema(raw); err != nil {
		detail := err.Error()
		if f, ok := fault.From(err); ok {
			detail = f.Detail
		}
		p.add(field, "%s", detail)
		return
	}
	if !isObjectSchema(raw) {
		p.add(field, `its type must be "object"`)
	}
}

func (a Agent) checkTools(p *problems) {
	if len(a.Tools) > maxAgentTools {
		p.add("tools", "there are %d; at most %d are allowed", len(a.Tools), maxAgentTools)
		return
	}
	seen := map[string]bool{}
	for i, t := range a.Tools {
		field := fmt.Sprintf("tools[%d]", i)
		if t.Name != "" && seen[t.Name] {
			p.add(field+".name", "the tool %q is listed twice", t.Name)
		}
		seen[t.Name] = true
		t.check(field, p)
	}
}

func (t Tool) check(field string, p *problems) {
	t.checkName(field+".name", p)
	p.checkText(field+".description", t.Description)
	if t.InputSchema == nil {
		p.add(field+".inputSchema", "it is missing")
	} else {
		p.checkSchema(field+".inputSchema", t.InputSchema)
	}
	if t.OutputSchema != nil {
		if _, err := CompileSchema(t.OutputSchema); err != nil {
			p.add(field+".outputSchema", "%v", err)
		}
	}
	checkChoice(p, field+".retry", t.Retry, RetryNever, RetrySafe)
	checkChoice(p, field+".approvers", t.Approvers, Others)
	p.checkDuration(field+".timeout", t.Timeout)
	p.checkDuration(field+".answerWithin", t.AnswerWithin)
	p.checkDuration(field+".later", t.LaterWithin)
	if t.LaterWithin > 0 && t.Execute == nil {
		p.add(field+".later", "%q is not executed by the runtime, so it cannot answer later", t.Name)
	}
	t.checkAnswers(field, p)
}

// checkAnswers checks who answers the calls.
func (t Tool) checkAnswers(field string, p *problems) {
	gated := t.Approval || t.ApproveWhen != nil
	switch {
	case t.SubAgent != "" && (t.Client || t.Execute != nil):
		p.add(field, "the tool %q has both SubAgent and another way to answer its calls", t.Name)
	case t.SubAgent != "" && (t.ReadOnly || gated || t.AnswerWithin > 0):
		p.add(field, "%q has SubAgent, and takes neither readOnly nor approval nor answerWithin: limit it with timeout, "+
			"and let its own tools ask for approval", t.Name)
	case t.Approvers != Anyone && !gated:
		p.add(field+".approvers", "%q has no approval that others could give", t.Name)
	case t.SubAgent != "":
	case t.Client && t.Execute != nil:
		p.add(field, "the tool %q has both Execute and Client", t.Name)
	case !t.Client && t.Execute == nil:
		p.add(field, "the tool %q has neither Execute, Client nor SubAgent", t.Name)
	case t.Client && t.ReadOnly:
		p.add(field+".readOnly", "%q has Client, and the runtime does not run it", t.Name)
	case t.Client && gated:
		p.add(field+".approval", "%q has Client, and the client can ask its user itself", t.Name)
	case !t.Client && !gated && t.AnswerWithin > 0:
		p.add(field+".answerWithin", "%q has neither Client nor an approval to wait for", t.Name)
	}
}

func (t Tool) checkName(field string, p *problems) {
	problem := toolNameProblem(strings.TrimPrefix(t.Name, SubAgentPrefix))
	switch {
	case t.SubAgent == "":
		problem = toolNameProblem(t.Name)
	case t.Name != SubAgentPrefix+t.SubAgent:
		problem = fmt.Sprintf("it is %q, and must be %q as the tool of the sub-agent %q", t.Name, SubAgentPrefix+t.SubAgent, t.SubAgent)
	case problem != "":
		problem = "the sub-agent's name " + problem
	case len(t.Name) > maxToolName:
		problem = fmt.Sprintf("the sub-agent's name %q is longer than %d characters", t.SubAgent, maxToolName-len(SubAgentPrefix))
	}
	if problem != "" {
		p.add(field, "%s", problem)
	}
}

// toolNameProblem returns the problem of a tool's name, "" if it is valid.
func toolNameProblem(name string) string {
	switch {
	case name == "":
		return "it is missing"
	case len(name) > maxToolName || strings.ContainsFunc(name, isInvalidInToolName):
		return fmt.Sprintf("%.80q must have 1 to %d characters of A-Z a-z 0-9 _ -", name, maxToolName)
	case name == FinishTool || strings.HasPrefix(name, SubAgentPrefix) || strings.HasPrefix(name, CompanionPrefix):
		return fmt.Sprintf("%q is reserved for the runtime", name)
	}
	return ""
}

func isInvalidInToolName(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-')
}
