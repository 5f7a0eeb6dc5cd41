package httpapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
)

// Handler serves one request of a tenant. An error becomes the answer, so a handler may return one
// only before its first byte. ErrCut may come at any time.
type Handler func(w http.ResponseWriter, r *http.Request, tenant string) error

// ErrCut breaks the connection. Clients take a clean end of the body for success, so an unfinished
// stream must not end cleanly.
var ErrCut = errors.New("cut the connection")

const methodNotAllowed = "METHOD_NOT_ALLOWED"

// UpgradeRequired is the reason of a request without a valid WebSocket handshake: 426.
const UpgradeRequired = "UPGRADE_REQUIRED"

// StopNotObserved is the reason of a stop if the run has not ended within the caller's wait: 504,
// and DEADLINE_EXCEEDED over Connect.
const StopNotObserved = "STOP_NOT_OBSERVED"

// callbackExpired is the reason of a result that comes after the time of its URL: 410.
const callbackExpired = "CALLBACK_EXPIRED"

// CallbackPath begins the paths of URLs for results by callback. The token behind it is a secret.
const CallbackPath = "/callbacks/"

// Route is a handler with its method, pattern and description.
type Route struct {
	Method  string
	Pattern string // for http.ServeMux, without the method
	Handler Handler
	Public  bool // needs no credential
	// Scope is the scope that a caller needs. A route with About.RPC has that of the method, and leaves it empty.
	Scope auth.Scope
	// Refused answers a refused caller; nil answers 401 or 403. Its error becomes the answer.
	Refused func(w http.ResponseWriter, r *http.Request, refusal error) error
	About   About
	// TextErrors: errors are a sentence as text. The AI SDK shows the body of an error to users.
	TextErrors bool
}

// Server serves all routes.
type Server struct {
	Callers *auth.Credentials // nil without credentials
	Origins auth.Origins
	Log     *slog.Logger
	Now     func() time.Time // never nil
	Routes  []Route
	// Mounts are handlers with their own authentication, by path prefix.
	Mounts map[string]http.Handler
	Meters *Meters // nil measures nothing
}

// Needs returns the scope needed for the route; empty for a public or incomplete route.
func (route Route) Needs() auth.Scope {
	if route.About.RPC != "" {
		return auth.ScopeOf(route.About.RPC)
	}
	return route.Scope
}

// Check refuses a route that everybody could call by mistake.
func (s *Server) Check() error {
	for _, route := range s.Routes {
		name := route.Method + " " + route.Pattern
		switch needed := route.Needs(); {
		case !route.Public && needed == "":
			return fmt.Errorf("the route %s has neither a scope nor Public", name)
		case route.Public && needed != "", route.About.RPC != "" && route.Scope != "":
			return fmt.Errorf("the route %s has two rights", name)
		}
	}
	return nil
}

// Handler returns the handler of all routes. Check should come first.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	patterns := map[string]map[string]Route{}
	for _, route := range s.Routes {
		if patterns[route.Pattern] == nil {
			patterns[route.Pattern] = map[string]Route{}
		}
		patterns[route.Pattern][route.Method] = route
	}
	handlers := map[string]http.Handler{}
	for pattern, methods := range patterns {
		handlers[pattern] = s.methods(methods)
		mux.Handle(pattern, handlers[pattern])
	}
	for prefix, handler := range s.Mounts {
		mux.Handle(prefix, handler)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		for pattern, handler := range handlers {
			if matchSlash(pattern, r) {
				handler.ServeHTTP(w, r)
				return
			}
		}
		WriteError(w, fault.New(fault.NotFound, "ROUTE_NOT_FOUND", "no route has this path"))
	})
	return s.traced(s.guarded(mux))
}

// matchSlash matches a path with an escaped slash alone as a wildcard value. It is a valid id, but
// http.ServeMux takes it for the end of the path.
func matchSlash(pattern string, r *http.Request) bool {
	wanted, got := strings.Split(pattern, "/"), strings.Split(r.URL.EscapedPath(), "/")
	if len(wanted) != len(got) {
		return false
	}
	values := map[string]string{}
	for i, segment := range wanted {
		name, wildcard := strings.CutPrefix(segment, "{")
		switch {
		case wildcard && strings.EqualFold(got[i], "%2f"):
			values[strings.TrimSuffix(name, "}")] = "/"
		case segment != got[i]:
			return false
		}
	}
	for name, value := range values {
		r.SetPathValue(name, value)
	}
	if len(values) > 0 {
		r.Pattern = pattern
	}
	return len(values) > 0
}

// methods serves the routes of one pattern.
func (s *Server) methods(methods map[string]Route) http.Handler {
	var allowed []string
	for method := range methods {
		allowed = append(allowed, method)
	}
	slices.Sort(allowed)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		route, ok := methods[r.Method]
		if !ok {
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			WriteError(w, fault.New(fault.Invalid, methodNotAllowed, "this path takes %s", strings.Join(allowed, ", ")))
			return
		}
		s.serve(w, r, route)
	})
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request, route Route) {
	err := s.handle(w, r, route)
	if errors.Is(err, ErrCut) || clientLeft(r, err) {
		panic(http.ErrAbortHandler)
	}
	if err != nil {
		s.logInternal(r.Context(), r, err)
		s.Meters.refuse(r.Context(), err)
		route.writeError(w, r, err)
	}
}

// handle admits the request and calls the handler. The identity of the caller is in the request's context.
func (s *Server) handle(w http.ResponseWriter, r *http.Request, route Route) error {
	if route.Public {
		return route.Handler(w, r, "")
	}
	caller, err := s.Callers.Admit(r, route.Needs())
	switch {
	case err != nil && route.Refused != nil:
		return route.Refused(w, r, err)
	case err != nil:
		return err
	}
	return route.Handler(w, auth.Admitted(r, caller), caller.Tenant)
}

func (route Route) writeError(w http.ResponseWriter, r *http.Request, err error) {
	if route.TextErrors {
		writeErrorAsText(w, r, err)
		return
	}
	WriteError(w, err)
}

// clientLeft reports whether the request failed because its client disconnected. A body that does not
// arrive in time ends the context as well, but its fault can still be sent.
func clientLeft(r *http.Request, err error) bool {
	_, isFault := fault.From(err)
	return err != nil && !isFault && r.Context().Err() != nil
}

// logInternal logs the cause of an INTERNAL answer.
func (s *Server) logInternal(ctx context.Context, r *http.Request, err error) {
	if fault.KindOf(err) == fault.Internal && RefusalOf(err) == nil {
		s.Log.ErrorContext(ctx, "request failed", "method", r.Method, "route", r.Pattern, "error", err)
	}
}
