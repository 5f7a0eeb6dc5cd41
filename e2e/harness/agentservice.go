package harness

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"connectrpc.com/connect"

	"github.com/holdfast-run/holdfast/pkg/rpc"
	"github.com/holdfast-run/holdfast/proto/holdfast/agent/v1/agentv1connect"
)

// AgentService is the gateway's API over Connect. Fault turns its errors into faults.
func (c Client) AgentService(t testing.TB) agentv1connect.AgentServiceClient {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	authorize := connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
			r.Header().Set("Authorization", "Bearer "+c.Key)
			return next(ctx, r)
		}
	})
	return agentv1connect.NewAgentServiceClient(&http.Client{Transport: transport}, c.URL, connect.WithInterceptors(authorize))
}

// Fault returns the fault behind an error of AgentService.
func Fault(err error) error {
	if e, ok := errors.AsType[*connect.Error](err); ok {
		return rpc.FromConnect(e)
	}
	return err
}
