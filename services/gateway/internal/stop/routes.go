package stop

import (
	"net/http"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
)

// stopBody is the body of a request to stop a run.
type stopBody struct {
	SessionID string `json:"sessionId" doc:"the session, if neither the path nor the query names it"`

	Reason string `json:"reason" doc:"why; shown to people"`
	RunID  string `json:"runId" doc:"the run; the live run if missing"`
}

var (
	sessionParameter = httpapi.Parameter{Name: "sessionId", Doc: "the session, if the body does not name it", Type: httpapi.ID}
	waitParameter    = httpapi.Parameter{
		Name: "wait", Doc: "how long to wait for the end of the run, in milliseconds", Type: httpapi.Integer, Max: MaxWait.Milliseconds(),
	}
)

// Routes are the routes of this package.
func (s *Stops) Routes() []httpapi.Route {
	path := httpapi.PathID("id", "the session")
	return []httpapi.Route{
		s.route("/chat/{id}/interrupt", s.Interrupt, "interruptChat", path),
		s.route("/chat/{id}/abort", s.Abort, "abortChat", path),
		s.route("/interrupt", s.Interrupt, "interrupt", sessionParameter),
		s.route("/abort", s.Abort, "abort", sessionParameter),
	}
}

func (s *Stops) route(pattern string, handler httpapi.Handler, name string, session httpapi.Parameter) httpapi.Route {
	summary := "Stops the live run softly: it keeps its work, and the session can be resumed."
	if name == "abort" || name == "abortChat" {
		summary = "Stops the run permanently: it fails with framework_cancelled."
	}
	rpc, needed := map[string]string{"interrupt": "Interrupt", "abort": "Abort"}[name], auth.Scope("")
	if rpc == "" {
		needed = auth.Chat
	}
	return httpapi.Route{Method: http.MethodPost, Pattern: pattern, Handler: handler, Scope: needed, About: httpapi.About{
		Name: name, RPC: rpc, Summary: summary, Parameters: []httpapi.Parameter{session, waitParameter},
		Body: stopBody{}, OptionalBody: true, MaxBytes: s.Limits.MaxBytes,
		Answers: []httpapi.Answer{
			{Status: http.StatusAccepted, About: "the stop is stored", Body: Stopped{}},
			{Status: http.StatusOK, About: "with wait: the run has ended", Body: Stopped{}},
		},
		Faults: httpapi.Faults{
			fault.NotFound: {"SESSION_NOT_FOUND", "RUN_NOT_FOUND"}, fault.Invalid: {"STOP_INVALID"},
			fault.Exhausted: {"QUOTA_STREAMS", "TOO_MANY_STREAMS"}, fault.Unavailable: {httpapi.StopNotObserved, "GATEWAY_STOPPING"},
		},
	}}
}
