package api

import (
	"context"

	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// GetUsage implements the service.
func (s *Server) GetUsage(ctx context.Context, r *agentv1.GetUsageRequest) (*agentv1.GetUsageResponse, error) {
	found, err := ask(ctx, s, s.Usage.GetUsageRollup, &statev1.GetUsageRollupRequest{
		Tenant: tenantOf(ctx), SessionId: r.GetSessionId(), RunId: r.GetRunId(),
	})
	if err != nil {
		return nil, err
	}
	s.Prices.Add(found.GetRollup())
	return &agentv1.GetUsageResponse{Usage: found.GetRollup()}, nil
}

// ListUsage implements the service.
func (s *Server) ListUsage(ctx context.Context, r *agentv1.ListUsageRequest) (*agentv1.ListUsageResponse, error) {
	page, err := ask(ctx, s, s.Usage.ListUsage, &statev1.ListUsageRequest{
		Tenant: tenantOf(ctx), SessionId: r.GetSessionId(), Kinds: r.GetKinds(), Offset: r.GetOffset(), Limit: r.GetLimit(),
	})
	if err != nil {
		return nil, err
	}
	return &agentv1.ListUsageResponse{Entries: page.GetEntries(), HasMore: page.GetHasMore()}, nil
}

// RecordUsage implements the service.
func (s *Server) RecordUsage(ctx context.Context, r *agentv1.RecordUsageRequest) (*agentv1.RecordUsageResponse, error) {
	_, err := askIf(ctx, s, false, s.Usage.RecordUsage, &statev1.RecordUsageRequest{
		Tenant: tenantOf(ctx), SessionId: r.GetSessionId(), RunId: r.GetRunId(), Usage: r.GetUsage(),
	})
	if err != nil {
		return nil, err
	}
	return &agentv1.RecordUsageResponse{}, nil
}

// QueryUsage implements the service.
func (s *Server) QueryUsage(ctx context.Context, r *agentv1.QueryUsageRequest) (*agentv1.QueryUsageResponse, error) {
	found, err := ask(ctx, s, s.Usage.QueryUsage, &statev1.QueryUsageRequest{
		Tenant: tenantOf(ctx), SessionIds: r.GetSessionIds(), UserId: r.GetUserId(), AgentType: r.GetAgentType(), Kinds: r.GetKinds(),
		Models: r.GetModels(), RecordedFrom: r.GetRecordedFrom(), RecordedBefore: r.GetRecordedBefore(), BucketMs: r.GetBucketMs(),
	})
	if err != nil {
		return nil, err
	}
	for _, bucket := range found.GetBuckets() {
		s.Prices.Add(bucket.GetRollup())
	}
	return &agentv1.QueryUsageResponse{Buckets: found.GetBuckets()}, nil
}
