package server

import (
	"context"

	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// GetSession implements statev1.SessionServiceServer.
func (s *Server) GetSession(ctx context.Context, r *statev1.GetSessionRequest) (*statev1.GetSessionResponse, error) {
	key, err := checkKey(r.GetTenant(), r.GetSessionId())
	if err != nil {
		return nil, err
	}
	found, run, err := s.store.Session(ctx, key)
	if err != nil {
		return nil, err
	}
	return &statev1.GetSessionResponse{Session: sessionOut(found), CurrentRun: runOut(key, run)}, nil
}

// ListMessages implements statev1.SessionServiceServer.
func (s *Server) ListMessages(ctx context.Context, r *statev1.ListMessagesRequest) (*statev1.ListMessagesResponse, error) {
	key, err := checkKey(r.GetTenant(), r.GetSessionId())
	if err != nil {
		return nil, err
	}
	limit, err := checkPage(r.GetLimit())
	if err != nil {
		return nil, err
	}
	if r.GetOffset() < 0 {
		return nil, fault.New(fault.Invalid, "LIMIT_INVALID", "offset is %d; the first message has the ordinal 0", r.GetOffset())
	}
	page := store.Page{From: r.GetOffset(), Limit: limit, MaxBytes: s.config.Limits.PageBytes}
	rows, total, err := s.store.Messages(ctx, key, page)
	if err != nil {
		return nil, err
	}
	messages, err := messagesOut(rows)
	if err != nil {
		return nil, err
	}
	more := page.From+int64(len(rows)) < total
	return &statev1.ListMessagesResponse{Messages: messages, Total: total, HasMore: more}, nil
}

// ListAgents implements statev1.SessionServiceServer.
func (s *Server) ListAgents(ctx context.Context, _ *statev1.ListAgentsRequest) (*statev1.ListAgentsResponse, error) {
	agents, err := s.store.Agents(ctx)
	if err != nil {
		return nil, err
	}
	answer := &statev1.ListAgentsResponse{}
	for _, a := range agents {
		answer.Agents = append(answer.Agents, &statev1.Agent{AgentType: a.Type, Description: a.Description})
	}
	return answer, nil
}
