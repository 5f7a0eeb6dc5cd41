package server

import (
	"fmt"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// Helpers for sessions, claimed runs, steps and open calls.

const (
	completed = statev1.RunStatus_RUN_STATUS_COMPLETED
	failed    = statev1.RunStatus_RUN_STATUS_FAILED
	suspended = statev1.RunStatus_RUN_STATUS_SUSPENDED_CLIENT_TOOL

	paused    = statev1.SessionStatus_SESSION_STATUS_PAUSED
	active    = statev1.SessionStatus_SESSION_STATUS_ACTIVE
	waiting   = statev1.SessionStatus_SESSION_STATUS_SUSPENDED_CLIENT_TOOL
	sessionOK = statev1.SessionStatus_SESSION_STATUS_COMPLETED
	sessionKO = statev1.SessionStatus_SESSION_STATUS_FAILED
)

func (b *bench) get(sessionID string) *statev1.GetSessionResponse {
	b.Helper()
	got, err := b.sessions.GetSession(b.Context(), &statev1.GetSessionRequest{Tenant: "acme", SessionId: sessionID})
	b.must(err)
	return got
}

func (b *bench) create(sessionID string, change ...func(*statev1.CreateSessionRequest)) *statev1.Session {
	b.Helper()
	r := &statev1.CreateSessionRequest{Tenant: "acme", SessionId: sessionID, AgentType: "support"}
	for _, c := range change {
		c(r)
	}
	made, err := b.sessions.CreateSession(b.Context(), r)
	b.must(err)
	return made.GetSession()
}

// createChild creates a sub-session.
func (b *bench) createChild(parent, sessionID string) *statev1.Session {
	b.Helper()
	return b.create(sessionID, func(r *statev1.CreateSessionRequest) {
		r.Parent = &statev1.Parent{SessionId: parent, ToolCallId: "call_of_" + sessionID}
	})
}

func said(role eventv1.Role, id, text string) *eventv1.Message {
	m := userMessage(text)
	m.Id, m.Role = id, role
	return m
}

// step returns the commit of a step with a text.
func step(ref *statev1.RunRef, n int32) *statev1.CommitStepRequest {
	id := fmt.Sprintf("m-%s-%d", ref.GetSessionId(), n)
	return &statev1.CommitStepRequest{Run: ref, Step: n, Messages: []*eventv1.Message{said(eventv1.Role_ROLE_ASSISTANT, id, "so far")}}
}

// endingStep returns the commit of a step that ends its run.
func endingStep(ref *statev1.RunRef, n int32, status statev1.RunStatus) *statev1.CommitStepRequest {
	r := step(ref, n)
	r.Outcome = &statev1.Outcome{Status: status}
	if status == failed {
		r.Outcome.Failure = &statev1.Failure{Error: "it broke"}
	}
	return r
}

// suspendingStep returns the commit of a step that waits for client tools.
func suspendingStep(ref *statev1.RunRef, n int32, callIDs ...string) *statev1.CommitStepRequest {
	r := endingStep(ref, n, suspended)
	r.Suspension = &statev1.Suspension{StepId: "the-step", TraceId: "t", RootSpanId: "s"}
	for _, id := range callIDs {
		r.Calls = append(r.Calls, &statev1.Call{ToolCallId: id, ToolName: "ask", Kind: statev1.CallKind_CALL_KIND_CLIENT_TOOL, Input: `{"q":1}`, StepId: "the-step"})
	}
	return r
}

func (b *bench) commit(r *statev1.CommitStepRequest) *statev1.CommitStepResponse {
	b.Helper()
	done, err := b.work.CommitStep(b.Context(), r)
	b.must(err)
	return done
}

// suspend starts a run of the session and suspends it on the calls.
func (s *stream) suspend(sessionID string, callIDs ...string) *statev1.RunRef {
	s.Helper()
	s.start(sessionID)
	claim := s.execute()
	ref := refTo(claim)
	s.commit(suspendingStep(ref, claim.GetSession().GetStepCount()+1, callIDs...))
	return ref
}

func result(text string) *statev1.CallAnswer {
	return &statev1.CallAnswer{Answer: &statev1.CallAnswer_Result{Result: text}}
}

func submitOf(sessionID, callID string, answer *statev1.CallAnswer) *statev1.SubmitCallRequest {
	return &statev1.SubmitCallRequest{Tenant: "acme", SessionId: sessionID, ToolCallId: callID, Answer: answer}
}

func (b *bench) submit(sessionID, callID string, answer *statev1.CallAnswer) *statev1.SubmitCallResponse {
	b.Helper()
	got, err := b.calls.SubmitCall(b.Context(), submitOf(sessionID, callID, answer))
	b.must(err)
	return got
}
