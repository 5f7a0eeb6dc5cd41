package flat

import (
	"net/http"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/gateway/internal/api"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
)

func auditRoutes(s *api.Server, limits httpapi.Limits) []httpapi.Route {
	return []httpapi.Route{
		route(definition{
			method: http.MethodGet, pattern: "/audit", name: "listAuditEvents", limits: pages,
			summary: "Lists entries of the audit log, newest first.",
			faults:  httpapi.Faults{fault.Invalid: {"CURSOR_INVALID"}},
		}, limits, s.ListAuditEvents, nil),
		route(definition{
			method: http.MethodDelete, pattern: "/users/{id}", name: "eraseUser", id: "userId", of: "the user",
			summary: "Removes everything of a user, and says what. Repeat it until done is true.",
		}, limits, s.EraseUser, nil),
		route(definition{
			method: http.MethodDelete, pattern: "/tenant", name: "eraseTenant",
			summary: "Removes everything of the tenant, and says what. Repeat it until done is true.",
		}, limits, s.EraseTenant, nil),
	}
}
