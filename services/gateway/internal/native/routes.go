package native

import (
	"net/http"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
)

var familyParameter = httpapi.Parameter{
	Name: "family", Doc: "false leaves out the sessions of sub-agents", Type: httpapi.Boolean, True: true,
}

// Routes are the routes of the native stream.
func Routes(events *Events, sockets *Sockets) []httpapi.Route {
	parameters := []httpapi.Parameter{
		httpapi.SessionParameter(),
		{Name: "runId", Doc: "one run alone; the whole session if missing", Type: httpapi.ID},
		{Name: "fromSequence", Doc: "reads everything after this sequence", Type: httpapi.Integer, Max: 1<<53 - 1, Refusal: "CURSOR_INVALID"},
		{Name: "Last-Event-ID", In: "header", Doc: "as fromSequence, and takes precedence", Refusal: "CURSOR_INVALID"},
		familyParameter,
	}
	unknown := httpapi.Faults{fault.NotFound: {"SESSION_NOT_FOUND", "RUN_NOT_FOUND"}}
	socket := httpapi.Faults{fault.NotFound: unknown[fault.NotFound], fault.Invalid: {httpapi.UpgradeRequired}}
	return []httpapi.Route{
		{Method: http.MethodGet, Pattern: "/sse", Handler: sockets.Or(events.Serve), Scope: auth.Read, About: httpapi.About{
			Name: "streamEvents", Summary: "Streams the events of a session, or upgrades to a WebSocket, as /ws does.", Parameters: parameters,
			Stream: true, Frames: []string{typePing},
			Answers: []httpapi.Answer{
				{Status: http.StatusOK, About: "server-sent events: chunk, end, fail, rewound, caught-up", Type: "text/event-stream"},
			},
			Faults: unknown,
		}},
		{Method: http.MethodGet, Pattern: "/ws", Handler: sockets.Serve, Scope: auth.Read, About: httpapi.About{
			Name: "openEventSocket", Summary: "Streams the same frames over a WebSocket.", Parameters: parameters, Stream: true,
			Frames:  []string{typePing},
			Answers: []httpapi.Answer{{Status: http.StatusSwitchingProtocols, About: "a WebSocket"}},
			Faults:  socket,
		}},
	}
}
