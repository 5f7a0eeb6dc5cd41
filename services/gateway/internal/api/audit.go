package api

import (
	"context"

	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// ListAuditEvents implements the service.
func (s *Server) ListAuditEvents(ctx context.Context, r *agentv1.ListAuditEventsRequest) (*agentv1.ListAuditEventsResponse, error) {
	page, err := ask(ctx, s, s.Audit.ListEvents, &statev1.ListEventsRequest{
		Tenant: tenantOf(ctx), SessionId: r.GetSessionId(), Actor: r.GetActor(), Action: r.GetAction(), From: r.GetFrom(), Before: r.GetBefore(),
		OldestFirst: r.GetOldestFirst(), Cursor: r.GetCursor(), Limit: r.GetLimit(),
	})
	if err != nil {
		return nil, err
	}
	return &agentv1.ListAuditEventsResponse{Events: page.GetEvents(), HasMore: page.GetHasMore()}, nil
}

// EraseUser implements the service.
func (s *Server) EraseUser(ctx context.Context, r *agentv1.EraseUserRequest) (*agentv1.EraseUserResponse, error) {
	removed, done, err := s.Erasure.Erase(ctx, tenantOf(ctx), r.GetUserId())
	if err != nil {
		return nil, err
	}
	return &agentv1.EraseUserResponse{Removed: removed, Done: done}, nil
}

// EraseTenant implements the service.
func (s *Server) EraseTenant(ctx context.Context, _ *agentv1.EraseTenantRequest) (*agentv1.EraseTenantResponse, error) {
	removed, done, err := s.Erasure.Erase(ctx, tenantOf(ctx), "")
	if err != nil {
		return nil, err
	}
	return &agentv1.EraseTenantResponse{Removed: removed, Done: done}, nil
}
