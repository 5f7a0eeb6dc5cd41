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

var rolesByWire = map[eventv1.Role]agent.Role{
	eventv1.Role_ROLE_USER:      agent.RoleUser,
	eventv1.Role_ROLE_ASSISTANT: agent.RoleAssistant,
	eventv1.Role_ROLE_TOOL:      agent.RoleTool,
	eventv1.Role_ROLE_SYSTEM:    agent.RoleSystem,
	eventv1.Role_ROLE_CONTEXT:   agent.RoleContext,
}

var wireRoles = func() map[agent.Role]eventv1.Role {
	inverse := make(map[agent.Role]eventv1.Role, len(rolesByWire))
	for wire, role := range rolesByWire {
		inverse[role] = wire
	}
	return inverse
}()

// toMessage returns an error for an unknown role or part: a model must not see an
// incomplete conversation.
func toMessage(m *eventv1.Message) (agent.Message, error) {
	role, ok := rolesByWire[m.GetRole()]
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
		return agent.ToolCall{ID: c.GetToolCallId(), Name: c.GetToolName(), Arguments: toJSON(c.GetArguments()), Dynamic: c.GetDynamic()}, nil
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
		Success: r.GetSuccess(), Error: r.GetError(), PublicError: r.GetPublicError(), Synthetic: r.GetSynthetic(),
	}
}

func toJSON(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	return json.RawMessage(text)
}

// fromMessage converts a message of a step. decisions are those about approvals, by call id: they go with the results of
// their calls.
func fromMessage(m agent.Message, runID string, step int, decisions map[string]loop.Decision) *eventv1.Message {
	message := &eventv1.Message{
		Id: m.ID, Role: wireRoles[m.Role], RunId: runID, Step: int32(step), Metadata: m.Metadata, Hidden: m.Hidden,
	}
	for _, p := range m.Parts {
		part := fromPart(p)
		if result := part.GetToolResult(); result != nil {
			if d, ok := decisions[result.GetToolCallId()]; ok {
				result.Approval = fromDecision(&d)
			}
		}
		message.Parts = append(message.Parts, part)
	}
	return message
}

// fromDecision returns nil for nil.
func fromDecision(d *loop.Decision) *eventv1.ApprovalVerdict {
	if d == nil {
		return nil
	}
	return &eventv1.ApprovalVerdict{ApprovalId: d.ApprovalID, Approved: d.Approved, Reason: clean(d.Reason)}
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
		return &eventv1.Part{Part: &eventv1.Part_ToolCall{ToolCall: fromCall(part)}}
	case agent.ToolResult:
		return &eventv1.Part{Part: &eventv1.Part_ToolResult{ToolResult: fromResult(part)}}
	case agent.File:
		return &eventv1.Part{Part: &eventv1.Part_File{File: &eventv1.FilePart{MediaType: part.MediaType, Url: part.URL, Filename: part.Filename}}}
	}
	return &eventv1.Part{}
}

func fromCall(c agent.ToolCall) *eventv1.ToolCallPart {
	return &eventv1.ToolCallPart{ToolCallId: c.ID, ToolName: clean(c.Name), Arguments: clean(string(c.Arguments)), Dynamic: c.Dynamic}
}

func fromResult(r agent.ToolResult) *eventv1.ToolResultPart {
	return &eventv1.ToolResultPart{
		ToolCallId: r.CallID, ToolName: clean(r.Name), Result: clean(string(r.Result)),
		Success: r.Success, Error: clean(r.Error), PublicError: clean(r.PublicError), Synthetic: r.Synthetic,
	}
}

func fromRows(rows []agent.ContextRow) []*eventv1.ContextRow {
	var out []*eventv1.ContextRow
	for _, r := range rows {
		out = append(out, &eventv1.ContextRow{Kind: string(r.Kind), Text: r.Text, Key: r.Key, Disable: r.Disable, Enable: r.Enable})
	}
	return out
}

func toRows(rows []*eventv1.ContextRow) []agent.ContextRow {
	var out []agent.ContextRow
	for _, r := range rows {
		out = append(out, agent.ContextRow{
			Kind: agent.ContextKind(r.GetKind()), Text: r.GetText(), Key: r.GetKey(), Disable: r.GetDisable(), Enable: r.GetEnable(),
		})
	}
	return out
}

// clean replaces invalid UTF-8 for protobuf. Providers and tools may send it.
func clean(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// statuses has the state service's statuses of ended runs.
var statuses = map[loop.Status]statev1.RunStatus{
	loop.StatusCompleted:           statev1.RunStatus_RUN_STATUS_COMPLETED,
	loop.StatusFailed:              statev1.RunStatus_RUN_STATUS_FAILED,
	loop.StatusInterrupted:         statev1.RunStatus_RUN_STATUS_INTERRUPTED,
	loop.StatusSuspendedClientTool: statev1.RunStatus_RUN_STATUS_SUSPENDED_CLIENT_TOOL,
	loop.StatusSuspendedChildren:   statev1.RunStatus_RUN_STATUS_SUSPENDED_AWAITING_CHILDREN,
	loop.StatusSuspendedPartial:    statev1.RunStatus_RUN_STATUS_SUSPENDED_STEP_PARTIAL,
}

func fromOutcome(o loop.Outcome, usage *eventv1.Usage) *statev1.Outcome {
	outcome := &statev1.Outcome{
		Status: statuses[o.Status], Output: clean(string(o.Output)), CompletionReason: o.CompletionReason, FinishReason: string(o.FinishReason),
		Usage: usage,
	}
	if o.Failure != nil {
		outcome.Status = statev1.RunStatus_RUN_STATUS_FAILED
		outcome.Failure = &statev1.Failure{
			Error: clean(o.Failure.Error), Detail: clean(o.Failure.Detail), Code: o.Failure.Code, Retryable: o.Failure.Retryable,
		}
	}
	return outcome
}

// toAsked converts the calls for clients, humans and sub-agents.
func toAsked(calls []*statev1.Call) []loop.ClientCall {
	asked := make([]loop.ClientCall, 0, len(calls))
	for _, c := range calls {
		asked = append(asked, loop.ClientCall{
			CallID: c.GetToolCallId(), Tool: c.GetToolName(),
			Approval: c.GetKind() == statev1.CallKind_CALL_KIND_APPROVAL, SubAgent: isOfSubAgent(c),
			Callback:   c.GetKind() == statev1.CallKind_CALL_KIND_CALLBACK,
			ApprovalID: c.GetApprovalId(), Revision: int(c.GetRevision()), Answer: toAnswer(c, c.GetAnswer()),
			Applied: c.GetConsumedAt() != 0, Late: toAnswer(c, c.GetLateAnswer()),
		})
	}
	return asked
}

func toAnswer(c *statev1.Call, a *statev1.CallAnswer) *loop.Answer {
	if a == nil {
		return nil
	}
	if end := a.GetChild(); end != nil {
		return subAgentAnswer(c, end)
	}
	return &loop.Answer{
		Result: toJSON(a.GetResult()), Error: a.GetError(), Public: a.GetPublicError(),
		Approved: a.GetApproval().GetApproved(), Reason: a.GetApproval().GetReason(),
		TimedOut: a.GetSource() == statev1.AnswerSource_ANSWER_SOURCE_TIMEOUT,
	}
}

func toOps(ops []*statev1.StateOp) ([]agent.Op, error) {
	var list []agent.Op
	for _, op := range ops {
		switch o := op.GetOp().(type) {
		case *statev1.StateOp_Replace:
			list = append(list, agent.Op{Key: op.GetKey(), Kind: agent.OpReplace, Value: json.RawMessage(o.Replace)})
		case *statev1.StateOp_Append:
			list = append(list, agent.Op{Key: op.GetKey(), Kind: agent.OpAppend, Value: json.RawMessage(o.Append)})
		case *statev1.StateOp_Delete:
			list = append(list, agent.Op{Key: op.GetKey(), Kind: agent.OpDelete})
		default:
			return nil, fmt.Errorf("a write to %q of the unknown kind %T", op.GetKey(), op.GetOp())
		}
	}
	return list, nil
}

func fromOps(ops []agent.Op) []*statev1.StateOp {
	list := make([]*statev1.StateOp, 0, len(ops))
	for _, op := range ops {
		wire := &statev1.StateOp{Key: op.Key}
		switch op.Kind {
		case agent.OpReplace:
			wire.Op = &statev1.StateOp_Replace{Replace: string(op.Value)}
		case agent.OpAppend:
			wire.Op = &statev1.StateOp_Append{Append: string(op.Value)}
		case agent.OpDelete:
			wire.Op = &statev1.StateOp_Delete{Delete: true}
		}
		list = append(list, wire)
	}
	return list
}

func tokenUsage(name string, u model.Usage) *eventv1.UsageEntry {
	return &eventv1.UsageEntry{Entry: &eventv1.UsageEntry_Tokens{Tokens: &eventv1.TokenUsage{
		Model: name, PromptTokens: u.PromptTokens, CompletionTokens: u.CompletionTokens,
		ReasoningTokens: u.ReasoningTokens, CachedTokens: u.CachedTokens, TotalTokens: u.TotalTokens,
	}}}
}

func toolUsage(name string, success bool, milliseconds int64) *eventv1.UsageEntry {
	return &eventv1.UsageEntry{Entry: &eventv1.UsageEntry_Tool{Tool: &eventv1.ToolUsage{
		ToolName: clean(name), Success: success, DurationMs: milliseconds,
	}}}
}

func customUsage(source, kind, name string, value float64) *eventv1.UsageEntry {
	return &eventv1.UsageEntry{Source: source, Entry: &eventv1.UsageEntry_Custom{Custom: &eventv1.CustomUsage{
		Type: clean(kind), Name: clean(name), Value: value,
	}}}
}

// toJournal converts the journal of a claim with a plan. steps counts the committed steps of the session.
// ops are the writes recorded with the plan.
func toJournal(found *statev1.Journal, steps int32) (journal *loop.Journal, ops []agent.Op, err error) {
	if found.GetStep() != steps+1 {
		return nil, nil, fmt.Errorf("the journal is of step %d, but %d steps are committed", found.GetStep(), steps)
	}
	plan, err := toMessage(found.GetPlan())
	if err != nil {
		return nil, nil, err
	}
	journal = &loop.Journal{Plan: plan}
	for _, result := range found.GetResults() {
		ops, err := toOps(result.GetOps())
		if err != nil {
			return nil, nil, err
		}
		journal.Results = append(journal.Results, loop.Recorded{
			Result: toResult(result.GetResult()), Ops: ops, Context: toRows(result.GetContext()), Until: result.GetResult().GetLaterUntil(),
		})
	}
	ops, err = toOps(found.GetOps())
	return journal, ops, err
}
