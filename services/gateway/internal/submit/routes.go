package submit

import (
	"net/http"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
)

// Routes are the routes of this package.
func (a *Answers) Routes() []httpapi.Route {
	about := httpapi.About{
		Name: "submitToolResult", RPC: "SubmitToolResult", Summary: "Answers a pending call: a result, an error, or the decision on an approval. The first answer is final; a repetition changes nothing.",
		Body: submission{}, MaxBytes: a.Limits.MaxBytes,
		Answers: []httpapi.Answer{{Status: http.StatusOK, About: "the answer is stored", Body: submitted{}}},
		Faults: httpapi.Faults{
			fault.Invalid: {"ID_INVALID", "ANSWER_INVALID", "KIND_MISMATCH"}, fault.NotFound: {"SESSION_NOT_FOUND", "UNKNOWN_TOOL_CALL"},
			fault.Denied: {
				"APPROVER_REFUSED",
			}, fault.Conflict: {"OWNER_NOT_CONTINUABLE"}, fault.TooLarge: {"RESULT_TOO_LARGE"}, fault.Unavailable: {"CALL_NOT_OPEN"},
		},
	}
	inChat := about
	inChat.Name, inChat.RPC, inChat.Parameters = "submitChatToolResult", "", []httpapi.Parameter{httpapi.PathID("id", "the session")}
	return []httpapi.Route{
		{
			Method:  http.MethodPost,
			Pattern: "/chat/{id}/submit-tool-result",
			Handler: a.Serve,
			Scope:   auth.ScopeOf("SubmitToolResult"),
			About:   inChat,
		},
		{Method: http.MethodPost, Pattern: "/submit-tool-result", Handler: a.Serve, About: about},
	}
}
