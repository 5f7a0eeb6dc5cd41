// Package api serves the public Connect service over Connect, gRPC and gRPC-Web.
package api

import (
	"context"
	"log/slog"
	"net/http"

	"connectrpc.com/connect"
	"connectrpc.com/otelconnect"
	"go.opentelemetry.io/otel/propagation"
	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/pkg/rpc"
	"github.com/holdfast-run/holdfast/proto/holdfast/agent/v1/agentv1connect"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/follow"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
	"github.com/holdfast-run/holdfast/services/gateway/internal/stop"
	"github.com/holdfast-run/holdfast/services/gateway/internal/submit"
)

// Server implements the service. It may be used by many goroutines.
type Server struct {
	Keys        *auth.Keys
	Runs        statev1.RunServiceClient
	Checkpoints statev1.CheckpointServiceClient
	Usage       statev1.UsageServiceClient
	Sessions    *conversation.Reader
	Follower    *follow.Follower
	Stops       *stop.Stops
	Answers     *submit.Answers
	Streams     *httpapi.Streams
	Policy      retry.Policy
	NewID       func() string
	Log         *slog.Logger
	MaxBytes    int // of one request
}

// Handler returns the handler and its path prefix. It refuses unknown callers and large bodies by
// their headers, before it reads the body.
func (s *Server) Handler() (prefix string, handler http.Handler, err error) {
	traces, err := otelconnect.NewInterceptor(otelconnect.WithTrustRemote(), otelconnect.WithoutMetrics(),
		otelconnect.WithoutTraceEvents(), otelconnect.WithPropagator(propagation.TraceContext{}))
	if err != nil {
		return "", nil, err
	}
	prefix, handler = agentv1connect.NewAgentServiceHandler(s,
		connect.WithInterceptors(traces, deadlineInterceptor{}, rpc.ConnectInterceptor(s.Log)), connect.WithReadMaxBytes(s.MaxBytes))
	return prefix, s.admit(handler), nil
}

// ask calls the state service, and retries during a short outage. The request must be safe to
// repeat.
func ask[Q, A any](ctx context.Context, s *Server, method func(context.Context, Q, ...grpc.CallOption) (A, error), request Q) (A, error) {
	var answer A
	err := retry.Do(ctx, s.Policy, func() (err error) {
		answer, err = method(ctx, request)
		return err
	})
	return answer, err
}
