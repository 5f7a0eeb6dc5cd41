package httpapi

import (
	"net/http"
)

// Headers of this service that a page may read.
const (
	SessionHeader = "X-Holdfast-Session-Id"
	RunHeader     = "X-Holdfast-Run-Id"
)

const (
	exposed = SessionHeader + ", " + RunHeader + ", Retry-After, Grpc-Status, Grpc-Message, Grpc-Status-Details-Bin"
	// preflightAge is how long a browser may remember a preflight, in seconds.
	preflightAge = "600"
)

// guarded refuses and answers what depends on the page that calls.
func (s *Server) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.Origins.Check(r); err != nil {
			WriteError(w, err)
			return
		}
		origin := r.Header.Get("Origin")
		h := w.Header()
		if len(s.Origins.Allowed) > 0 {
			h.Add("Vary", "Origin")
		}
		if s.Origins.Allows(origin) {
			h.Set("Access-Control-Allow-Origin", origin)
			h.Set("Access-Control-Expose-Headers", exposed)
		}
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			s.preflight(w, r, origin)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// preflight allows whatever headers the app wants to add: credentials are in a
// header that the page has to know, never in a cookie.
func (s *Server) preflight(w http.ResponseWriter, r *http.Request, origin string) {
	h := w.Header()
	if s.Origins.Allows(origin) {
		h.Set("Access-Control-Allow-Methods", "GET, POST")
		h.Set("Access-Control-Max-Age", preflightAge)
		if wanted := r.Header.Get("Access-Control-Request-Headers"); wanted != "" {
			h.Set("Access-Control-Allow-Headers", wanted)
			h.Add("Vary", "Access-Control-Request-Headers")
		}
	}
	w.WriteHeader(http.StatusNoContent)
}
