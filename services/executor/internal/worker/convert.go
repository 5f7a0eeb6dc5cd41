package worker

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

var roles = map[eventv1.Role]agent.Role{
	eventv1.Role_ROLE_USER:      agent.RoleUser,
	eventv1.Role_ROLE_ASSISTANT: agent.RoleAssistant,
	eventv1.Role_ROLE_TOOL:      agent.RoleTool,
	eventv1.Role_ROLE_SYSTEM:    agent.RoleSystem,
	eventv1.Role_ROLE_CONTEXT:   agent.RoleContext,
}

var protoRoles = func() map[agent.Role]eventv1.Role {
	inverse := make(map[agent.Role]eventv1.Role, len(roles))
	for wire, role := range roles {
		inverse[role] = wire
	}
	return inverse
}()

// toMessage fails where the message has a role or part that this executor does
// not know: it must not call a model with half of a conversation.
func toMessage(m *eventv1.Message) (agent.Message, error) {
	role, ok := roles[m.GetRole()]
	if !ok {
		return agent.Message{}, fmt.Errorf("message %s has the unknown role %v", m.GetId(), m.GetRole())
	}
	message := agent.Message{ID: m.GetId(), Role: role, Metadata: m.GetMetadata(), Hidden: m.GetHidden()}
	for _, p := range m.GetParts() {
		part, err := toPart(p)
		if err != nil {
			return agent.Message{}, fmt.Errorf("message %s: %w", m.GetId(), err)
		}
		message.Parts = append(message.Parts, part)
	}
	return message, nil
}

func toPart(p *eventv1.Part) (agent.Part, error) {
	switch part := p.GetPart().(type) {
	case *eventv1.Part_Text:
		return agent.Text{Text: part.Text.GetText()}, nil
	case *eventv1.Part_Reasoning:
		return agent.Reasoning{Text: part.Reasoning.GetText(), ProviderData: toJSON(part.Reasoning.GetProviderData())}, nil
	case *eventv1.Part_ToolCall:
		c := part.ToolCall
		return agent.ToolCall{ID: c.GetToolCallId(), Name: c.GetToolName(), Arguments: toJSON(c.GetArguments())}, nil
	case *eventv1.Part_ToolResult:
		return toResult(part.ToolResult), nil
	case *eventv1.Part_File:
		f := part.File
		return agent.File{MediaType: f.GetMediaType(), URL: f.GetUrl(), Filename: f.GetFilename()}, nil
	}
	return nil, fmt.Errorf("a part of the unknown kind %T", p.GetPart())
}

func toResult(r *eventv1.ToolResultPart) agent.ToolResult {
	return agent.ToolResult{
		CallID: r.GetToolCallId(), Name: r.GetToolName(), Result: toJSON(r.GetResult()),
		Success: r.GetSuccess(), Error: r.GetError(), Synthetic: r.GetSynthetic(),
	}
}

func toJSON(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	return json.RawMessage(text)
}

func fromMessage(m agent.Message, runID string, step int) *eventv1.Message {
	message := &eventv1.Message{
		Id: m.ID, Role: protoRoles[m.Role], RunId: runID, Step: int32(step), Metadata: m.Metadata, Hidden: m.Hidden,
	}
	for _, p := range m.Parts {
		message.Parts = append(message.Parts, fromPart(p))
	}
	return message
}

func fromPart(p agent.Part) *eventv1.Part {
	switch part := p.(type) {
	case agent.Text:
		return &eventv1.Part{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{Text: clean(part.Text)}}}
	case agent.Reasoning:
		return &eventv1.Part{Part: &eventv1.Part_Reasoning{Reasoning: &eventv1.ReasoningPart{
			Text: clean(part.Text), ProviderData: string(part.ProviderData),
		}}}
	case agent.ToolCall:
		return &eventv1.Part{Part: &eventv1.Part_ToolCall{ToolCall: &eventv1.ToolCallPart{
			ToolCallId: part.ID, ToolName: clean(part.Name), Arguments: clean(string(part.Arguments)),
		}}}
	case agent.ToolResult:
		return &eventv1.Part{Part: &eventv1.Part_ToolResult{ToolResult: fromResult(part)}}
	case agent.File:
		return &eventv1.Part{Part: &eventv1.Part_File{File: &eventv1.FilePart{MediaType: part.MediaType, Url: part.URL, Filename: part.Filename}}}
	}
	return &eventv1.Part{}
}

func fromResult(r agent.ToolResult) *eventv1.ToolResultPart {
	return &eventv1.ToolResultPart{
		ToolCallId: r.CallID, ToolName: clean(r.Name), Result: clean(string(r.Result)),
		Success: r.Success, Error: clean(r.Error), Synthetic: r.Synthetic,
	}
}

// clean makes text that protobuf takes: providers and tools may send bytes that
// are not UTF-8.
func clean(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

func fromOutcome(o loop.Outcome) *statev1.Outcome {
	outcome := &statev1.Outcome{
		Status: statev1.RunStatus_RUN_STATUS_COMPLETED, Output: clean(string(o.Output)), CompletionReason: o.CompletionReason,
	}
	if o.Failure != nil {
		outcome.Status = statev1.RunStatus_RUN_STATUS_FAILED
		outcome.Failure = &statev1.Failure{
			Error: clean(o.Failure.Error), Detail: clean(o.Failure.Detail), Code: o.Failure.Code, Retryable: o.Failure.Retryable,
		}
	}
	return outcome
}

// toOutcome is the outcome of a run that has finished, as far as its record tells.
func toOutcome(run *statev1.Run) loop.Outcome {
	outcome := loop.Outcome{
		Output: toJSON(run.GetOutput()), FinishReason: model.FinishStop, CompletionReason: run.GetCompletionReason(),
	}
	if f := run.GetFailure(); f != nil {
		outcome.FinishReason = model.FinishError
		outcome.Failure = &loop.Failure{Error: f.GetError(), Detail: f.GetDetail(), Code: f.GetCode(), Retryable: f.GetRetryable()}
	}
	return outcome
}

func tokenUsage(name string, u model.Usage) *statev1.UsageEntry {
	return &statev1.UsageEntry{Entry: &statev1.UsageEntry_Tokens{Tokens: &statev1.TokenUsage{
		Model: name, PromptTokens: u.PromptTokens, CompletionTokens: u.CompletionTokens,
		ReasoningTokens: u.ReasoningTokens, CachedTokens: u.CachedTokens, TotalTokens: u.TotalTokens,
	}}}
}

func toolUsage(name string, success bool, milliseconds int64) *statev1.UsageEntry {
	return &statev1.UsageEntry{Entry: &statev1.UsageEntry_Tool{Tool: &statev1.ToolUsage{
		ToolName: clean(name), Success: success, DurationMs: milliseconds,
	}}}
}
