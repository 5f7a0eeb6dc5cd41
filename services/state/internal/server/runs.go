package server

import (
	"context"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// StartRun implements statev1.RunServiceServer.
func (s *Server) StartRun(ctx context.Context, r *statev1.StartRunRequest) (*statev1.StartRunResponse, error) {
	command, err := s.start(r)
	if err != nil {
		return nil, err
	}
	started, err := update(ctx, s.store, command.Key, command.Need(), command.Decide)
	if fault.ReasonOf(err) == "AGENT_NOT_FOUND" {
		return nil, s.withKnownAgents(ctx, err)
	}
	if err != nil {
		return nil, err
	}
	if !started.Repeated {
		s.hub.signal(started.Run.AgentType)
	}
	return &statev1.StartRunResponse{
		Session: sessionOut(&started.Session), Run: runOut(command.Key, &started.Run),
		SessionCreated: started.Created, Repeated: started.Repeated,
	}, nil
}

// start checks the request and makes the command of it.
func (s *Server) start(r *statev1.StartRunRequest) (session.Start, error) {
	if err := s.config.Limits.checkStart(r); err != nil {
		return session.Start{}, err
	}
	hash, err := fingerprint(r.GetMessages())
	if err != nil {
		return session.Start{}, err
	}
	command := session.Start{
		Key: session.Key{Tenant: r.GetTenant(), SessionID: r.GetSessionId()}, AgentType: r.GetAgentType(),
		RequestKey: r.GetRequestKey(), RequestHash: hash, RunID: "run_" + s.newID(), MessageID: "msg_" + s.newID(), Now: s.millis(),
		UserID: r.GetUserId(), Tags: r.GetTags(), Metadata: r.GetMetadata(), State: r.GetCustomState(),
	}
	if command.SessionID == "" {
		command.SessionID = "ses_" + s.newID()
	}
	if command.State == "" {
		command.State = "{}"
	}
	command.Traceparent, command.Tracestate = traceIn(r.GetTraceparent(), r.GetTracestate())
	command.Messages, err = messagesIn(r.GetMessages(), origin{runID: command.RunID, now: command.Now, newID: s.newID})
	return command, err
}

func (l Limits) checkStart(r *statev1.StartRunRequest) error {
	if err := checkID("tenant", r.GetTenant()); err != nil {
		return err
	}
	for field, id := range map[string]string{
		"session_id": r.GetSessionId(), "agent_type": r.GetAgentType(), "request_key": r.GetRequestKey(), "user_id": r.GetUserId(),
	} {
		if err := checkOptionalID(field, id); err != nil {
			return err
		}
	}
	if err := l.checkUserMessages(r.GetMessages()); err != nil {
		return err
	}
	if err := l.checkTags(r.GetTags()); err != nil {
		return err
	}
	if err := l.checkMetadata(r.GetMetadata()); err != nil {
		return err
	}
	if r.GetCustomState() == "" {
		return nil
	}
	return l.checkState(r.GetCustomState())
}

// withKnownAgents adds the agents that there are, as far as a fault can carry
// them.
func (s *Server) withKnownAgents(ctx context.Context, err error) error {
	const most = 100
	agents, listErr := s.store.Agents(ctx)
	f, ok := fault.From(err)
	if listErr != nil || !ok {
		return err
	}
	var types []string
	for _, a := range agents[:min(most, len(agents))] {
		types = append(types, a.Type)
	}
	return f.With("availableTypes", strings.Join(types, ","))
}

// GetRun implements statev1.RunServiceServer.
func (s *Server) GetRun(ctx context.Context, r *statev1.GetRunRequest) (*statev1.GetRunResponse, error) {
	key, err := checkKey(r.GetTenant(), r.GetSessionId())
	if err != nil {
		return nil, err
	}
	if err := checkID("run_id", r.GetRunId()); err != nil {
		return nil, err
	}
	run, err := s.store.Run(ctx, key, r.GetRunId())
	if err != nil {
		return nil, err
	}
	return &statev1.GetRunResponse{Run: runOut(key, run)}, nil
}

// ListRuns implements statev1.RunServiceServer.
func (s *Server) ListRuns(ctx context.Context, r *statev1.ListRunsRequest) (*statev1.ListRunsResponse, error) {
	key, err := checkKey(r.GetTenant(), r.GetSessionId())
	if err != nil {
		return nil, err
	}
	limit, err := checkPage(r.GetLimit())
	if err != nil {
		return nil, err
	}
	if r.GetBeforeTurn() < 0 {
		return nil, fault.New(fault.Invalid, "LIMIT_INVALID", "before_turn is %d; give a turn, or 0 for the newest runs", r.GetBeforeTurn())
	}
	runs, err := s.store.Runs(ctx, key, r.GetBeforeTurn(), limit+1) // one more tells whether there is more
	if err != nil {
		return nil, err
	}
	answer := &statev1.ListRunsResponse{HasMore: len(runs) > limit}
	for i := range runs[:min(limit, len(runs))] {
		runs[i].Outcome.Output = "" // a page of outputs may be larger than a message
		answer.Runs = append(answer.Runs, runOut(key, &runs[i]))
	}
	return answer, nil
}
