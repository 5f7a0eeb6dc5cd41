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

// commitResult is a checkpoint, and the stop requested for its run.
type commitResult struct {
	session.Checkpoint
	stop *session.Stop
}

// CommitStep implements statev1.WorkServiceServer. Only the last step of a run, and a step with
// calls, may affect the family.
func (s *workService) CommitStep(ctx context.Context, r *statev1.CommitStepRequest) (*statev1.CommitStepResponse, error) {
	command, err := s.newCommit(r)
	if err != nil {
		return nil, err
	}
	decide := func(v *session.View) (*session.Change, commitResult, error) {
		change, checkpoint, err := command.Decide(v)
		if err != nil {
			return nil, commitResult{}, err
		}
		return change, commitResult{checkpoint, v.Run.Stop}, nil
	}
	target := session.Target{Key: command.Key, Need: command.Need()}
	var c commitResult
	if command.Outcome == nil && len(command.Calls) == 0 {
		c, err = update(ctx, s.runner, target, proto.Size(r), decide)
	} else {
		c, err = spread(ctx, s.runner, target, proto.Size(r), command.Now, alone(decide))
	}
	if err != nil {
		return nil, err
	}
	return &statev1.CommitStepResponse{
		CheckpointId: c.ID, Version: c.Version, MessageCount: c.MessageCount, Warnings: c.Warnings, Stop: stopOut(c.stop), CommittedAt: int64(c.CreatedAt),
	}, nil
}

// newCommit checks the request and returns its command.
func (s *workService) newCommit(r *statev1.CommitStepRequest) (session.Commit, error) {
	limits := s.limits
	ref, err := s.grants.checkRef(r.GetRun())
	if err != nil {
		return session.Commit{}, err
	}
	if err := limits.checkCommit(r); err != nil {
		return session.Commit{}, err
	}
	command := session.Commit{
		ClaimRef: ref, Step: r.GetStep(), ExpectedVersion: r.GetExpectedVersion(),
		LateReported: r.GetToldCalls(), Suspension: suspensionIn(r), ExpireAfter: session.Millis(s.suspendedTTL.Milliseconds()),
		Limits: limits.sessionLimits(), Now: s.clock.millis(),
	}
	command.CheckpointID = checkpointID(ref.SessionID, r.GetStep(), command.Now, s.ids())
	for _, c := range r.GetConsumedCalls() {
		command.Consume = append(command.Consume, session.Consume{CallID: c.GetToolCallId(), Revision: c.GetRevision()})
	}
	for _, c := range r.GetSubSessions() {
		command.Children = append(command.Children, childIn(c))
	}
	if r.GetOutcome() != nil {
		outcome := limits.outcomeIn(r.GetOutcome())
		command.Outcome = &outcome
	}
	if r.GetRecord() != nil {
		if command.Record, err = encode(r.GetRecord()); err != nil {
			return session.Commit{}, err
		}
	}
	if command.Ops, err = limits.opsIn(r.GetOps()); err != nil {
		return session.Commit{}, err
	}
	if command.Usage, err = limits.usageIn(r.GetUsage()); err != nil {
		return session.Commit{}, err
	}
	if command.Calls, err = callsIn(r.GetCalls()); err != nil {
		return session.Commit{}, err
	}
	if command.NewChildren, err = s.newChildrenIn(r.GetNewSubSessions(), command.Now); err != nil {
		return session.Commit{}, err
	}
	command.Messages, err = messagesIn(r.GetMessages(), origin{runID: ref.RunID, step: r.GetStep(), now: command.Now})
	return command, err
}

// newChildrenIn converts checked sub-sessions.
func (s *workService) newChildrenIn(given []*statev1.NewSubSession, now session.Millis) ([]session.NewChild, error) {
	var children []session.NewChild
	for _, n := range given {
		child := session.NewChild{
			SessionID: n.GetSessionId(), AgentType: n.GetAgentType(), CallID: n.GetToolCallId(),
			Mode: cmp.Or(modeIn[n.GetMode()], session.Ephemeral), Name: n.GetName(),
			RunID: s.ids.run(), MessageID: s.ids.message(), State: cmp.Or(n.GetCustomState(), "{}"),
		}
		if timeout := n.GetTimeoutMs(); timeout > 0 {
			child.DeadlineAt = now + session.Millis(timeout)
		}
		var err error
		if child.Messages, err = messagesIn(n.GetMessages(), origin{runID: child.RunID, now: now, newID: s.ids}); err != nil {
			return nil, err
		}
		children = append(children, child)
	}
	return children, nil
}

// checkpointID returns an id in the form of the specification. Its six random digits come from
// a fresh id.
func checkpointID(sessionID string, step int32, now session.Millis, id string) string {
	digest := sha256.Sum256([]byte(id))
	return session.CheckpointID(sessionID, step, now, hex.EncodeToString(digest[:3]))
}
