package loop

import (
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// metadataSource says where a context message has come from.
const metadataSource, sourceLateAnswer = "source", "late-answer"

// due stands for the next call of the model until somebody asks for it: hooks that are
// called before may change what the model is shown.
type due struct{}

func (due) isEffect() {}

func (p *Planner) callModel() Effect { return due{} }

// modelCall is the next call of the step, or the summary that has to be made before it.
func (p *Planner) modelCall() Effect {
	late, _ := p.notices()
	messages, older := p.shown(late)
	if len(older) > 0 && !p.cut {
		return p.compact(older)
	}
	if p.cut {
		return due{}
	}
	system, err := p.system()
	if p.cut {
		return due{}
	}
	if err != nil {
		return failed(InternalFailure(err))
	}
	p.trial.attempt++
	request := p.request(p.modelName(), messages)
	request.System = system
	return CallModel{Step: p.step, Attempt: p.trial.attempt, Model: p.modelName(), Request: request}
}

// request is a call with what the model is shown, without the system prompt.
func (p *Planner) request(name string, messages []agent.Message) model.Request {
	a := p.start.Agent
	provider, short, _ := strings.Cut(name, "/")
	r := model.Request{
		Model: short, Messages: p.closed(messages), Tools: p.offered(),
		MaxOutputTokens: a.MaxOutputTokens, Temperature: a.Temperature, Cache: a.Cache, Options: a.ProviderOptions[provider],
	}
	switch {
	case !p.owes():
	case a.Completion == agent.CompletionNative:
		// The tools stay, since the conversation has calls of them.
		r.Choice, r.Output = model.ChoiceNone, p.envelope()
	default:
		r.Choice = model.ChoiceRequired
		r.Tools = slices.DeleteFunc(r.Tools, func(t model.Tool) bool { return !p.tools.finishes(t.Name) })
	}
	return r
}

// offered are the tools of the agent, and the one that takes its output.
func (p *Planner) offered() []model.Tool {
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

// closed is a conversation that ends with what somebody says to the model: providers
// refuse one in which the model has the last word. What the request has for that is
// not kept.
func (p *Planner) closed(messages []agent.Message) []agent.Message {
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
	if p.owes() {
		line = p.wanted()
	}
	return append(messages, p.note(2, line, nil))
}

// notices are the messages that tell the model of late answers, and their calls.
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

func lateNotice(a Asked) string {
	text := "The answer to the call " + a.CallID + " of " + a.Tool + " came after its deadline: "
	switch {
	case a.Late.Error != "":
		return text + a.Late.Error
	case !a.Approval:
		return text + string(a.Late.Result)
	case a.Late.Approved:
		return text + "it was approved. It was not executed, since nobody had approved it in time."
	}
	return text + refused(a.Late.Reason)
}

// preface is what stands before the model's message in the step: what it was shown
// beside the conversation.
func (p *Planner) preface() (messages []agent.Message, told []string) {
	if p.shortening.summary != nil {
		messages = append(messages, *p.shortening.summary)
	}
	late, told := p.notices()
	return append(messages, late...), told
}
