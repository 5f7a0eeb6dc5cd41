package server

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/scheduler"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

func sessionOut(s *session.Session) *statev1.Session {
	return &statev1.Session{
		Tenant: s.Tenant, SessionId: s.SessionID, AgentType: s.AgentType, ParentSessionId: s.ParentID, RootSessionId: s.RootID, Depth: s.Depth,
		Status: statusOut[s.Status], Version: s.Version, Epoch: s.Epoch, Turn: s.Turn, StepCount: s.StepCount, ResumeCount: s.ResumeCount,
		MessageCount: s.MessageCount, CustomState: s.State, Output: s.Output, Failure: failureOut(s.Failure),
		Position: s.Position, Claims: s.Claims, CurrentRunId: s.CurrentRunID, CheckpointId: s.CheckpointID,
		Suspension: suspensionOut(s.Suspension), Interruption: interruptionOut(s.Interruption),
		UserId: s.UserID, OrganizationId: s.OrganizationID, Title: s.Title, Tags: s.Tags, Metadata: s.Metadata,
		CreatedAt: int64(s.CreatedAt), UpdatedAt: int64(s.UpdatedAt), ExpiresAt: int64(s.ExpiresAt),
	}
}

// suspensionOut and the functions below return nil for nil.
func suspensionOut(s *session.Suspension) *statev1.Suspension {
	if s == nil {
		return nil
	}
	out := &statev1.Suspension{StepId: s.StepID}
	if s.Tracing != nil {
		out.TraceId, out.RootSpanId = s.Tracing.TraceID, s.Tracing.RootSpanID
	}
	return out
}

func interruptionOut(i *session.Interruption) *statev1.Interruption {
	if i == nil {
		return nil
	}
	return &statev1.Interruption{RunId: i.RunID, Reason: i.Reason, InterruptedAt: int64(i.At)}
}

func failureOut(f *session.Failure) *statev1.Failure {
	if f == nil {
		return nil
	}
	return &statev1.Failure{Error: f.Error, Detail: f.Detail, Code: f.Code, Retryable: f.Retryable, FailureReason: f.Reason}
}

func stopOut(s *session.Stop) *statev1.Stop {
	if s == nil {
		return nil
	}
	return &statev1.Stop{Kind: stopOutKinds[s.Kind], Reason: s.Reason, RequestedAt: int64(s.At)}
}

func runOut(key session.Key, r *session.Run) *statev1.Run {
	if r == nil {
		return nil
	}
	return &statev1.Run{
		RunId: r.RunID, SessionId: key.SessionID, AgentType: r.Agent(), Definition: r.Definition, Turn: r.Turn, Status: runStatusOut[r.Status],
		RequestKey: r.RequestKey, MessageId: r.MessageID, StepCount: r.StepCount,
		Output: r.Outcome.Output, Failure: failureOut(r.Outcome.Failure),
		CompletionReason: r.Outcome.CompletionReason, FinishReason: r.Outcome.FinishReason,
		Attempt: r.Attempt, Traceparent: r.Traceparent, Tracestate: r.Tracestate, StartedBy: r.StartedBy,
		CreatedAt: int64(r.CreatedAt), StartedAt: int64(r.StartedAt), CompletedAt: int64(r.CompletedAt),
		Entry: entryOut[r.Entry], Stop: stopOut(r.Stop), DueAt: int64(r.DueAt), Losses: r.Losses,
		DeadlineAt: int64(r.DeadlineAt), OnBusy: busyOut[r.OnBusy], StartMessageCount: r.StartMessageCount, TurnMessageCount: r.TurnMessageCount,
		StartPosition: r.StartPosition, EndPosition: r.EndPosition, FinishStep: r.FinishStep, Priority: r.Priority,
		Usage: tokensOut(r.Outcome.Usage),
	}
}

func tokensOut(t *session.Tokens) *eventv1.Usage {
	if t == nil {
		return nil
	}
	return &eventv1.Usage{
		PromptTokens: t.Prompt, CompletionTokens: t.Completion, ReasoningTokens: t.Reasoning, CachedTokens: t.Cached, TotalTokens: t.Total,
	}
}

func messagesOut(rows []session.Message) ([]*statev1.StoredMessage, error) {
	list := make([]*statev1.StoredMessage, len(rows))
	for i, row := range rows {
		m := &eventv1.Message{}
		if err := proto.Unmarshal(row.Body, m); err != nil {
			return nil, fmt.Errorf("decode message %q: %w", row.ID, err)
		}
		list[i] = &statev1.StoredMessage{Ordinal: row.Ordinal, Message: m}
	}
	return list, nil
}

// journalOut returns an empty journal for nil.
func journalOut(j *session.Journal) (*statev1.Journal, error) {
	out := &statev1.Journal{}
	if j == nil {
		return out, nil
	}
	out.Step, out.Usage, out.Ops = j.Step, usageOut(j.Usage), opsOut(j.Ops)
	out.Plan = &eventv1.Message{}
	if err := proto.Unmarshal(j.Plan, out.Plan); err != nil {
		return nil, fmt.Errorf("decode plan of step %d: %w", j.Step, err)
	}
	for _, r := range j.Results {
		part := &eventv1.ToolResultPart{}
		if err := proto.Unmarshal(r.Body, part); err != nil {
			return nil, fmt.Errorf("decode result of call %q: %w", r.CallID, err)
		}
		result := &statev1.CallResult{}
		if err := proto.Unmarshal(r.Context, result); err != nil {
			return nil, fmt.Errorf("decode the context of call %q: %w", r.CallID, err)
		}
		result.Result, result.Ops, result.Usage = part, opsOut(r.Ops), usageOut(r.Usage)
		out.Results = append(out.Results, result)
	}
	return out, nil
}

// checkpointOut omits the custom state.
func checkpointOut(c *session.Checkpoint) *statev1.Checkpoint {
	return &statev1.Checkpoint{
		CheckpointId: c.ID, RunId: c.RunID, Step: c.Step, Status: statusOut[c.Status], Version: c.Version,
		MessageCount: c.MessageCount, CreatedAt: int64(c.CreatedAt),
	}
}

func childrenOut(children []session.Child) []*statev1.SubSession {
	var list []*statev1.SubSession
	for _, c := range children {
		list = append(list, &statev1.SubSession{
			SessionId: c.SessionID, AgentType: c.AgentType, ParentToolCallId: c.CallID, Status: statusOut[c.Status],
			Mode: modeOut[c.Mode], Name: c.Name, Location: locationOut[c.Location], Remote: c.Remote,
			StartedAt: int64(c.StartedAt), CompletedAt: int64(c.CompletedAt),
		})
	}
	return list
}

func memoryOut(m *session.Memory) *statev1.Memory {
	return &statev1.Memory{
		MemoryId: m.ID, EntityId: m.EntityID, Source: m.Source, Text: m.Text, Metadata: m.Metadata,
		CreatedAt: int64(m.CreatedAt), UpdatedAt: int64(m.UpdatedAt),
	}
}

func claimOut(c scheduler.Claim) (*statev1.Claim, error) {
	s, run := c.Change.Session, &c.Change.Runs[0]
	out := &statev1.Claim{Session: sessionOut(s), Run: runOut(s.Key, run), Epoch: s.Epoch, ClaimedAt: int64(run.ClaimedAt)}
	var err error
	if out.Journal, err = journalOut(c.View.Journal); err != nil {
		return nil, err
	}
	if c.View.Journal != nil {
		out.Journal.Step = s.StepCount + 1 // the session may have skipped numbers since it was recorded
	}
	if out.Messages, err = messagesOut(c.View.Tail); err != nil {
		return nil, err
	}
	if out.Calls, err = callsOut(c.View.Calls); err != nil {
		return nil, err
	}
	if c.View.Run.Attempt > 0 {
		out.Used = rollUp(c.Used).GetTokens()
	}
	return out, nil
}

func opsOut(ops []session.StateOp) []*statev1.StateOp {
	list := make([]*statev1.StateOp, len(ops))
	for i, op := range ops {
		list[i] = &statev1.StateOp{Key: op.Key}
		switch op.Kind {
		case session.OpReplace:
			list[i].Op = &statev1.StateOp_Replace{Replace: op.Value}
		case session.OpAppend:
			list[i].Op = &statev1.StateOp_Append{Append: op.Value}
		case session.OpDelete:
			list[i].Op = &statev1.StateOp_Delete{Delete: true}
		}
	}
	return list
}

func usageOut(rows []session.Usage) []*eventv1.UsageEntry {
	list := make([]*eventv1.UsageEntry, len(rows))
	for i, u := range rows {
		list[i] = usageEntryOut(u)
	}
	return list
}

func usageEntryOut(u session.Usage) *eventv1.UsageEntry {
	out := &eventv1.UsageEntry{Source: u.Source}
	switch kindOf(u) {
	case session.UsageTokens:
		out.Entry = &eventv1.UsageEntry_Tokens{Tokens: &eventv1.TokenUsage{
			Model: u.Model, PromptTokens: u.PromptTokens, CompletionTokens: u.CompletionTokens,
			ReasoningTokens: u.ReasoningTokens, CachedTokens: u.CachedTokens, TotalTokens: u.TotalTokens,
		}}
	case session.UsageTool:
		out.Entry = &eventv1.UsageEntry_Tool{Tool: &eventv1.ToolUsage{ToolName: u.Tool, Success: u.Success, DurationMs: u.DurationMS}}
	case session.UsageSubAgent:
		out.Entry = &eventv1.UsageEntry_SubAgent{SubAgent: &eventv1.ToolUsage{ToolName: u.Tool, Success: u.Success, DurationMs: u.DurationMS}}
	case session.UsageCustom:
		out.Entry = &eventv1.UsageEntry_Custom{Custom: &eventv1.CustomUsage{Type: u.Type, Name: u.Name, Value: u.Value}}
	}
	return out
}

// kindOf returns the kind of an entry. Journals of the first release name none: an entry with a
// model counts tokens, any other a tool call.
func kindOf(u session.Usage) session.UsageKind {
	switch {
	case u.Kind != "":
		return u.Kind
	case u.Model != "":
		return session.UsageTokens
	default:
		return session.UsageTool
	}
}
