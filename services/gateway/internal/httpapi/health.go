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

// Live is GET /healthz: the process runs.
func (h *Health) Live(w http.ResponseWriter, _ *http.Request, _ string) error {
	WriteJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	return nil
}

// Ready is GET /readyz: the other services answer. 503 names those without an answer.
func (h *Health) Ready(w http.ResponseWriter, r *http.Request, _ string) error {
	missing := h.missing(r.Context())
	if len(missing) > 0 {
		WriteJSON(w, http.StatusServiceUnavailable, map[string]any{"status": "unavailable", "notReady": missing})
		return nil
	}
	WriteJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	return nil
}

func (h *Health) missing(ctx context.Context) []string {
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
