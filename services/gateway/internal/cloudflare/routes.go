package cloudflare

import (
	"maps"
	"net/http"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

var readOnlyParameter = httpapi.Parameter{Name: "readonly", Doc: "true gives up the right to write, for a socket", Type: httpapi.Boolean}

// Routes are the routes of an instance.
func (s *Sockets) Routes() []httpapi.Route {
	agent := httpapi.Parameter{
		Name: "agent", In: "path", Doc: "an announced agent, or its name as these clients write it", Required: true,
		Refusal: "AGENT_NOT_FOUND",
	}
	name := httpapi.PathID("name", "the instance")
	faults := httpapi.Faults{fault.NotFound: {"AGENT_NOT_FOUND"}, fault.Conflict: {"AGENT_AMBIGUOUS"}}
	return []httpapi.Route{
		{Method: http.MethodGet, Pattern: "/agents/{agent}/{name}", Handler: s.Serve, Scope: auth.Read, Refused: s.Refuse, About: httpapi.About{
			Name: "getInstance", Summary: "Describes an instance of an agent, or opens its WebSocket for clients of Cloudflare Agents.",
			Parameters: []httpapi.Parameter{agent, name, readOnlyParameter}, Stream: true, Frames: slices.Sorted(maps.Keys(frameHandlers)),
			Answers: []httpapi.Answer{
				{Status: http.StatusOK, About: "the instance", Body: description{}},
				{Status: http.StatusSwitchingProtocols, About: "a WebSocket; a refusal closes it with a code from 4400 to 4409"},
			},
			Faults: faults,
		}},
		{Method: http.MethodGet, Pattern: "/agents/{agent}/{name}/get-messages", Handler: s.messages, Scope: auth.Read, About: httpapi.About{
			Name: "getInstanceMessages", Summary: "Returns the newest messages of an instance, as useAgentChat loads them.",
			Parameters: []httpapi.Parameter{agent, name},
			Answers: []httpapi.Answer{
				{
					Status: http.StatusOK,
					About:  "UI messages of the AI SDK, oldest first, without the message of a live run",
					Body:   []uistream.UIMessage{},
				},
			},
			Faults: httpapi.Faults{
				fault.NotFound:    faults[fault.NotFound],
				fault.Conflict:    faults[fault.Conflict],
				fault.Unavailable: {"SESSION_CHANGING"},
			},
		}},
		{Method: http.MethodPost, Pattern: "/agents/{agent}/{name}/call/{method}", Handler: s.callMethod, Scope: auth.Chat, About: httpapi.About{
			Name: "callMethod", Summary: "Calls a method of an agent on an instance, and waits for its result. Over a socket, its values arrive at once.",
			Parameters: []httpapi.Parameter{agent, name, {Name: "method", In: "path", Doc: "the method", Required: true}},
			Body:       methodCall{}, OptionalBody: true, MaxBytes: s.Bodies.MaxBytes, Stream: true,
			Answers: []httpapi.Answer{{Status: http.StatusOK, About: "the result", Body: methodAnswer{}}},
			Faults: httpapi.Faults{
				fault.NotFound: {"AGENT_NOT_FOUND", "METHOD_NOT_FOUND"}, fault.Conflict: {"AGENT_AMBIGUOUS", "METHOD_FAILED"},
				fault.Denied: {"METHOD_NOT_CALLABLE"}, fault.TooLarge: {"RESULT_TOO_LARGE"}, fault.Exhausted: {"TOO_MANY_CALLS"},
				fault.Unavailable: {"EXECUTOR_UNREACHABLE", "METHOD_TIMEOUT"},
			},
		}},
		{Method: http.MethodGet, Pattern: "/agents/{agent}/{name}/{path...}", Handler: s.refusePath, Public: true},
	}
}
