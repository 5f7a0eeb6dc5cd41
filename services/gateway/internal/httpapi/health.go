package httpapi

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// readyTimeout bounds one health check of another service.
const readyTimeout = 2 * time.Second

// Health reports whether the gateway can serve.
type Health struct {
	Services map[string]grpc.ClientConnInterface // by name, for people
}

type health struct {
	NotReady []string `json:"notReady,omitempty" doc:"the services that do not answer"`
	Status   string   `json:"status" enum:"ok,unavailable"`
}

// Routes are the routes of health checks.
func (h *Health) Routes() []Route {
	return []Route{
		{Method: http.MethodGet, Pattern: "/healthz", Handler: h.Live, Public: true, About: About{
			Name: "getHealth", Summary: "Tells whether the process runs.",
			Answers: []Answer{{Status: http.StatusOK, About: "it runs", Body: health{}}},
		}},
		{Method: http.MethodGet, Pattern: "/readyz", Handler: h.Ready, Public: true, About: About{
			Name: "getReadiness", Summary: "Tells whether the gateway can serve.",
			Answers: []Answer{
				{Status: http.StatusOK, About: "it can", Body: health{}},
				{Status: http.StatusServiceUnavailable, About: "a service does not answer", Body: health{}},
			},
		}},
	}
}

// Live is GET /healthz: the process runs.
func (h *Health) Live(w http.ResponseWriter, _ *http.Request, _ string) error {
	WriteJSON(w, http.StatusOK, health{Status: "ok"})
	return nil
}

// Ready is GET /readyz: the other services answer. 503 names those without an answer.
func (h *Health) Ready(w http.ResponseWriter, r *http.Request, _ string) error {
	missing := h.Missing(r.Context())
	if len(missing) > 0 {
		WriteJSON(w, http.StatusServiceUnavailable, health{NotReady: missing, Status: "unavailable"})
		return nil
	}
	WriteJSON(w, http.StatusOK, health{Status: "ok"})
	return nil
}

// Missing returns the sorted names of the services that do not answer.
func (h *Health) Missing(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var missing []string
	for name, conn := range h.Services {
		wg.Go(func() {
			got, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
			if err == nil && got.GetStatus() == grpc_health_v1.HealthCheckResponse_SERVING {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			missing = append(missing, name)
		})
	}
	wg.Wait()
	slices.Sort(missing)
	return missing
}
