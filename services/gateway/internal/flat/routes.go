package flat

import (
	"net/http"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/api"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/stop"
)

// Routes returns the routes for the methods of the service.
func Routes(s *api.Server, limits httpapi.Limits) []httpapi.Route {
	routes := slices.Concat(
		runRoutes(
			s,
			limits,
		),
		sessionRoutes(s, limits),
		checkpointRoutes(s, limits),
		usageRoutes(s),
		agentRoutes(s, limits),
		auditRoutes(s, limits),
		accessRoutes(s, limits),
	)
	for i := range routes {
		routes[i] = refuseUnknown(routes[i])
	}
	return routes
}

// The limits of a page.
var (
	pages   = map[string]httpapi.Parameter{"limit": {Max: 200, Default: 50}}
	waiting = map[string]httpapi.Parameter{"wait": {Max: stop.MaxWait.Milliseconds()}}
)

// The reasons of several routes.
var (
	unknownSession = []string{"SESSION_NOT_FOUND"}
	otherUser      = []string{"OWNER_REFUSED"}
	badContext     = []string{"CONTEXT_TOO_LARGE", "CONTEXT_TOO_MANY"}
	badMessage     = []string{"CONTEXT_INVALID", "FILE_INVALID", "ID_INVALID", "MESSAGE_INVALID", "STATE_INVALID", "TIMEOUT_INVALID"}
	tooLarge       = []string{
		"CONTEXT_TOO_LARGE", "CONTEXT_TOO_MANY", "FILE_TOO_LARGE", "MESSAGE_TOO_LARGE", "STATE_SIZE_EXCEEDED", "TOO_MANY_MESSAGES",
	}
	ofQuotas = []string{"QUOTA_BYTES", "QUOTA_QUEUED", "QUOTA_STARTS", "TOO_MANY_FILES"}
	notNow   = []string{
		"MESSAGE_EXISTS",
		"REQUEST_KEY_REUSED",
		"RUN_CANCELLED",
		"SESSION_BUSY",
		"SESSION_CHANGED",
		"SESSION_COMPLETED",
		"SESSION_EXISTS",
		"SESSION_SUSPENDED",
	}
)

func runRoutes(s *api.Server, limits httpapi.Limits) []httpapi.Route {
	resume := httpapi.Faults{
		fault.Invalid:  append([]string{"METADATA_INVALID", "RESUME_INVALID"}, badMessage...),
		fault.NotFound: {"SESSION_NOT_FOUND", "CHECKPOINT_NOT_FOUND", "FILE_NOT_FOUND"},
		fault.Conflict: notNow, fault.TooLarge: tooLarge, fault.Exhausted: ofQuotas,
	}
	return []httpapi.Route{
		route(definition{
			method: http.MethodPost, pattern: "/start", name: "start",
			summary: "Begins the next run of a session, and creates a new session first. With a requestKey, a repetition returns the first run.",
			faults: httpapi.Faults{
				fault.Invalid:   append([]string{"AGENT_REQUIRED", "CALLER_TOOLS_INVALID", "METADATA_INVALID", "TAGS_INVALID"}, badMessage...),
				fault.NotFound:  {"AGENT_NOT_FOUND", "FILE_NOT_FOUND"},
				fault.TooLarge:  append([]string{"CALLER_TOOLS_TOO_LARGE"}, tooLarge...),
				fault.Exhausted: append([]string{"TOO_MANY_WAITING"}, ofQuotas...),
				fault.Denied:    {"CALLER_TOOLS_REFUSED", "OWNER_REFUSED", "PRIORITY_DENIED"},
				fault.Conflict:  {"AGENT_MISMATCH", "MESSAGE_EXISTS", "REQUEST_KEY_REUSED", "SESSION_BUSY", "SESSION_SUSPENDED"},
			},
		}, limits, s.Start, nil),
		route(definition{
			method: http.MethodPost, pattern: "/resume", name: "resume", required: []string{"sessionId"},
			summary: "Begins a run that continues a stopped session.", faults: resume,
		}, limits, s.Resume, nil),
		route(definition{
			method: http.MethodPost, pattern: "/retry", name: "retry", request: "RetryRequest", required: []string{"sessionId"},
			summary: "Begins a run that repeats the failed step of a session.", faults: resume,
			hide: []string{"mode", "checkpointId", "newSessionId"},
		}, limits, s.Resume, func(r *agentv1.ResumeRequest) { r.Mode = agentv1.ResumeMode_RESUME_MODE_RETRY }),
		route(definition{
			method: http.MethodGet, pattern: "/result", name: "getResult", answer: "RunResult", inline: "run",
			summary: "Returns a run with its output or failure, and waits for its end if asked to. done is false if the wait ended first: call again.",
			rename:  map[string]string{"waitMs": "wait"}, limits: waiting, stream: true,
			faults: httpapi.Faults{fault.NotFound: {"SESSION_NOT_FOUND", "RUN_NOT_FOUND"}},
		}, limits, s.WaitRun, nil),
		route(definition{
			method: http.MethodGet, pattern: "/runs", name: "listRuns", limits: pages,
			summary: "Lists the runs of a session, newest first.",
			faults:  httpapi.Faults{fault.NotFound: unknownSession},
		}, limits, s.ListRuns, nil),
		route(definition{
			method: http.MethodGet, pattern: "/calls", name: "listPendingCalls", limits: pages,
			summary: "Lists the calls of all sessions that wait for an answer, oldest first.",
			faults:  httpapi.Faults{fault.Invalid: {"CURSOR_INVALID", "ID_INVALID"}, fault.Denied: otherUser},
		}, limits, s.ListPendingCalls, nil),
	}
}

func accessRoutes(s *api.Server, limits httpapi.Limits) []httpapi.Route {
	return []httpapi.Route{
		route(definition{
			method: http.MethodPost, pattern: "/tokens", name: "createToken", required: []string{"subject"},
			summary: "Mints a short-lived token for the browser of a user, so that no API key needs to be in a page. It is sent like an API key, and ends with the credential that has minted it.",
			faults:  httpapi.Faults{fault.Invalid: {"ID_INVALID", "SCOPE_UNKNOWN", "TTL_INVALID"}, fault.Conflict: {"TOKENS_DISABLED"}},
		}, limits, s.CreateToken, nil),
		route(definition{
			method: http.MethodGet, pattern: "/keys", name: "listKeys",
			summary: "Lists the API keys of the tenant, without their secrets, with their last use at this gateway.",
		}, limits, s.ListKeys, nil),
	}
}

// agentRoutes are for agents that tenants store.
func agentRoutes(s *api.Server, limits httpapi.Limits) []httpapi.Route {
	const id, of = "agentType", "the agent"
	unknown := httpapi.Faults{fault.NotFound: {"AGENT_NOT_FOUND"}, fault.Stale: {"AGENT_CHANGED"}}
	return []httpapi.Route{
		route(definition{
			method: http.MethodPut, pattern: "/agents/{id}", name: "putAgent", id: id, of: of, hide: []string{id}, required: []string{"definition"},
			summary: "Stores an agent, whose definition is data, or replaces the one of its name. An equal definition changes nothing.",
			faults: httpapi.Faults{
				fault.Invalid:  {"AGENTS_INVALID", "AGENT_INVALID", "DEFINITION_INVALID"},
				fault.TooLarge: {"DEFINITION_TOO_LARGE", "TOO_MANY_AGENTS"},
				fault.Conflict: {"AGENT_ANNOUNCED", "STORED_AGENTS_DISABLED"}, fault.Stale: {"AGENT_CHANGED"},
				fault.Unavailable: {"EXECUTOR_UNREACHABLE"},
			},
		}, limits, s.PutAgent, nil),
		route(definition{
			method: http.MethodGet, pattern: "/agents/{id}", name: "getAgent", id: id, of: of,
			summary: "Returns a stored agent with its definition.", faults: httpapi.Faults{fault.NotFound: {"AGENT_NOT_FOUND"}},
		}, limits, s.GetAgent, nil),
		route(definition{
			method: http.MethodDelete, pattern: "/agents/{id}", name: "deleteAgent", id: id, of: of,
			summary: "Deletes a stored agent. Runs in progress go on.", faults: unknown,
		}, limits, s.DeleteAgent, nil),
	}
}

func sessionRoutes(s *api.Server, limits httpapi.Limits) []httpapi.Route {
	setStatus := route(definition{
		method: http.MethodPatch, pattern: "/sessions/{id}/status", name: "setStatus", hide: []string{"sessionId"}, required: []string{"status"},
		summary: "Sets the status of a session, if it is as expected. Otherwise the answer says how it is, and nothing is written.",
		faults: httpapi.Faults{
			fault.NotFound: unknownSession, fault.Conflict: {"FAMILY_TOO_LARGE"}, fault.Invalid: {"FAILURE_MISSING"},
		},
	}, limits, s.SetStatus, nil)
	answer := (&agentv1.SetStatusResponse{}).ProtoReflect().Descriptor()
	setStatus.About.Answers[0].Body = OneOf{
		{
			Name: "StatusSet", Message: answer, Without: []string{"currentStatus", "currentVersion"},
			Required: []string{"newVersion"}, Fixed: map[string]bool{"ok": true},
		},
		{
			Name: "StatusConflict", Message: answer, Without: []string{"newVersion"},
			Required: []string{"currentStatus", "currentVersion"}, Fixed: map[string]bool{"ok": false},
		},
	}
	return []httpapi.Route{
		route(definition{
			method: http.MethodGet, pattern: "/sessions", name: "listSessions", limits: pages,
			summary: "Lists sessions that meet all conditions, newest first.",
			rename:  map[string]string{"statuses": "status"},
			faults: httpapi.Faults{
				fault.Invalid: {"CURSOR_INVALID", "ID_INVALID", "METADATA_INVALID", "STATUS_INVALID", "TAGS_INVALID"},
				fault.Denied:  otherUser,
			},
		}, limits, s.ListSessions, nil),
		route(definition{
			method: http.MethodGet, pattern: "/sessions/{id}", name: "getSession",
			summary: "Returns a session with its newest run, its pending calls and its sub-sessions, as of one moment.",
			faults:  httpapi.Faults{fault.NotFound: unknownSession},
		}, limits, s.GetSession, nil),
		route(definition{
			method: http.MethodPatch, pattern: "/sessions/{id}", name: "updateSession", hide: []string{"sessionId"},
			summary: "Changes the properties that the body names. tags and metadata replace the stored ones.",
			faults: httpapi.Faults{
				fault.NotFound: unknownSession, fault.Stale: {"VERSION_STALE"},
				fault.Invalid: {"EXPIRES_AT_INVALID", "ID_INVALID", "METADATA_INVALID", "TAGS_INVALID", "TITLE_INVALID"},
			},
		}, limits, s.UpdateSession, nil),
		route(definition{
			method: http.MethodPatch, pattern: "/sessions/{id}/state", name: "mergeState", hide: []string{"sessionId"}, required: []string{"ops"},
			summary: "Writes keys of the custom state, in order. A repetition appends again, unless expectedVersion refuses it.",
			faults: httpapi.Faults{
				fault.NotFound: unknownSession, fault.Stale: {"VERSION_STALE"}, fault.TooLarge: {"STATE_SIZE_EXCEEDED"},
			},
		}, limits, s.MergeState, nil),
		setStatus,
		route(definition{
			method: http.MethodPost, pattern: "/sessions/{id}/context", name: "addContext", hide: []string{"sessionId"}, required: []string{"rows"},
			summary: "Appends messages to the model that users do not see. With a requestKey, a repetition writes nothing.",
			faults: httpapi.Faults{
				fault.NotFound: unknownSession, fault.Invalid: {"CONTEXT_INVALID", "ID_INVALID"}, fault.TooLarge: badContext,
				fault.Conflict: {"MESSAGE_EXISTS"}, fault.Exhausted: {"QUOTA_BYTES"},
			},
		}, limits, s.AddContext, nil),
		route(definition{
			method: http.MethodGet, pattern: "/sessions/{id}/store", name: "readStore", limits: pages,
			summary: "Reads the private store of a session: the named keys, or a range in the order of the keys' bytes.",
			faults:  httpapi.Faults{fault.NotFound: unknownSession, fault.Invalid: {"STORE_KEY_INVALID"}},
		}, limits, s.ReadStore, nil),
		route(definition{
			method: http.MethodDelete, pattern: "/sessions/{id}/store", name: "deleteStoreEntries",
			summary: "Deletes keys of the private store of a session.",
			faults:  httpapi.Faults{fault.NotFound: unknownSession, fault.Invalid: {"STORE_WRITES_INVALID"}},
		}, limits, s.DeleteStoreEntries, nil),
		route(definition{
			method: http.MethodDelete, pattern: "/sessions/{id}", name: "deleteSession",
			summary: "Deletes a session and all sessions below it, with everything that belongs to them.",
			faults:  httpapi.Faults{fault.NotFound: unknownSession, fault.Conflict: {"FAMILY_TOO_LARGE"}},
		}, limits, s.DeleteSession, nil),
	}
}

func checkpointRoutes(s *api.Server, limits httpapi.Limits) []httpapi.Route {
	unknown := []string{"SESSION_NOT_FOUND", "CHECKPOINT_NOT_FOUND"}
	both := []string{"checkpointId", "sessionId"}
	return []httpapi.Route{
		route(definition{
			method: http.MethodGet, pattern: "/checkpoints", name: "listCheckpoints", limits: pages,
			summary: "Lists the checkpoints of a session, newest first.",
			faults:  httpapi.Faults{fault.NotFound: unknownSession},
		}, limits, s.ListCheckpoints, nil),
		route(definition{
			method: http.MethodPost, pattern: "/branch", name: "branch", required: both,
			summary: "Creates a session from a checkpoint. No run begins.",
			faults:  httpapi.Faults{fault.Invalid: {"ID_INVALID"}, fault.NotFound: unknown, fault.Conflict: {"SESSION_EXISTS"}},
		}, limits, s.Branch, nil),
		route(definition{
			method: http.MethodPost, pattern: "/rewind", name: "rewind", required: both,
			summary: "Restores the messages and the custom state of a checkpoint. Everything behind it is removed.",
			faults:  httpapi.Faults{fault.Invalid: {"ID_INVALID"}, fault.NotFound: unknown, fault.Conflict: {"SESSION_BUSY"}},
		}, limits, s.Rewind, nil),
	}
}
