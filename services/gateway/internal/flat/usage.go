package flat

import (
	"net/http"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/gateway/internal/api"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
)

// usageMode chooses what GET /usage returns.
var usageMode = httpapi.Parameter{
	Name: "mode", Doc: "rollup adds up the usage, with the tokens of sub-agents beside; entries lists the measurements",
	Words: []string{"rollup", "entries"},
}

func usageRoutes(s *api.Server) []httpapi.Route {
	found := httpapi.Faults{
		fault.NotFound:  {"SESSION_NOT_FOUND", "RUN_NOT_FOUND"},
		fault.Exhausted: {"QUERY_TOO_LARGE"},
		fault.Invalid:   {"ID_INVALID"},
	}
	rollup := route(definition{
		method: http.MethodGet, pattern: "/usage", name: "getUsage", inline: "usage", faults: found,
		summary: "Returns the usage of a session: its sums, or its measurements.",
	}, httpapi.Limits{}, s.GetUsage, nil)
	entries := route(definition{method: http.MethodGet, pattern: "/usage", limits: pages}, httpapi.Limits{}, s.ListUsage, nil)
	both := rollup
	both.About.Parameters = append([]httpapi.Parameter{usageMode}, rollup.About.Parameters...)
	both.About.Parameters = append(both.About.Parameters, entries.About.Parameters[1:]...) // without a second sessionId
	both.About.Answers = []httpapi.Answer{{Status: http.StatusOK, About: "by mode", Body: OneOf{
		rollup.About.Answers[0].Body.(Shape), entries.About.Answers[0].Body.(Shape),
	}}}
	both.Handler = func(w http.ResponseWriter, r *http.Request, tenant string) error {
		mode, err := usageMode.String(r)
		if err != nil {
			return err
		}
		if mode == "entries" {
			return entries.Handler(w, r, tenant)
		}
		return rollup.Handler(w, r, tenant)
	}
	return []httpapi.Route{both, route(definition{
		method: http.MethodGet, pattern: "/usage/query", name: "queryUsage",
		summary: "Adds up usage over sessions, in buckets of time.",
		faults:  httpapi.Faults{fault.Invalid: {"QUERY_INVALID"}, fault.Exhausted: {"QUERY_TOO_LARGE"}, fault.Denied: otherUser},
	}, httpapi.Limits{}, s.QueryUsage, nil)}
}
