package conversation

import (
	"context"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// OpenCalls gives the session's own calls that wait for an answer.
func OpenCalls(s *statev1.GetSessionResponse) []*statev1.Call {
	var open []*statev1.Call
	for _, c := range s.GetCalls() {
		if c.GetAnswer() == nil && c.GetRunId() != "" && c.GetSessionId() == s.GetSession().GetSessionId() {
			open = append(open, c)
		}
	}
	return open
}

// AskedOf gives the session's own calls among those of GetSession, whose answers no step has
// taken yet.
func AskedOf(session string, calls []*statev1.Call) []uistream.Asked {
	var asked []uistream.Asked
	for _, c := range calls {
		if c.GetSessionId() == session {
			asked = append(asked, askedOf(c))
		}
	}
	return asked
}

func askedOf(c *statev1.Call) uistream.Asked {
	a := uistream.Asked{CallID: c.GetToolCallId(), ToolName: c.GetToolName(), Input: c.GetInput(), Step: c.GetStep()}
	if c.GetKind() == statev1.CallKind_CALL_KIND_APPROVAL {
		a.ID = c.GetApprovalId()
	}
	switch answer := c.GetAnswer().GetAnswer().(type) {
	case *statev1.CallAnswer_Approval:
		approved := answer.Approval.GetApproved()
		a.Approved, a.Reason = &approved, answer.Approval.GetReason()
	case *statev1.CallAnswer_Result:
		a.Answer = &uistream.Answer{Result: answer.Result, Success: true}
	case *statev1.CallAnswer_Error:
		a.Answer = &uistream.Answer{Error: answer.Error}
	}
	return a
}

// Suspended reports whether the session waits for others to go on.
func Suspended(s *statev1.Session) bool {
	switch s.GetStatus() {
	case statev1.SessionStatus_SESSION_STATUS_SUSPENDED_CLIENT_TOOL,
		statev1.SessionStatus_SESSION_STATUS_SUSPENDED_AWAITING_CHILDREN,
		statev1.SessionStatus_SESSION_STATUS_SUSPENDED_STEP_PARTIAL:
		return true
	default:
		return false
	}
}

// How far back Question looks.
const (
	maxTurns    = 1000      // runs, for the one that wrote the answer
	maxQuestion = maxAnswer // stored messages from the beginning of that run on, and before it
)

// Question gives the id of the user's message that an assistant message answers. The answer may
// still be empty. NotFound (MESSAGE_NOT_FOUND) also if the message was taken back, or the
// question is farther back than maxTurns and maxQuestion.
func (r *Reader) Question(ctx context.Context, tenant, session, answer string) (string, error) {
	run, err := r.writer(ctx, tenant, session, answer)
	if err != nil {
		return "", err
	}
	s := &statev1.Session{Tenant: tenant, SessionId: session}
	question, there, err := r.ownQuestion(ctx, s, run)
	if err != nil || question != "" {
		return question, err
	}
	before, err := r.questionBefore(ctx, s, run.GetStartMessageCount())
	switch {
	case err != nil:
		return "", err
	case before == nil, !there && before.GetRunId() != run.GetRunId():
		return "", noMessage(answer)
	default:
		return before.GetId(), nil
	}
}

// ownQuestion finds the last user's message with which the run began; "" for none. Such messages
// stand before those that the run wrote. there is false if the message at their place is of
// another run.
func (r *Reader) ownQuestion(ctx context.Context, s *statev1.Session, run *statev1.Run) (question string, there bool, err error) {
	first := run.GetStartMessageCount()
	for begin, end := first, first+maxQuestion; begin < end; begin += storedPage {
		messages, err := r.between(ctx, s, begin, min(begin+storedPage, end))
		if err != nil {
			return "", false, err
		}
		for i, m := range messages {
			if m.GetRunId() != run.GetRunId() || m.GetStep() > 0 {
				return question, begin > first || i > 0 || m.GetRunId() == run.GetRunId(), nil
			}
			if asks(m) {
				question = m.GetId()
			}
		}
		if len(messages) < storedPage {
			break
		}
	}
	return question, true, nil
}

// questionBefore finds the last user's message before the index; nil for none.
func (r *Reader) questionBefore(ctx context.Context, s *statev1.Session, place int64) (*eventv1.Message, error) {
	for end, least := place, max(0, place-maxQuestion); end > least; end -= storedPage {
		messages, err := r.between(ctx, s, max(end-storedPage, least), end)
		if err != nil {
			return nil, err
		}
		for _, m := range slices.Backward(messages) {
			if asks(m) {
				return m, nil
			}
		}
	}
	return nil, nil //nolint:nilnil // it is no error
}

// asks reports whether the message is a user's, and visible.
func asks(m *eventv1.Message) bool { return m.GetRole() == eventv1.Role_ROLE_USER && !m.GetHidden() }

// writer finds the first run that wrote at an assistant message.
func (r *Reader) writer(ctx context.Context, tenant, session, id string) (*statev1.Run, error) {
	request := &statev1.ListRunsRequest{Tenant: tenant, SessionId: session, Limit: storedPage}
	var found *statev1.Run
	for seen := 0; seen < maxTurns; {
		runs, err := r.ListRuns(ctx, request)
		if err != nil {
			return nil, err
		}
		for _, run := range runs {
			if run.GetMessageId() == id {
				found = run
			} else if found != nil {
				return found, nil
			}
			if turn := run.GetTurn(); turn > 0 {
				request.BeforeTurn = turn
			}
		}
		if seen += len(runs); len(runs) == 0 || request.GetBeforeTurn() <= 1 {
			break
		}
	}
	if found == nil {
		return nil, noMessage(id)
	}
	return found, nil
}

func noMessage(id string) error {
	return fault.New(fault.NotFound, "MESSAGE_NOT_FOUND", "the conversation has no message %q", id)
}
