// Package api serves the public Connect service, over Connect, gRPC and gRPC-Web
// alike.
package api

import (
	"context"
	"log/slog"
	"net/http"

	"connectrpc.com/connect"
	"connectrpc.com/otelconnect"
	"go.opentelemetry.io/otel/propagation"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	"github.com/holdfast-run/holdfast/proto/holdfast/agent/v1/agentv1connect"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/auth"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
	"github.com/holdfast-run/holdfast/services/gateway/internal/watch"
)

// Server implements the service. It may be used by many goroutines.
type Server struct {
	Keys     *auth.Keys
	Runs     statev1.RunServiceClient
	Sessions *conversation.Reader
	Watcher  *watch.Watcher
	Streams  *httpapi.Streams
	Policy   retry.Policy
	NewID    func() string
	Log      *slog.Logger
	MaxBytes int // of one request
}

// Handler gives the handler and the path prefix under which it is to be mounted.
// It refuses by the header whom it does not know and what is too large, before
// anything reads the body.
func (s *Server) Handler() (prefix string, handler http.Handler, err error) {
	traces, err := otelconnect.NewInterceptor(otelconnect.WithTrustRemote(), otelconnect.WithoutMetrics(),
		otelconnect.WithoutTraceEvents(), otelconnect.WithPropagator(propagation.TraceContext{}))
	if err != nil {
		return "", nil, err
	}
	prefix, handler = agentv1connect.NewAgentServiceHandler(s,
		connect.WithInterceptors(traces, rpc.ConnectInterceptor(s.Log)), connect.WithReadMaxBytes(s.MaxBytes))
	return prefix, s.admit(handler), nil
}

// Start implements the service.
func (s *Server) Start(ctx context.Context, r *agentv1.StartRequest) (*agentv1.StartResponse, error) {
	start, err := s.startRequest(ctx, tenantOf(ctx), r)
	if err != nil {
		return nil, err
	}
	var started *statev1.StartRunResponse
	err = retry.Do(ctx, s.Policy, func() (err error) {
		started, err = s.Runs.StartRun(ctx, start)
		return err
	})
	if err != nil {
		return nil, err
	}
	session := started.GetSession().GetSessionId()
	return &agentv1.StartResponse{
		SessionId: session, RunId: started.GetRun().GetRunId(), StreamId: session,
		StartSequence: started.GetRun().GetStartSequence(), SessionCreated: started.GetSessionCreated(), Repeated: started.GetRepeated(),
	}, nil
}

func (s *Server) startRequest(ctx context.Context, tenant string, r *agentv1.StartRequest) (*statev1.StartRunRequest, error) {
	if r.GetMessage() == "" {
		return nil, fault.New(fault.Invalid, "MESSAGE_INVALID", "message is empty")
	}
	start := &statev1.StartRunRequest{
		Tenant: tenant, SessionId: r.GetSessionId(), AgentType: r.GetAgentType(), RequestKey: r.GetRequestKey(),
		Tags: r.GetTags(), Metadata: r.GetMetadata(), CustomState: r.GetState(),
		Messages: []*eventv1.Message{{
			Role:  eventv1.Role_ROLE_USER,
			Parts: []*eventv1.Part{{Part: &eventv1.Part_Text{Text: &eventv1.TextPart{Text: r.GetMessage()}}}},
		}},
	}
	// With an id and a key of our own the start is safe to repeat.
	if start.SessionId == "" {
		start.SessionId = s.NewID()
	}
	if start.RequestKey == "" {
		start.RequestKey = s.NewID()
	}
	if start.AgentType == "" {
		agent, err := s.Sessions.AgentFor(ctx, tenant, start.SessionId)
		if err != nil {
			return nil, err
		}
		start.AgentType = agent
	}
	start.Traceparent, start.Tracestate = telemetry.Traceparent(ctx)
	return start, nil
}

// Get implements the service.
func (s *Server) Get(ctx context.Context, r *agentv1.GetRequest) (*agentv1.GetResponse, error) {
	session, run, err := s.Sessions.Session(ctx, tenantOf(ctx), r.GetSessionId())
	if err != nil {
		return nil, err
	}
	return getResponse(session, run), nil
}

// Stream implements the service.
func (s *Server) Stream(ctx context.Context, r *agentv1.StreamRequest, out *connect.ServerStream[agentv1.StreamResponse]) error {
	if r.GetFromSequence() < 0 {
		return fault.New(fault.Invalid, "CURSOR_INVALID", "from_sequence is below 0")
	}
	stream, release, err := s.Streams.Open(ctx)
	if err != nil {
		return err
	}
	defer release()
	watched, err := s.Watcher.Newest(stream, watch.Request{Tenant: tenantOf(ctx), SessionID: r.GetSessionId(), RunID: r.GetRunId(), After: r.GetFromSequence()})
	if err != nil {
		return err
	}
	err = watched.Follow(stream, sink{out})
	if err != nil && stream.Err() != nil && ctx.Err() == nil {
		return httpapi.Stopping() // the caller did not end it, so it may connect again
	}
	return err
}
