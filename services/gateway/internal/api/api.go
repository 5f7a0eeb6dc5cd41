// Package api serves the public Connect service over Connect, gRPC and gRPC-Web.
package api

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/otelconnect"
	"go.opentelemetry.io/otel/propagation"
	"google.golang.org/grpc"

	"github.com/holdfast-run/holdfast/pkg/rpc"
	"github.com/holdfast-run/holdfast/proto/holdfast/agent/v1/agentv1connect"
	executorv1 "github.com/holdfast-run/holdfast/proto/holdfast/executor/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/erasure"
	"github.com/holdfast-run/holdfast/services/gateway/internal/files"
	"github.com/holdfast-run/holdfast/services/gateway/internal/follow"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
	"github.com/holdfast-run/holdfast/services/gateway/internal/price"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
	"github.com/holdfast-run/holdfast/services/gateway/internal/stop"
	"github.com/holdfast-run/holdfast/services/gateway/internal/submit"
)

// Server implements the service. It may be used by many goroutines.
type Server struct {
	Callers     *auth.Credentials // never nil
	Runs        statev1.RunServiceClient
	Checkpoints statev1.CheckpointServiceClient
	Usage       statev1.UsageServiceClient
	Audit       statev1.AuditServiceClient
	Stored      statev1.StoredAgentServiceClient
	Executors   []executorv1.ExecutorServiceClient // check definitions of agents
	Erasure     *erasure.Eraser
	Sessions    *conversation.Reader
	Follower    *follow.Follower
	Stops       *stop.Stops
	Answers     *submit.Answers
	Streams     *httpapi.Streams
	Health      *httpapi.Health
	Files       *files.Files
	Policy      retry.Policy
	NewID       func() string
	Now         func() time.Time
	Meters      *httpapi.Meters
	Prices      *price.Table
	Log         *slog.Logger
	MaxBytes    int // of one request
	Bodies      *httpapi.Memory
}

// Handlers returns the handlers by path prefix: the service, and the reflection and the health of
// gRPC. Except for the health, they refuse unknown callers and large bodies by their headers, before
// they read the body.
func (s *Server) Handlers() (map[string]http.Handler, error) {
	traces, err := otelconnect.NewInterceptor(otelconnect.WithTrustRemote(), otelconnect.WithoutMetrics(),
		otelconnect.WithoutTraceEvents(), otelconnect.WithPropagator(propagation.TraceContext{}))
	if err != nil {
		return nil, err
	}
	prefix, service := agentv1connect.NewAgentServiceHandler(
		s,
		connect.WithInterceptors(
			traces,
			measure{s.Meters, s.Now},
			deadlineInterceptor{},
			rpc.ConnectInterceptor(s.Log),
			refusals{},
			rules{},
		),
		connect.WithReadMaxBytes(s.MaxBytes),
		withGzip(),
	)
	handlers := map[string]http.Handler{prefix: s.admit(service)}
	s.addDiscovery(handlers)
	return handlers, nil
}

// ask calls the state service, and retries during a short outage. The request must be safe to
// repeat.
func ask[Q, A any](ctx context.Context, s *Server, method func(context.Context, Q, ...grpc.CallOption) (A, error), request Q) (A, error) {
	return askIf(ctx, s, true, method, request)
}

// askIf is ask for a request that is perhaps not safe to repeat: after a lost answer, a repetition would count twice,
// or be refused because of the first.
func askIf[Q, A any](
	ctx context.Context, s *Server, safe bool, method func(context.Context, Q, ...grpc.CallOption) (A, error), request Q,
) (A, error) {
	policy := s.Policy
	if !safe {
		policy.Limit = 0
	}
	var answer A
	err := retry.Do(ctx, policy, func() (err error) {
		answer, err = method(ctx, request)
		return err
	})
	return answer, err
}
