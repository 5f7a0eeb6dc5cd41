package httpapi_test

import (
	"net/http"
	"testing"

	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
)

func TestARouteNeedsEitherAScopeOrToBePublic(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		route httpapi.Route
		ok    bool
	}{
		"a public route":             {httpapi.Route{Public: true}, true},
		"a route with a scope":       {httpapi.Route{Scope: auth.Read}, true},
		"a route of a method":        {httpapi.Route{About: httpapi.About{RPC: "Start"}}, true},
		"a route without a right":    {httpapi.Route{}, false},
		"a public route with one":    {httpapi.Route{Public: true, Scope: auth.Read}, false},
		"a route of no known method": {httpapi.Route{About: httpapi.About{RPC: "Nothing"}}, false},
		"a route with two rights":    {httpapi.Route{Scope: auth.Read, About: httpapi.About{RPC: "Start"}}, false},
	} {
		tc.route.Method, tc.route.Pattern = http.MethodGet, "/things"
		if err := (&httpapi.Server{Routes: []httpapi.Route{tc.route}}).Check(); (err == nil) != tc.ok {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
