package loop

import (
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// metadataSource marks the origin of a context message.
const metadataSource, sourceLateAnswer = "source", "late-answer"

// pendingRequest stands for the next model call until its request is built. Hooks run first, and may change the
// request.
type pendingRequest struct{}

func (pendingRequest) isEffect() {}

func (p *Planner) callModel() Effect { return pendingRequest{} }

// modelCall returns the next model call of the step, or the summary needed before it.
func (p *Planner) modelCall() Effect {
	late, _ := p.notices()
	name := p.modelName()
	lessons := p.learned(name)
	messages, older := p.visibleMessages(lessons, late)
	if len(older) > 0 && !p.cut {
		return p.compact(older)
	}
	if p.cut {
		return pendingRequest{}
	}
	system, err := p.system()
	if p.cut {
		return pendingRequest{}
	}
	if err != nil {
		return failed(InternalFailure(err))
	}
	p.trial.attempt++
	request := p.request(name, messages, lessons)
	request.System = system
	return CallModel{Step: p.step, Attempt: p.trial.attempt, Model: name, Request: request}
}

// request returns a model request without the system prompt.
func (p *Planner) request(name string, messages []agent.Message, lessons learned) model.Request {
	a := p.start.Agent
	provider, short, _ := strings.Cut(name, "/")
	r := model.Request{
		Model: short, Messages: p.endWithUserMessage(messages), Tools: lessons.accepted(p.offeredTools(), p.tools.finishes),
		MaxOutputTokens: a.MaxOutputTokens, Temperature: a.Temperature, Cache: a.Cache, Options: a.ProviderOptions[provider],
	}
	switch {
	case lessons.output < 0:
		r.MaxOutputTokens = 0
	case lessons.output > 0 && r.MaxOutputTokens > 0:
		r.MaxOutputTokens = min(r.MaxOutputTokens, lessons.output)
	}
	if lessons.noTemperature {
		r.Temperature = nil
	}
	switch {
	case !p.outputOwed():
	case a.Completion == agent.CompletionNative:
		// The tools stay, because the conversation contains their calls.
		r.Choice, r.Output = model.ChoiceNone, p.envelope()
	default:
		r.Choice = model.ChoiceRequired
		r.Tools = slices.DeleteFunc(r.Tools, func(t model.Tool) bool { return !p.tools.finishes(t.Name) })
	}
	return r
}

// offeredTools returns the tools of the agent and the tool for its output.
func (p *Planner) offeredTools() []model.Tool {
	var tools []model.Tool
	for _, t := range p.start.Agent.Tools {
		tools = append(tools, model.Tool{Name: t.Name, Description: t.Description, InputSchema: t.InputSchema, Strict: t.Strict})
	}
	if p.hasOutput() {
		tools = append(tools, model.Tool{
			Name: agent.FinishTool, Description: "Takes your final output and ends the work. Call it once, when everything else is done.",
			InputSchema: p.start.Agent.OutputSchema, Strict: p.start.Agent.StrictOutput,
		})
	}
	return tools
}

// endWithUserMessage ensures that the conversation ends with a message to the model: providers refuse one that ends with the
// model's own message. The added message is not stored.
func (p *Planner) endWithUserMessage(messages []agent.Message) []agent.Message {
	last := agent.RoleAssistant
	for _, m := range slices.Backward(messages) {
		if m.Role != agent.RoleContext && m.Role != agent.RoleSystem {
			last = m.Role
			break
		}
	}
	if last != agent.RoleAssistant {
		return messages
	}
	line := "Continue."
	if p.outputOwed() {
		line = p.outputInstruction()
	}
	return append(messages, p.note(2, line, nil))
}

// notices returns messages that report late answers to the model, and their calls.
func (p *Planner) notices() (messages []agent.Message, told []string) {
	for n, a := range p.late {
		messages = append(messages, agent.Message{
			ID: p.messageID("late", n), Role: agent.RoleContext, Hidden: true,
			Metadata: map[string]string{metadataSource: sourceLateAnswer}, Parts: []agent.Part{agent.Text{Text: lateNotice(a)}},
		})
		told = append(told, a.CallID)
	}
	return messages, told
}

func lateNotice(a ClientCall) string {
	text := "The answer to the call " + a.CallID + " of " + a.Tool + " came after its deadline: "
	switch {
	case a.Late.Error != "":
		return text + a.Late.Error
	case !a.Approval:
		return text + string(a.Late.Result)
	case a.Late.Approved:
		return text + "it was approved. It was not executed, because no approval arrived in time."
	}
	return text + refused(a.Late.Reason)
}

// preface returns the messages before the model's message in the step: the notices that it saw.
func (p *Planner) preface() (messages []agent.Message, told []string) { return p.notices() }
