package server

import (
	"fmt"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// claim reads the reference of an executor's write, and checks its grant.
func (x *reader) claim(g *grants, r *statev1.RunRef) session.ClaimRef {
	ref := session.ClaimRef{Key: x.key(r), RunID: x.id("run_id", r.GetRunId()), Epoch: r.GetEpoch()}
	if x.err == nil {
		x.err = g.covers(ref, r.GetGrant())
	}
	return ref
}

// ops gives Invalid (STATE_INVALID) and TooLarge (STATE_SIZE_EXCEEDED).
func (x *reader) ops(ops []*statev1.StateOp) []session.StateOp {
	if len(ops) > x.limits.Ops {
		x.refuse("STATE_INVALID", "there are %d state writes; the limit is %d: write each key once, with all its items", len(ops), x.limits.Ops)
	}
	var rows []session.StateOp
	for i, op := range ops {
		row, problem := opIn(op)
		if problem != "" {
			x.refuse("STATE_INVALID", "ops[%d] on key %q %s", i, op.GetKey(), problem)
			return nil
		}
		rows = append(rows, row)
	}
	if size := session.OpsBytes(rows); size > x.limits.StagedBytes {
		x.fail(session.StateTooLarge(size, x.limits.StagedBytes, rows))
	}
	return rows
}

// opIn converts a state write, or describes its fault.
func opIn(op *statev1.StateOp) (row session.StateOp, problem string) {
	if p := idProblem(op.GetKey()); p != "" {
		return row, "has a key that " + p
	}
	row.Key = op.GetKey()
	switch o := op.GetOp().(type) {
	case *statev1.StateOp_Replace:
		row.Kind, row.Value = session.OpReplace, o.Replace
	case *statev1.StateOp_Append:
		row.Kind, row.Value = session.OpAppend, o.Append
		if !beginsWith(o.Append, '[') {
			return row, "appends a value that is not a JSON array"
		}
	case *statev1.StateOp_Delete:
		row.Kind = session.OpDelete
		if !o.Delete {
			return row, "has delete: false, which has no meaning"
		}
		return row, ""
	default:
		return row, "has no op"
	}
	if !isJSON(row.Value) {
		return row, "has a value that is not JSON"
	}
	return row, ""
}

const (
	maxUsageNumber = 1_000_000_000_000 // of each number of an entry: nine million of them can be added up
	maxUsageValue  = 1e15              // of a custom entry, absolute: sums stay far below the limit of a float
)

// usageSources are the valid sources. The first is the default.
var usageSources = []string{"agent", "tool", "subagent"}

// usage gives Invalid (USAGE_INVALID).
func (x *reader) usage(entries []*eventv1.UsageEntry) []session.Usage {
	if len(entries) > x.limits.UsageEntries {
		x.refuse("USAGE_INVALID", "there are %d usage entries; the limit of one request is %d", len(entries), x.limits.UsageEntries)
	}
	var rows []session.Usage
	for i, e := range entries {
		row, problem := usageEntryIn(e)
		if problem != "" {
			x.refuse("USAGE_INVALID", "usage[%d] %s", i, problem)
			return nil
		}
		rows = append(rows, row)
	}
	return rows
}

// usageEntryIn converts an entry, or describes its fault.
func usageEntryIn(e *eventv1.UsageEntry) (u session.Usage, problem string) {
	switch entry := e.GetEntry().(type) {
	case *eventv1.UsageEntry_Tokens:
		t := entry.Tokens
		u = session.Usage{
			Kind: session.UsageTokens, Model: t.GetModel(), PromptTokens: t.GetPromptTokens(), CompletionTokens: t.GetCompletionTokens(),
			ReasoningTokens: t.GetReasoningTokens(), CachedTokens: t.GetCachedTokens(), TotalTokens: t.GetTotalTokens(),
		}
	case *eventv1.UsageEntry_Tool:
		u = session.Usage{Kind: session.UsageTool, Tool: entry.Tool.GetToolName(), Success: entry.Tool.GetSuccess(), DurationMS: entry.Tool.GetDurationMs()}
	case *eventv1.UsageEntry_SubAgent:
		u = session.Usage{Kind: session.UsageSubAgent, Tool: entry.SubAgent.GetToolName(), Success: entry.SubAgent.GetSuccess(), DurationMS: entry.SubAgent.GetDurationMs()}
	case *eventv1.UsageEntry_Custom:
		u = session.Usage{Kind: session.UsageCustom, Type: entry.Custom.GetType(), Name: entry.Custom.GetName(), Value: entry.Custom.GetValue()}
	default:
		return u, "has no measurement; give tokens, a tool, a sub-agent or a custom value"
	}
	if u.Source = e.GetSource(); u.Source == "" {
		u.Source = usageSources[0]
	}
	if !slices.Contains(usageSources, u.Source) {
		return u, "has an unknown source; give agent, tool or subagent"
	}
	name := u.Model + u.Tool
	if u.Kind == session.UsageCustom {
		name = u.Name
		if p := idProblem(u.Type); p != "" {
			return u, "has a model, tool, type or name that " + p
		}
	}
	if p := idProblem(name); p != "" {
		return u, "has a model, tool, type or name that " + p
	}
	for _, n := range []int64{u.PromptTokens, u.CompletionTokens, u.ReasoningTokens, u.CachedTokens, u.TotalTokens, u.DurationMS} {
		if n < 0 || n > maxUsageNumber {
			return u, "has a number that is negative or above 10^12"
		}
	}
	if math.IsNaN(u.Value) || math.Abs(u.Value) > maxUsageValue {
		return u, "has a value that is not a number or beyond 10^15"
	}
	return u, ""
}

func (x *reader) outcomeInvalid(format string, args ...any) {
	x.refuse("OUTCOME_INVALID", format, args...)
}

// outcome gives Invalid (OUTCOME_INVALID).
func (x *reader) outcome(o *statev1.Outcome, maySuspend bool) session.Outcome {
	const maxFinishReason = 64
	out := session.Outcome{
		Status: runStatusIn[o.GetStatus()], Output: o.GetOutput(), CompletionReason: o.GetCompletionReason(), FinishReason: o.GetFinishReason(),
		Failure: x.failure(o.GetFailure()),
	}
	if u := o.GetUsage(); u != nil {
		out.Usage = &session.Tokens{
			Prompt: u.GetPromptTokens(), Completion: u.GetCompletionTokens(), Reasoning: u.GetReasoningTokens(), Cached: u.GetCachedTokens(), Total: u.GetTotalTokens(),
		}
	}
	suspended := session.Status(out.Status).Suspended()
	switch {
	case suspended && !maySuspend:
		x.outcomeInvalid("a suspended outcome comes with the commit of the step that leaves calls open")
	case out.Status == session.RunFailed && o.GetFailure().GetError() == "":
		x.outcomeInvalid("a failed run needs a failure with an error text")
	case !suspended && out.Status != session.RunFailed && out.Status != session.RunCompleted && out.Status != session.RunInterrupted:
		x.outcomeInvalid("a run cannot end as %s; valid outcomes are COMPLETED, FAILED and INTERRUPTED", o.GetStatus())
	case len(out.Output) > x.limits.StepBytes:
		x.outcomeInvalid("the output has %d bytes; the limit is %d", len(out.Output), x.limits.StepBytes)
	case !isJSONOrEmpty(out.Output):
		x.outcomeInvalid("the output is not one JSON text")
	case len(out.FinishReason) > maxFinishReason:
		x.outcomeInvalid("the finish_reason has %d bytes; the limit is %d: give a short reason, such as stop or length", len(out.FinishReason), maxFinishReason)
	}
	for _, name := range [...]struct{ field, text string }{
		{"completion_reason", out.CompletionReason}, {"failure.code", o.GetFailure().GetCode()}, {"finish_reason", out.FinishReason},
	} {
		if p := idProblem(name.text); name.text != "" && p != "" {
			x.outcomeInvalid("%s %s", name.field, p)
		}
	}
	return out
}

// suspension returns the context of a suspended session; nil if and only if the outcome does not suspend. Invalid
// (OUTCOME_INVALID, ID_INVALID).
func (x *reader) suspension(given *statev1.Suspension, outcome *session.Outcome) *session.Suspension {
	if outcome == nil || !session.Status(outcome.Status).Suspended() {
		if given != nil {
			x.outcomeInvalid("a suspension needs an outcome that suspends")
		}
		return nil
	}
	out := &session.Suspension{StepID: x.optionalID("suspension.step_id", given.GetStepId())}
	tracing := session.Tracing{
		TraceID: x.optionalID("suspension.trace_id", given.GetTraceId()), RootSpanID: x.optionalID("suspension.root_span_id", given.GetRootSpanId()),
	}
	if tracing != (session.Tracing{}) {
		out.Tracing = &tracing
	}
	return out
}

// calls gives Invalid (CALL_INVALID, ID_INVALID), TooLarge (MESSAGE_TOO_LARGE).
func (x *reader) calls(calls []*statev1.Call) []session.Call {
	if len(calls) > x.limits.Calls {
		x.refuse("CALL_INVALID", "the step leaves %d calls open; the limit is %d", len(calls), x.limits.Calls)
	}
	var rows []session.Call
	size := 0
	for i, c := range calls {
		rows = append(rows, x.call(i, c))
		size += proto.Size(c)
		if x.err != nil {
			return nil
		}
	}
	if size > x.limits.StepBytes {
		x.fail(tooLarge("MESSAGE_TOO_LARGE", "the list of the step's open calls", size, x.limits.StepBytes))
	}
	return rows
}

func (x *reader) call(i int, c *statev1.Call) session.Call {
	row := session.Call{
		CallID: x.id("a call's id", c.GetToolCallId()), StepID: x.optionalID("a call's step_id", c.GetStepId()),
		ApprovalID: x.optionalID("a call's approval_id", c.GetApprovalId()), ToolName: c.GetToolName(), Input: c.GetInput(),
		DeadlineAt: session.Millis(c.GetDeadlineAt()),
	}
	var known, ruled bool
	row.Kind, known = callKindIn[c.GetKind()]
	row.Approvers, ruled = approversIn[c.GetApprovers()]
	const reason = "CALL_INVALID"
	switch {
	case idProblem(row.ToolName) != "":
		x.refuse(reason, "the tool_name of calls[%d] %s", i, idProblem(row.ToolName))
	case !known:
		x.refuse(reason, "calls[%d] is no call of a client tool, approval or sub-agent", i)
	case (row.Kind == session.Approval) != (row.ApprovalID != ""):
		x.refuse(reason, "calls[%d]: an approval has an approval_id, any other call has none", i)
	case !ruled || row.Approvers != session.ApproversAny && row.Kind != session.Approval:
		x.refuse(reason, "calls[%d] has the approvers %s; give a known rule, to an approval only", i, c.GetApprovers())
	case row.DeadlineAt < 0:
		x.refuse(reason, "calls[%d] has the deadline %d; give a time, or 0 for none", i, row.DeadlineAt)
	case len(row.Input) > x.limits.MessageBytes:
		x.fail(tooLarge("MESSAGE_TOO_LARGE", fmt.Sprintf("the input of call %q", row.CallID), len(row.Input), x.limits.MessageBytes))
	case !isJSONOrEmpty(row.Input):
		x.refuse(reason, "the input of calls[%d] is not one JSON text", i)
	case c.GetEntryInput() != nil:
		x.checkMessage(c.GetEntryInput(), x.limits.StepBytes)
		row.Stash = x.encode(c.GetEntryInput())
	}
	return row
}

// answer reads the answer to a call. Invalid (ID_INVALID, ANSWER_INVALID). An oversized answer gets the Refusal
// TooLarge (RESULT_TOO_LARGE).
func (x *reader) answer(callID string, given *statev1.CallAnswer) session.Answer {
	a := session.Answer{CallID: x.id("tool_call_id", callID)}
	oversized := func(size, limit int) {
		if size > limit {
			a.Refusal = tooLarge("RESULT_TOO_LARGE", "the answer", size, limit)
		}
	}
	switch answer := given.GetAnswer().(type) {
	case *statev1.CallAnswer_Result:
		a.Kind = session.ClientTool
		if oversized(len(answer.Result), x.limits.ResultBytes); a.Refusal == nil && !isJSON(answer.Result) {
			x.refuse("ANSWER_INVALID", "the result is not one JSON text")
		}
	case *statev1.CallAnswer_Error:
		oversized(len(answer.Error), x.limits.ErrorBytes)
		if answer.Error == "" {
			x.refuse("ANSWER_INVALID", "the error has no text; say what went wrong")
		}
	case *statev1.CallAnswer_Approval:
		a.Kind, a.ApprovalID, a.Approves = session.Approval, answer.Approval.GetApprovalId(), answer.Approval.GetApproved()
		if p := idProblem(a.ApprovalID); p != "" {
			x.refuse("ANSWER_INVALID", "approval_id %s; name the approval that is answered", p)
		}
		oversized(len(answer.Approval.GetReason()), x.limits.ErrorBytes)
	default:
		x.refuse("ANSWER_INVALID", "the answer is empty; give a result, an error or an approval")
	}
	if x.err != nil || a.Refusal != nil {
		return a
	}
	response, err := encodeAnswer(given, statev1.AnswerSource_ANSWER_SOURCE_CLIENT)
	x.fail(err)
	a.Response = response
	return a
}

// answers reads the answers of a request. Invalid (TOO_MANY_ANSWERS), and the faults of answer. The refusal of an
// oversized answer counts only if its call accepts an answer: it may repeat the result of a server tool, which has a
// limit of its own.
func (x *reader) answers(given []*statev1.SubmittedAnswer) []session.Answer {
	if len(given) > maxAnswers {
		x.refuse("TOO_MANY_ANSWERS", "the request has %d answers; the limit is %d: send the rest in another request", len(given), maxAnswers)
	}
	answers := make([]session.Answer, len(given))
	for i, g := range given {
		if answers[i] = x.answer(g.GetToolCallId(), g.GetAnswer()); x.err != nil {
			return nil
		}
	}
	return answers
}
