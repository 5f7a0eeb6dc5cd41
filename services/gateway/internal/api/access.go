package api

import (
	"context"
	"time"

	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
)

// CreateToken implements the service.
func (s *Server) CreateToken(ctx context.Context, r *agentv1.CreateTokenRequest) (*agentv1.CreateTokenResponse, error) {
	token, expires, err := s.Callers.Mint(ctx, auth.Grant{
		Subject: r.GetSubject(), Scopes: r.GetScopes(), TTL: time.Duration(r.GetTtlSeconds()) * time.Second,
	})
	if err != nil {
		return nil, err
	}
	return &agentv1.CreateTokenResponse{Token: token, ExpiresAt: expires.UnixMilli()}, nil
}

// ListKeys implements the service.
func (s *Server) ListKeys(ctx context.Context, _ *agentv1.ListKeysRequest) (*agentv1.ListKeysResponse, error) {
	return &agentv1.ListKeysResponse{Keys: each(s.Callers.ListKeys(tenantOf(ctx)), func(k auth.KeyUse) *agentv1.ApiKey {
		key := &agentv1.ApiKey{Name: k.Key, Subject: k.Subject, LastUsedAt: k.LastUse}
		if !k.Expires.IsZero() {
			key.ExpiresAt = k.Expires.UnixMilli()
		}
		for _, scope := range k.Scopes {
			key.Scopes = append(key.Scopes, string(scope))
		}
		return key
	})}, nil
}
