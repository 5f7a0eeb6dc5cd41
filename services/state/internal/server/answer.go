package server

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

var statusOut = map[session.Status]statev1.SessionStatus{
	session.Active:                    statev1.SessionStatus_SESSION_STATUS_ACTIVE,
	session.Completed:                 statev1.SessionStatus_SESSION_STATUS_COMPLETED,
	session.Failed:                    statev1.SessionStatus_SESSION_STATUS_FAILED,
	session.Interrupted:               statev1.SessionStatus_SESSION_STATUS_INTERRUPTED,
	session.Paused:                    statev1.SessionStatus_SESSION_STATUS_PAUSED,
	session.SuspendedClientTool:       statev1.SessionStatus_SESSION_STATUS_SUSPENDED_CLIENT_TOOL,
	session.SuspendedAwaitingChildren: statev1.SessionStatus_SESSION_STATUS_SUSPENDED_AWAITING_CHILDREN,
	session.SuspendedStepPartial:      statev1.SessionStatus_SESSION_STATUS_SUSPENDED_STEP_PARTIAL,
}

var runStatusOut = map[session.RunStatus]statev1.RunStatus{
	session.RunQueued:                    statev1.RunStatus_RUN_STATUS_QUEUED,
	session.RunRunning:                   statev1.RunStatus_RUN_STATUS_RUNNING,
	session.RunCompleted:                 statev1.RunStatus_RUN_STATUS_COMPLETED,
	session.RunFailed:                    statev1.RunStatus_RUN_STATUS_FAILED,
	session.RunInterrupted:               statev1.RunStatus_RUN_STATUS_INTERRUPTED,
	session.RunSuspendedClientTool:       statev1.RunStatus_RUN_STATUS_SUSPENDED_CLIENT_TOOL,
	session.RunSuspendedAwaitingChildren: statev1.RunStatus_RUN_STATUS_SUSPENDED_AWAITING_CHILDREN,
	session.RunSuspendedStepPartial:      statev1.RunStatus_RUN_STATUS_SUSPENDED_STEP_PARTIAL,
}

// runStatusIn has the statuses that a request may name.
var runStatusIn = map[statev1.RunStatus]session.RunStatus{
	statev1.RunStatus_RUN_STATUS_COMPLETED:   session.RunCompleted,
	statev1.RunStatus_RUN_STATUS_FAILED:      session.RunFailed,
	statev1.RunStatus_RUN_STATUS_INTERRUPTED: session.RunInterrupted,
}

func sessionOut(s *session.Session) *statev1.Session {
	return &statev1.Session{
		Tenant: s.Tenant, SessionId: s.SessionID, AgentType: s.AgentType, ParentSessionId: s.ParentID, RootSessionId: s.RootID,
		Status: statusOut[s.Status], Version: s.Version, Epoch: s.Epoch, Turn: s.Turn, StepCount: s.StepCount,
		MessageCount: s.MessageCount, CustomState: s.State, Output: s.Output, Failure: failureOut(s.Failure),
		StreamSequence: s.StreamSequence, StreamStep: s.StreamStep, CurrentRunId: s.CurrentRunID, UserId: s.UserID, Tags: s.Tags, Metadata: s.Metadata,
		CreatedAt: int64(s.CreatedAt), UpdatedAt: int64(s.UpdatedAt), ExpiresAt: int64(s.ExpiresAt),
	}
}

func failureOut(f *session.Failure) *statev1.Failure {
	if f == nil {
		return nil
	}
	return &statev1.Failure{Error: f.Error, Detail: f.Detail, Code: f.Code, Retryable: f.Retryable}
}

// runOut returns nil for nil.
func runOut(key session.Key, r *session.Run) *statev1.Run {
	if r == nil {
		return nil
	}
	return &statev1.Run{
		RunId: r.RunID, SessionId: key.SessionID, AgentType: r.AgentType, Turn: r.Turn, Status: runStatusOut[r.Status],
		RequestKey: r.RequestKey, MessageId: r.MessageID, StartSequence: r.StartSequence, StepCount: r.StepCount,
		Output: r.Outcome.Output, Failure: failureOut(r.Outcome.Failure), CompletionReason: r.Outcome.CompletionReason,
		Settled: r.Settled, Attempt: r.Attempt, Traceparent: r.Traceparent, Tracestate: r.Tracestate,
		CreatedAt: int64(r.CreatedAt), StartedAt: int64(r.StartedAt), CompletedAt: int64(r.CompletedAt),
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

// journalOut returns an empty journal for nil: nothing was recorded.
func journalOut(j *session.Journal) (*statev1.Journal, error) {
	out := &statev1.Journal{}
	if j == nil {
		return out, nil
	}
	out.Step, out.PlanSequence, out.Usage = j.Step, j.Sequence, usageOut(j.Usage)
	out.Plan = &eventv1.Message{}
	if err := proto.Unmarshal(j.Plan, out.Plan); err != nil {
		return nil, fmt.Errorf("decode plan of step %d: %w", j.Step, err)
	}
	for _, r := range j.Results {
		part := &eventv1.ToolResultPart{}
		if err := proto.Unmarshal(r.Body, part); err != nil {
			return nil, fmt.Errorf("decode result of call %q: %w", r.CallID, err)
		}
		out.Results = append(out.Results, &statev1.CallResult{Result: part, Ops: opsOut(r.Ops), Usage: usageOut(r.Usage)})
	}
	return out, nil
}
