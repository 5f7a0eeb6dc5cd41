package client

import (
	"context"

	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
)

// EraseUser removes the sessions and the memories of a user. It works for a limited time: repeat it until Done.
// Needs the scope admin: Denied (SCOPE_MISSING).
func (c *Client) EraseUser(ctx context.Context, user string) (*agentv1.EraseUserResponse, error) {
	return call(ctx, c.agents.EraseUser, &agentv1.EraseUserRequest{UserId: user})
}

// EraseTenant is EraseUser for the whole tenant. The API keys and the audit log stay.
func (c *Client) EraseTenant(ctx context.Context) (*agentv1.EraseTenantResponse, error) {
	return call(ctx, c.agents.EraseTenant, &agentv1.EraseTenantRequest{})
}

// CreateToken mints a short-lived token for a browser; see agent.v1.AgentService.CreateToken. Invalid (ID_INVALID,
// SCOPE_UNKNOWN, TTL_INVALID), Denied (SCOPE_MISSING), Conflict (TOKENS_DISABLED).
func (c *Client) CreateToken(ctx context.Context, r *agentv1.CreateTokenRequest) (*agentv1.CreateTokenResponse, error) {
	return call(ctx, c.agents.CreateToken, r)
}

// Keys returns the API keys of the tenant, without their secrets. Needs the scope admin: Denied (SCOPE_MISSING).
func (c *Client) Keys(ctx context.Context) ([]*agentv1.ApiKey, error) {
	found, err := callWithRetry(ctx, c, c.agents.ListKeys, &agentv1.ListKeysRequest{})
	return found.GetKeys(), err
}
