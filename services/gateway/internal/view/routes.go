package view

import (
	"math"
	"net/http"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/gateway/internal/conversation"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
)

// maxSequence is the largest integer that JavaScript represents exactly.
const maxSequence = 1<<53 - 1

// The parameters of the routes.
var (
	sessionParameter = httpapi.SessionParameter()
	runParameter     = httpapi.Parameter{Name: "runId", Doc: "one run alone; all runs if missing", Type: httpapi.ID}
	messagesOffset   = httpapi.Parameter{Name: "offset", Doc: "how many stored messages to skip", Type: httpapi.Integer, Max: 1 << 62}
	messagesLimit    = httpapi.Parameter{
		Name: "limit", Doc: "how many stored messages to read", Type: httpapi.Integer, Default: 50, Min: 1, Max: 200,
	}
	withReasoning = httpapi.Parameter{Name: "includeReasoning", Doc: "false leaves out reasoning", Type: httpapi.Boolean, True: true}
	withResults   = httpapi.Parameter{
		Name: "includeToolResults", Doc: "false leaves out the results of tools", Type: httpapi.Boolean, True: true,
	}
	historyFrom = httpapi.Parameter{
		Name: "fromSequence", Doc: "reads everything after this sequence", Type: httpapi.Integer, Max: maxSequence,
	}
	historyLimit = httpapi.Parameter{Name: "limit", Doc: "how many chunks to read", Type: httpapi.Integer, Default: 100, Min: 1, Max: 1000}
	historyStep  = httpapi.Parameter{
		Name: "fromStep", Doc: "leaves out chunks of earlier steps", Type: httpapi.Integer, Max: math.MaxInt32,
	}
)

// Routes are the routes of this package.
func (h *Handlers) Routes() []httpapi.Route {
	unknown := httpapi.Faults{fault.NotFound: {"SESSION_NOT_FOUND"}}
	return []httpapi.Route{
		{Method: http.MethodGet, Pattern: "/messages", Handler: h.Messages, Scope: auth.Read, About: httpapi.About{
			Name: "listMessages", Summary: "Lists the conversation as UI messages of the AI SDK, oldest first.",
			Parameters: []httpapi.Parameter{sessionParameter, messagesOffset, messagesLimit, withReasoning, withResults},
			Answers: []httpapi.Answer{
				{
					Status: http.StatusOK,
					About:  "a page, without messages for a session that does not exist; offset, limit and total count stored messages",
					Body:   conversation.Page{},
				},
			},
		}},
		{Method: http.MethodGet, Pattern: "/snapshot", Handler: h.Snapshot, Scope: auth.Read, About: httpapi.About{
			Name:       "getSnapshot",
			Summary:    "Returns the newest part of the conversation with its unfinished answer, and the sequence from which to continue reading.",
			Parameters: []httpapi.Parameter{sessionParameter},
			Answers:    []httpapi.Answer{{Status: http.StatusOK, About: "the session as a page shows it", Body: snapshot{}}},
			Faults: httpapi.Faults{
				fault.NotFound: unknown[fault.NotFound], fault.Unavailable: {"SESSION_CHANGING"}, fault.Exhausted: {"TOO_MANY_SNAPSHOTS"},
			},
		}},
		{Method: http.MethodGet, Pattern: "/history", Handler: h.History, Scope: auth.Read, About: httpapi.About{
			Name: "listChunks", Summary: "Lists the chunks so far, oldest first.",
			Parameters: []httpapi.Parameter{sessionParameter, historyFrom, historyLimit, runParameter, historyStep},
			Answers:    []httpapi.Answer{{Status: http.StatusOK, About: "a page of at most 4 MiB", Body: historyPage{}}},
			Faults:     unknown,
		}},
		{Method: http.MethodGet, Pattern: "/status", Handler: h.Status, Scope: auth.Read, About: httpapi.About{
			Name: "getStatus", Summary: "Returns the status of the session.",
			Parameters: []httpapi.Parameter{sessionParameter},
			Answers:    []httpapi.Answer{{Status: http.StatusOK, About: "the status", Body: sessionStatus{}}},
			Faults:     unknown,
		}},
		{Method: http.MethodGet, Pattern: "/agents", Handler: h.Agents, Scope: auth.Read, About: httpapi.About{
			Name: "listAgents", Summary: "Lists the agents of the connected executors.",
			Answers: []httpapi.Answer{{Status: http.StatusOK, About: "all agents", Body: agentList{}}},
		}},
	}
}
