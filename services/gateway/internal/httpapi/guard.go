package httpapi

import (
	"net/http"
	"strings"
	"time"

	connectcors "connectrpc.com/cors"
	"github.com/rs/cors"
)

// Headers of this service for pages.
const (
	SessionHeader       = "X-Holdfast-Session-Id"
	RunHeader           = "X-Holdfast-Run-Id"
	IgnoredHeader       = "X-Holdfast-Ignored-Messages" // how many messages of a chat's request were ignored
	IgnoredFieldsHeader = "X-Holdfast-Ignored-Fields"   // names without an effect in a chat's request
	RemovedHeader       = "X-Holdfast-Removed-Messages" // how many stored messages a chat's request has removed
	MissingHeader       = "X-Holdfast-Missing-Messages" // how many users' messages the request lacks, and the conversation keeps
)

// preflightAge is how long a browser may cache the answer to a preflight.
const preflightAge = 10 * time.Minute

// guarded refuses requests of forbidden pages, and lets browsers read the answers to pages of
// allowed origins. Those may send any header: credentials are in a header known to the page, never
// in a cookie. No page posts the results of calls: their paths have no CORS headers.
func (s *Server) guarded(next http.Handler) http.Handler {
	shared := cors.New(cors.Options{
		AllowOriginFunc: s.Origins.Allows,
		AllowedMethods:  []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete},
		AllowedHeaders:  []string{"*"},
		ExposedHeaders: append(
			connectcors.ExposedHeaders(),
			SessionHeader,
			RunHeader,
			IgnoredHeader,
			IgnoredFieldsHeader,
			RemovedHeader,
			MissingHeader,
			ErrorCodeHeader,
			ErrorDetailHeader,
			"Retry-After",
		),
		MaxAge: int(preflightAge.Seconds()),
	}).Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.Origins.Check(r); err != nil {
			WriteError(w, err)
			return
		}
		if strings.HasPrefix(r.URL.Path, CallbackPath) {
			next.ServeHTTP(w, r)
			return
		}
		shared.ServeHTTP(w, r)
	})
}
