package api

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/fault"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
)

// Get implements the service.
func (s *Server) Get(ctx context.Context, r *agentv1.GetRequest) (*agentv1.GetResponse, error) {
	found, err := s.Sessions.SessionDetails(ctx, tenantOf(ctx), r.GetSessionId())
	if err != nil {
		return nil, err
	}
	return getResponse(found), nil
}

// GetSession implements the service.
func (s *Server) GetSession(ctx context.Context, r *agentv1.GetSessionRequest) (*agentv1.GetSessionResponse, error) {
	found, err := s.Sessions.SessionDetails(ctx, tenantOf(ctx), r.GetSessionId())
	if err != nil {
		return nil, err
	}
	answer := &agentv1.GetSessionResponse{
		Session: sessionOf(found.GetSession()), Run: runOf(found.GetCurrentRun()), Waiting: each(found.GetWaiting(), runOf),
		PendingCalls: pendingCalls(found), SubSessions: each(found.GetSubSessions(), subSession),
	}
	addDetail(ctx, answer.GetSession().GetFailure(), found.GetSession().GetFailure())
	addDetail(ctx, answer.GetRun().GetFailure(), found.GetCurrentRun().GetFailure())
	return answer, nil
}

// ListSessions implements the service.
func (s *Server) ListSessions(ctx context.Context, r *agentv1.ListSessionsRequest) (*agentv1.ListSessionsResponse, error) {
	list := &statev1.ListSessionsRequest{
		Tenant: tenantOf(ctx), UserId: r.GetUserId(), OrganizationId: r.GetOrganizationId(), AgentType: r.GetAgentType(),
		Tags: r.GetTags(), Metadata: r.GetMetadata(), CreatedFrom: r.GetCreatedFrom(), CreatedBefore: r.GetCreatedBefore(),
		Cursor: r.GetCursor(), Offset: r.GetOffset(), Limit: r.GetLimit(), ExactTotal: r.GetExactTotal(),
	}
	switch family := r.GetFamily().(type) {
	case *agentv1.ListSessionsRequest_ParentSessionId:
		list.Family = &statev1.ListSessionsRequest_ParentSessionId{ParentSessionId: family.ParentSessionId}
	case *agentv1.ListSessionsRequest_Roots:
		list.Family = &statev1.ListSessionsRequest_Roots{Roots: family.Roots}
	}
	for _, name := range r.GetStatuses() {
		list.Statuses = append(list.Statuses, statusOf(name))
	}
	page, err := ask(ctx, s, s.Sessions.Sessions.ListSessions, list)
	if err != nil {
		return nil, err
	}
	answer := &agentv1.ListSessionsResponse{Sessions: each(page.GetSessions(), sessionOf), NextCursor: page.GetNext()}
	if r.GetCursor() == "" {
		answer.Total, answer.TotalIsMinimum = proto.Int64(page.GetTotal()), proto.Bool(page.GetTotalIsMinimum())
	}
	return answer, nil
}

// UpdateSession implements the service.
func (s *Server) UpdateSession(ctx context.Context, r *agentv1.UpdateSessionRequest) (*agentv1.UpdateSessionResponse, error) {
	update := &statev1.UpdateSessionRequest{
		Tenant: tenantOf(ctx), SessionId: r.GetSessionId(), ExpectedVersion: r.GetExpectedVersion(),
		Title: r.Title, UserId: r.UserId, OrganizationId: r.OrganizationId, ExpiresAt: r.ExpiresAt,
	}
	if r.GetTags() != nil {
		update.Tags = &statev1.Tags{Tags: r.GetTags().GetTags()}
	}
	if r.GetMetadata() != nil {
		update.Metadata = &statev1.Metadata{Pairs: r.GetMetadata().GetPairs()}
	}
	updated, err := askIf(ctx, s, update.GetExpectedVersion() == 0, s.Sessions.Sessions.UpdateSession, update)
	if err != nil {
		return nil, err
	}
	return &agentv1.UpdateSessionResponse{Version: updated.GetVersion()}, nil
}

// DeleteSession implements the service.
func (s *Server) DeleteSession(ctx context.Context, r *agentv1.DeleteSessionRequest) (*agentv1.DeleteSessionResponse, error) {
	var deleted *statev1.DeleteSessionResponse
	attempts := 0
	err := retry.Do(ctx, s.Policy, func() (err error) {
		attempts++
		deleted, err = s.Sessions.Sessions.DeleteSession(ctx, &statev1.DeleteSessionRequest{Tenant: tenantOf(ctx), SessionId: r.GetSessionId()})
		return err
	})
	if attempts > 1 && fault.ReasonOf(err) == "SESSION_NOT_FOUND" { // an earlier attempt deleted it, and its answer was lost
		return &agentv1.DeleteSessionResponse{Deleted: 1}, nil
	}
	if err != nil {
		return nil, err
	}
	s.Erasure.SessionDeleted(ctx, tenantOf(ctx), r.GetSessionId())
	return &agentv1.DeleteSessionResponse{Deleted: deleted.GetDeleted(), Removed: deleted.GetRemoved()}, nil
}
