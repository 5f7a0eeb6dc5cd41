package server

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"

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
	c.Suspension = x.suspension(r.GetSuspension(), c.Outcome)
	c.Calls = x.calls(r.GetCalls())
	if n := len(r.GetSubSessions()); n > x.limits.Calls {
		x.refuse("SUB_SESSION_INVALID", "the step writes %d references to sub-sessions; the limit is %d", n, x.limits.Calls)
	}
	for _, child := range r.GetSubSessions() {
		c.Children = append(c.Children, x.subSession(child))
	}
	c.NewChildren = x.newChildren(r.GetNewSubSessions(), c.Calls)
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

// newChildren reads the sub-sessions that begin with a step. Invalid (SUB_SESSION_INVALID), and the faults of a start
// with these messages.
func (x *reader) newChildren(given []*statev1.NewSubSession, calls []session.Call) []session.NewChild {
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
