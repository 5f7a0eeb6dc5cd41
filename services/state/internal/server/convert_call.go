package server

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// The answer of a call is stored as an encoded CallAnswer with its source.

// timedOut answers a call after its deadline.
func timedOut(session.Call) []byte {
	return answerOf(&statev1.CallAnswer{Answer: &statev1.CallAnswer_Error{Error: "The call was not answered in time."}},
		statev1.AnswerSource_ANSWER_SOURCE_TIMEOUT)
}

// abandon answers an open call when a new message ends the wait for it.
func abandon(session.Call) []byte {
	return answerOf(&statev1.CallAnswer{Answer: &statev1.CallAnswer_Error{Error: "client_tool_abandoned: a new message came instead."}},
		statev1.AnswerSource_ANSWER_SOURCE_ABANDONED)
}

// answerOf encodes an answer of the service itself.
func answerOf(a *statev1.CallAnswer, source statev1.AnswerSource) []byte {
	a.Source = source
	answer, err := encode(a)
	if err != nil { // only texts that are not UTF-8 fail, and the output of a child is checked JSON
		panic(fmt.Sprintf("state: encode an answer: %v", err))
	}
	return answer
}

// approved reports whether the encoded answer approves its call.
func approved(response []byte) bool {
	answer := &statev1.CallAnswer{}
	return proto.Unmarshal(response, answer) == nil && answer.GetApproval().GetApproved()
}

// childEnd answers a call with the end of its child. The output is left out if the answer would
// have more than room bytes.
func childEnd(child *session.Session, status session.Status, room int) []byte {
	end := &statev1.ChildEnd{SessionId: child.SessionID, AgentType: child.AgentType, Status: statusOut[status]}
	switch {
	case status == session.Completed && len(child.Output) > room-childEndBytes:
		end.Status = statusOut[session.Failed]
		end.Failure = &statev1.Failure{Error: "The output of the sub-agent is too large for its caller.", Code: "output_too_large"}
	case status == session.Completed:
		end.Output = child.Output
	case status == session.Failed && child.Failure != nil:
		end.Failure = failureOut(child.Failure)
	case status == session.Failed:
		end.Failure = &statev1.Failure{Error: "The session of the sub-agent was deleted."}
	}
	return answerOf(&statev1.CallAnswer{Answer: &statev1.CallAnswer_Child{Child: end}}, statev1.AnswerSource_ANSWER_SOURCE_CHILD)
}

// childEndBytes is more than an answer of childEnd has beside the output.
const childEndBytes = 1024

func answerOut(callID string, body []byte) (*statev1.CallAnswer, error) {
	if body == nil {
		return nil, nil
	}
	answer := &statev1.CallAnswer{}
	if err := proto.Unmarshal(body, answer); err != nil {
		return nil, fmt.Errorf("decode answer to call %q: %w", callID, err)
	}
	return answer, nil
}

func callsOut(calls []session.Call) ([]*statev1.Call, error) {
	var list []*statev1.Call
	for i := range calls {
		call, err := callOut(&calls[i])
		if err != nil {
			return nil, err
		}
		list = append(list, call)
	}
	return list, nil
}

func callOut(c *session.Call) (*statev1.Call, error) {
	out := &statev1.Call{
		ToolCallId: c.CallID, SessionId: c.SessionID, RunId: c.RunID, Step: c.Step, StepId: c.StepID, ToolName: c.ToolName,
		Kind: callKindOut[c.Kind], ApprovalId: c.ApprovalID, Input: c.Input, CreatedAt: int64(c.CreatedAt), DeadlineAt: int64(c.DeadlineAt),
		Revision: c.Revision, AnsweredAt: int64(c.AnsweredAt), ConsumedAt: int64(c.ConsumedAt), LateAt: int64(c.LateAt),
		Approvers: approversOut[c.Approvers], StartedBy: c.StartedBy, AnsweredBy: c.AnsweredBy, SubSessionId: c.ChildID,
	}
	if c.Stash != nil {
		out.EntryInput = &eventv1.Message{}
		if err := proto.Unmarshal(c.Stash, out.EntryInput); err != nil {
			return nil, fmt.Errorf("decode message that waits for call %q: %w", c.CallID, err)
		}
	}
	var err error
	if out.Answer, err = answerOut(c.CallID, c.Response); err != nil {
		return nil, err
	}
	out.LateAnswer, err = answerOut(c.CallID, c.Late)
	return out, err
}
