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

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	"github.com/holdfast-run/holdfast/pkg/telemetry"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	"github.com/holdfast-run/holdfast/proto/holdfast/agent/v1/agentv1connect"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
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
	Keys     *auth.Keys
	Runs     statev1.RunServiceClient
	Sessions *conversation.Reader
	Follower *follow.Follower
	Stops    *stop.Stops
	Answers  *submit.Answers
	Streams  *httpapi.Streams
	Policy   retry.Policy
	NewID    func() string
	Log      *slog.Logger
	MaxBytes int // of one request
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

// Start implements the service.
func (s *Server) Start(ctx context.Context, r *agentv1.StartRequest) (*agentv1.StartResponse, error) {
	start, err := s.startRequest(ctx, tenantOf(ctx), r)
	if err != nil {
		return nil, err
	}
	started, err := s.startRun(ctx, start)
	if err != nil {
		return nil, err
	}
	session := started.GetSession().GetSessionId()
	return &agentv1.StartResponse{
		SessionId: session, RunId: started.GetRun().GetRunId(), StreamId: session,
		StartSequence: started.GetRun().GetStartPosition(), SessionCreated: started.GetSessionCreated(), Repeated: started.GetRepeated(),
		Waiting: conversation.Waiting(started.GetRun()),
	}, nil
}

// startRun starts a run. The request has a key, so it is safe to repeat.
func (s *Server) startRun(ctx context.Context, r *statev1.StartRunRequest) (*statev1.StartRunResponse, error) {
	var started *statev1.StartRunResponse
	err := retry.Do(ctx, s.Policy, func() (err error) {
		started, err = s.Runs.StartRun(ctx, r)
		return err
	})
	return started, err
}

var busyPolicies = map[agentv1.BusyPolicy]statev1.BusyPolicy{
	agentv1.BusyPolicy_BUSY_POLICY_UNSPECIFIED: statev1.BusyPolicy_BUSY_POLICY_UNSPECIFIED,
	agentv1.BusyPolicy_BUSY_POLICY_REJECT:      statev1.BusyPolicy_BUSY_POLICY_REJECT,
	agentv1.BusyPolicy_BUSY_POLICY_ENQUEUE:     statev1.BusyPolicy_BUSY_POLICY_ENQUEUE,
	agentv1.BusyPolicy_BUSY_POLICY_INTERRUPT:   statev1.BusyPolicy_BUSY_POLICY_INTERRUPT,
	agentv1.BusyPolicy_BUSY_POLICY_ROLLBACK:    statev1.BusyPolicy_BUSY_POLICY_ROLLBACK,
}

func (s *Server) startRequest(ctx context.Context, tenant string, r *agentv1.StartRequest) (*statev1.StartRunRequest, error) {
	if r.GetMessage() == "" {
		return nil, fault.New(fault.Invalid, "MESSAGE_INVALID", "message is empty")
	}
	if _, known := busyPolicies[r.GetOnBusy()]; !known {
		return nil, fault.New(fault.Invalid, "ON_BUSY_INVALID", "there is no policy %d for busy sessions", r.GetOnBusy())
	}
	start := &statev1.StartRunRequest{
		Tenant: tenant, SessionId: r.GetSessionId(), AgentType: r.GetAgentType(), RequestKey: r.GetRequestKey(),
		Tags: r.GetTags(), Metadata: r.GetMetadata(), CustomState: r.GetState(),
		Messages: []*eventv1.Message{textMessage(eventv1.Role_ROLE_USER, r.GetMessage())},
		OnBusy:   busyPolicies[r.GetOnBusy()], TimeoutMs: r.GetTimeoutMs(),
	}
	// With an id and a key the start is safe to repeat.
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

// Interrupt implements the service.
func (s *Server) Interrupt(ctx context.Context, r *agentv1.InterruptRequest) (*agentv1.InterruptResponse, error) {
	stopped, err := s.stop(ctx, r, statev1.StopKind_STOP_KIND_INTERRUPT)
	return &agentv1.InterruptResponse{Effect: stopped.Effect, RunId: stopped.RunID}, err
}

// Abort implements the service.
func (s *Server) Abort(ctx context.Context, r *agentv1.AbortRequest) (*agentv1.AbortResponse, error) {
	stopped, err := s.stop(ctx, r, statev1.StopKind_STOP_KIND_ABORT)
	return &agentv1.AbortResponse{Effect: stopped.Effect, RunId: stopped.RunID}, err
}

// stopRequest has the common fields of InterruptRequest and AbortRequest.
type stopRequest interface {
	GetSessionId() string
	GetRunId() string
	GetReason() string
	GetWaitMs() int64
}

func (s *Server) stop(ctx context.Context, r stopRequest, kind statev1.StopKind) (stop.Stopped, error) {
	if wait := r.GetWaitMs(); wait < 0 || wait > stop.MaxWait.Milliseconds() { // before the conversion can overflow
		return stop.Stopped{}, fault.New(fault.Invalid, "WAIT_INVALID", "wait_ms is %d; it may be 0 to %d", wait, stop.MaxWait.Milliseconds())
	}
	return s.Stops.Stop(ctx, stop.Request{
		Tenant: tenantOf(ctx), SessionID: r.GetSessionId(), RunID: r.GetRunId(), Kind: kind, Reason: r.GetReason(),
		Wait: time.Duration(r.GetWaitMs()) * time.Millisecond,
	})
}

// Get implements the service.
func (s *Server) Get(ctx context.Context, r *agentv1.GetRequest) (*agentv1.GetResponse, error) {
	found, err := s.Sessions.SessionDetails(ctx, tenantOf(ctx), r.GetSessionId())
	if err != nil {
		return nil, err
	}
	return getResponse(found), nil
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
	followed, err := s.Follower.Begin(stream, follow.Request{
		Tenant: tenantOf(ctx), SessionID: r.GetSessionId(), RunID: r.GetRunId(), OnlyRun: true, After: r.GetFromSequence(),
	})
	if err != nil {
		return err
	}
	err = followed.To(stream, sink{out})
	if err != nil && stream.Err() != nil && ctx.Err() == nil {
		return httpapi.Stopping() // the gateway ended it, so the caller may connect again
	}
	return err
}
