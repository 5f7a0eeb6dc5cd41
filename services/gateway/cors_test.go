package gateway_test

import (
	"net/http"
	"testing"

	"github.com/holdfast-run/holdfast/services/gateway"
)

func TestPagesOfAllowedOriginsMayUseEveryMethod(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *gateway.Config) { c.CORSOrigins = []string{"http://localhost:5173"} })
	methods := map[string]bool{http.MethodDelete: true, http.MethodPatch: true}
	for _, route := range h.service.Routes() {
		methods[route.Method] = true
	}
	for method := range methods {
		preflight := h.request(t, http.MethodOptions, "/messages", "", "Origin", "http://localhost:5173", "Access-Control-Request-Method", method)
		if got := preflight.Header.Get("Access-Control-Allow-Methods"); got != method {
			t.Errorf("%s: got %q", method, got)
		}
	}
}
