package server

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// CommitStep implements statev1.WorkServiceServer. Only the last step of a run, and a step with calls, may affect the
// family.
func (s *workService) CommitStep(ctx context.Context, r *statev1.CommitStepRequest) (*statev1.CommitStepResponse, error) {
	x := s.runner.read(r)
	step := s.readCommit(x, r)
	if x.err != nil {
		return nil, x.err
	}
	var stop *session.Stop // requested for the run
	target := session.Target{Key: step.Key, Need: step.Need()}
	command := onViews(x, target, func(views ...*session.View) (*session.Change, session.Checkpoint, error) {
		if views[0].Run != nil {
			stop = views[0].Run.Stop
		}
		return step.Decide(views[0])
	})
	command.Alone = step.Outcome == nil && len(step.Calls) == 0
	c, err := run(ctx, s.runner, command)
	if err != nil {
		return nil, err
	}
	return &statev1.CommitStepResponse{
		CheckpointId: c.ID, Version: c.Version, MessageCount: c.MessageCount, Warnings: c.Warnings,
		Stop: stopOut(stop), CommittedAt: int64(c.CreatedAt),
	}, nil
}

// maxRecordBytes bounds a step's record for readers.
const maxRecordBytes = 8 << 20

func (s *workService) readCommit(x *reader, r *statev1.CommitStepRequest) session.Commit {
	ref := x.claim(s.grants, r.GetRun())
	c := session.Commit{
		ClaimRef: ref, Step: r.GetStep(), ExpectedVersion: r.GetExpectedVersion(),
		Messages:    x.stepMessages(r.GetMessages(), origin{runID: ref.RunID, step: r.GetStep()}),
		ExpireAfter: session.Millis(s.suspendedTTL.Milliseconds()), Limits: x.limits.sessionLimits(), Now: x.now,
	}
	if size := proto.Size(r.GetRecord()); size > maxRecordBytes {
		x.refuse("RECORD_TOO_LARGE", "the record of the step has %d bytes; the limit is %d", size, maxRecordBytes)
	}
	if r.GetRecord() != nil && x.err == nil {
		c.Record = x.encode(r.GetRecord())
	}
	if r.GetOutcome() != nil {
		outcome := x.outcome(r.GetOutcome(), true)
		c.Outcome = &outcome
	}
	switch given := r.GetSuspension(); {
	case c.Outcome != nil && session.Status(c.Outcome.Status).Suspended():
		c.Suspension = &session.Suspension{StepID: x.optionalID("suspension.step_id", given.GetStepId())}
		tracing := session.Tracing{
			TraceID:    x.optionalID("suspension.trace_id", given.GetTraceId()),
			RootSpanID: x.optionalID("suspension.root_span_id", given.GetRootSpanId()),
		}
		if tracing != (session.Tracing{}) {
			c.Suspension.Tracing = &tracing
		}
	case given != nil:
		x.refuse("OUTCOME_INVALID", "a suspension needs an outcome that suspends")
	}
	c.Calls = readCalls(x, r.GetCalls())
	if n := len(r.GetSubSessions()); n > x.limits.Calls {
		x.refuse("SUB_SESSION_INVALID", "the step writes %d references to sub-sessions; the limit is %d", n, x.limits.Calls)
	}
	c.Children = slices.Grow(c.Children, len(r.GetSubSessions()))
	for _, child := range r.GetSubSessions() {
		c.Children = append(c.Children, x.subSession(child))
	}
	c.NewChildren = readNewChildren(x, r.GetNewSubSessions(), c.Calls)
	c.Consume = slices.Grow(c.Consume, len(r.GetConsumedCalls()))
	for _, call := range r.GetConsumedCalls() {
		id := x.id("an id of consumed_calls", call.GetToolCallId())
		c.Consume = append(c.Consume, session.Consume{CallID: id, Revision: call.GetRevision()})
	}
	c.LateReported = x.eachID("an id of told_calls", r.GetToldCalls())
	c.Ops = x.ops(r.GetOps())
	c.Usage = x.usage(r.GetUsage())
	// The id has the form of the specification. Its six random digits come from a fresh id.
	digest := sha256.Sum256([]byte(x.ids()))
	c.CheckpointID = session.CheckpointID(ref.SessionID, c.Step, c.Now, hex.EncodeToString(digest[:3]))
	return c
}

// readCalls gives Invalid (CALL_INVALID, ID_INVALID), TooLarge (MESSAGE_TOO_LARGE).
func readCalls(x *reader, calls []*statev1.Call) []session.Call {
	const reason = "CALL_INVALID"
	if len(calls) > x.limits.Calls {
		x.refuse(reason, "the step leaves %d calls open; the limit is %d", len(calls), x.limits.Calls)
	}
	rows := slices.Grow([]session.Call(nil), len(calls))
	size := 0
	for i, c := range calls {
		row := session.Call{
			CallID: x.id("a call's id", c.GetToolCallId()), StepID: x.optionalID("a call's step_id", c.GetStepId()),
			ApprovalID: x.optionalID("a call's approval_id", c.GetApprovalId()), ToolName: c.GetToolName(), Input: c.GetInput(),
			DeadlineAt: session.Millis(c.GetDeadlineAt()),
		}
		var known, ruled bool
		row.Kind, known = callKindIn[c.GetKind()]
		row.Approvers, ruled = approversIn[c.GetApprovers()]
		switch {
		case idProblem(row.ToolName) != "":
			x.refuse(reason, "the tool_name of calls[%d] %s", i, idProblem(row.ToolName))
		case !known:
			x.refuse(reason, "calls[%d] is no call of a client tool, approval, sub-agent or callback", i)
		case (row.Kind == session.Approval) != (row.ApprovalID != ""):
			x.refuse(reason, "calls[%d]: an approval has an approval_id, any other call has none", i)
		case !ruled || row.Approvers != session.ApproversAny && row.Kind != session.Approval:
			x.refuse(reason, "calls[%d] has the approvers %s; give a known rule, to an approval only", i, c.GetApprovers())
		case row.Kind == session.Callback && row.DeadlineAt == 0:
			x.refuse(reason, "calls[%d] waits for a callback and has no deadline; give that of its URL", i)
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
		rows = append(rows, row)
		size += proto.Size(c)
		if x.err != nil {
			return nil
		}
	}
	x.atMost("MESSAGE_TOO_LARGE", "the list of the step's open calls", size, x.limits.StepBytes)
	return rows
}

// readNewChildren reads the sub-sessions that begin with a step. Invalid (SUB_SESSION_INVALID), and the faults of a start
// with these messages.
func readNewChildren(x *reader, given []*statev1.NewSubSession, calls []session.Call) []session.NewChild {
	if len(given) == 0 {
		return nil
	}
	unanswered := map[string]bool{}
	for _, c := range calls {
		unanswered[c.CallID] = c.Kind == session.SubAgent
	}
	var children []session.NewChild
	for i, n := range given {
		child := session.NewChild{
			SessionID: x.id("new_sub_sessions' session_id", n.GetSessionId()), AgentType: x.id("new_sub_sessions' agent_type", n.GetAgentType()),
			Name: x.optionalID("new_sub_sessions' name", n.GetName()), Mode: cmp.Or(x.mode(n.GetMode()), session.Ephemeral),
			DeadlineAt: x.deadline(n.GetTimeoutMs()), CallID: n.GetToolCallId(), RunID: x.ids.run(), MessageID: x.ids.message(),
		}
		child.Traceparent, _ = trace(n.GetTraceparent(), "")
		child.Messages = x.userMessages(n.GetMessages(), false, child.RunID)
		child.State = x.initialState(n.GetCustomState())
		if !unanswered[child.CallID] {
			x.refuse("SUB_SESSION_INVALID",
				"new_sub_sessions[%d] answers call %q, which is no call of a sub-agent in the same step, or the call of another one", i, child.CallID)
		}
		if x.err != nil {
			return nil
		}
		delete(unanswered, child.CallID)
		children = append(children, child)
	}
	return children
}
