package api

import (
	"context"
	"net/http"
	"slices"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/rpc"
	"github.com/holdfast-run/holdfast/proto/holdfast/agent/v1/agentv1connect"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
)

// maxHealthBytes bounds a request for the health: anyone may send one.
const maxHealthBytes = 1 << 10

// healthy are the names with a health; "" is the whole gateway.
var healthy = []string{"", agentv1connect.AgentServiceName, grpchealth.HealthV1ServiceName}

// addDiscovery adds the handlers of gRPC reflection, with a key, and of gRPC health, without one.
func (s *Server) addDiscovery(handlers map[string]http.Handler) {
	faults := connect.WithInterceptors(rpc.ConnectInterceptor(s.Log))
	reflector := grpcreflect.NewStaticReflector(healthy[1:]...)
	limit := connect.WithReadMaxBytes(s.MaxBytes)
	for _, handler := range []func(*grpcreflect.Reflector, ...connect.HandlerOption) (string, http.Handler){grpcreflect.NewHandlerV1, grpcreflect.NewHandlerV1Alpha} {
		prefix, reflection := handler(reflector, faults, limit)
		handlers[prefix] = s.admit(reflection)
	}
	prefix, health := grpchealth.NewHandler(healthChecker{s.Health}, faults, connect.WithReadMaxBytes(maxHealthBytes))
	handlers[prefix] = health
}

// healthChecker answers the health of gRPC with that of GET /readyz.
type healthChecker struct{ health *httpapi.Health }

// Check implements grpchealth.Checker. It is NOT_SERVING when GET /readyz would be 503. NotFound
// (SERVICE_NOT_FOUND).
func (c healthChecker) Check(ctx context.Context, r *grpchealth.CheckRequest) (*grpchealth.CheckResponse, error) {
	if !slices.Contains(healthy, r.Service) {
		return nil, fault.New(fault.NotFound, "SERVICE_NOT_FOUND", "this gateway has no service %.100q", r.Service)
	}
	status := grpchealth.StatusServing
	if problems, _ := c.health.Check(ctx); len(problems) > 0 {
		status = grpchealth.StatusNotServing
	}
	return &grpchealth.CheckResponse{Status: status}, nil
}
