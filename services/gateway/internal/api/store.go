package api

import (
	"context"

	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

// ReadStore implements the service.
func (s *Server) ReadStore(ctx context.Context, r *agentv1.ReadStoreRequest) (*agentv1.ReadStoreResponse, error) {
	const byDefault = 50
	limit := r.GetLimit()
	if limit == 0 {
		limit = byDefault
	}
	page, err := ask(ctx, s, s.Sessions.Sessions.ReadStore, &statev1.ReadStoreRequest{
		Tenant: tenantOf(ctx), SessionId: r.GetSessionId(), Keys: r.GetKeys(), Prefix: r.GetPrefix(), After: r.GetAfter(), Limit: limit,
		KeysOnly: r.GetKeysOnly(),
	})
	if err != nil {
		return nil, err
	}
	entries := each(page.GetEntries(), func(e *statev1.StoreEntry) *agentv1.StoreEntry {
		return &agentv1.StoreEntry{Key: e.GetKey(), Value: e.GetValue(), Bytes: e.GetBytes()}
	})
	return &agentv1.ReadStoreResponse{HasMore: page.GetHasMore(), Entries: entries}, nil
}

// DeleteStoreEntries implements the service.
func (s *Server) DeleteStoreEntries(
	ctx context.Context, r *agentv1.DeleteStoreEntriesRequest,
) (*agentv1.DeleteStoreEntriesResponse, error) {
	write := &statev1.WriteStoreRequest{Tenant: tenantOf(ctx), SessionId: r.GetSessionId()}
	for _, key := range r.GetKeys() {
		write.Writes = append(write.Writes, &statev1.StoreWrite{Key: key, Op: &statev1.StoreWrite_Delete{Delete: true}})
	}
	if _, err := ask(ctx, s, s.Sessions.Sessions.WriteStore, write); err != nil {
		return nil, err
	}
	return &agentv1.DeleteStoreEntriesResponse{}, nil
}
