package gateway

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/client"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
)

// Route is a route of the program on the port of the gateway: with its authentication, its rules for pages of other origins,
// its limits, its spans and measurements, and its shutdown.
type Route struct {
	// Scope is what a caller needs: read, chat, approve, operate or admin.
	Scope string
	// Public: everybody may call it, without a credential. Scope must then be empty.
	Public bool
	// Serve answers a request, of at most HOLDFAST_GATEWAY_MAX_BODY_BYTES. An error becomes the answer: a *Refusal as it is, a fault
	// by its kind, and any other one as INTERNAL. After the first byte, an error breaks the connection. It may stream; the
	// context of the request ends when the client leaves, and when the gateway has ended its grace.
	Serve func(http.ResponseWriter, *http.Request, *RouteCaller) error
}

// RouteCaller is who calls a route.
type RouteCaller struct {
	// Caller and Actor are as in an Entry; zero on a public route.
	Caller Caller
	Actor  string
	// Client calls the gateway on behalf of the caller, within the process, until Serve returns: it reaches the sessions that the
	// caller reaches. Its requests are entries like any other. It needs Service.ServeWithin, which Main, Run and package holdfast
	// run. It is nil on a public route.
	Client *client.Client
}

// routeMethods are the methods that a route may have.
var routeMethods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// programRoutes returns the routes of the program. Invalid (ROUTE_INVALID): a pattern or a scope is wrong, or a path could be that
// of one of the routes of the gateway.
func (s *Service) programRoutes(own []httpapi.Route, mounts map[string]http.Handler) (routes []httpapi.Route, err error) {
	taken := slices.Collect(maps.Keys(mounts))
	for _, route := range own {
		taken = append(taken, route.Pattern)
	}
	for _, name := range slices.Sorted(maps.Keys(s.peers.Routes)) {
		route := s.peers.Routes[name]
		method, pattern, _ := strings.Cut(name, " ")
		switch {
		case !slices.Contains(routeMethods, method) || !strings.HasPrefix(pattern, "/"):
			return nil, routeInvalid("the route %q must be a method and a path, such as GET /tenants/{id}/report", name)
		case route.Serve == nil:
			return nil, routeInvalid("the route %q has no Serve", name)
		case route.Public == (route.Scope != ""):
			return nil, routeInvalid("the route %q must have a scope or be public", name)
		case !route.Public && auth.CheckScopes([]string{route.Scope}) != nil:
			return nil, routeInvalid("the route %q has the scope %q; the scopes are read, chat, approve, operate and admin", name, route.Scope)
		}
		for _, other := range taken {
			if overlap(pattern, other) {
				return nil, routeInvalid("the route %q collides with %s of the gateway: choose another path", name, other)
			}
		}
		routes = append(routes, httpapi.Route{
			Method: method, Pattern: pattern, Public: route.Public, Scope: auth.Scope(route.Scope), Handler: s.serveRoute(route),
		})
	}
	return routes, checkPatterns(routes)
}

func routeInvalid(format string, args ...any) error {
	return fault.New(fault.Invalid, "ROUTE_INVALID", format, args...)
}

// checkPatterns gives Invalid (ROUTE_INVALID) for patterns that are none, and for two of which neither is more specific.
func checkPatterns(routes []httpapi.Route) (err error) {
	defer func() {
		if p := recover(); p != nil { // of http.ServeMux
			err = routeInvalid("%v", p)
		}
	}()
	mux := http.NewServeMux()
	known := map[string]bool{}
	for _, route := range routes {
		if !known[route.Pattern] {
			mux.Handle(route.Pattern, http.NotFoundHandler())
		}
		known[route.Pattern] = true
	}
	return nil
}

// overlap reports whether a path can match both patterns.
func overlap(a, b string) bool {
	left, right := segments(a), segments(b)
	for i := 0; ; i++ {
		if i < len(left) && left[i] == rest || i < len(right) && right[i] == rest {
			return true
		}
		if i == len(left) || i == len(right) {
			return len(left) == len(right)
		}
		if left[i] != right[i] && !strings.HasPrefix(left[i], "{") && !strings.HasPrefix(right[i], "{") {
			return false
		}
	}
}

// rest is a segment that matches all that follows.
const rest = "..."

// segments returns the segments of a pattern of http.ServeMux.
func segments(pattern string) []string {
	list := strings.Split(strings.TrimPrefix(pattern, "/"), "/")
	switch last := &list[len(list)-1]; {
	case *last == "" || strings.HasSuffix(*last, "...}"):
		*last = rest
	case *last == "{$}":
		*last = ""
	}
	return list
}

// serveRoute serves a route of the program.
func (s *Service) serveRoute(route Route) httpapi.Handler {
	return func(w http.ResponseWriter, r *http.Request, _ string) error {
		caller := &RouteCaller{}
		if identity, known := auth.From(r.Context()); known && !route.Public {
			transport := s.transportOf(identity)
			defer transport.CloseIdleConnections()
			caller.Caller, caller.Actor = identity.Caller(), identity.Actor()
			caller.Client = client.New(client.Config{URL: "http://127.0.0.1", HTTP: &http.Client{Transport: transport}})
		}
		r.Body = http.MaxBytesReader(w, r.Body, s.config.MaxBodyBytes)
		answer := &routeAnswer{ResponseWriter: w}
		err := route.Serve(answer, r, caller)
		if tooLarge, is := errors.AsType[*http.MaxBytesError](err); is {
			err = fault.New(fault.TooLarge, "BODY_TOO_LARGE",
				"a request may have at most %d bytes; send less, or raise HOLDFAST_GATEWAY_MAX_BODY_BYTES", tooLarge.Limit).WithSizes(0, tooLarge.Limit)
		}
		if refusal := httpapi.RefusalOf(err); refusal != nil && !refusal.Valid() {
			err = errors.New("a route refuses with a status other than 400 to 499 or 503, or with a code that is not UPPER_SNAKE")
		}
		if err != nil && answer.begun {
			s.peers.Log.WarnContext(r.Context(), "a route of the program has failed behind its first byte", "route", r.Pattern, "error", err)
			return httpapi.ErrCut
		}
		return err
	}
}

// routeAnswer knows whether an answer has begun.
type routeAnswer struct {
	http.ResponseWriter
	begun bool
}

func (a *routeAnswer) WriteHeader(status int) {
	a.begun = a.begun || status >= http.StatusOK
	a.ResponseWriter.WriteHeader(status)
}

func (a *routeAnswer) Write(b []byte) (int, error) {
	a.begun = true
	return a.ResponseWriter.Write(b)
}

// Flush implements http.Flusher. The next write returns the error of a client that has left.
func (a *routeAnswer) Flush() { _ = http.NewResponseController(a.ResponseWriter).Flush() }

// Unwrap lets http.ResponseController reach the connection.
func (a *routeAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
