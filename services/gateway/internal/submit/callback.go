package submit

import (
	"bytes"
	"encoding/json"
	"net/http"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/pkg/grant"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi"
	"github.com/holdfast-run/holdfast/services/gateway/internal/httpapi/auth"
	"github.com/holdfast-run/holdfast/services/gateway/internal/retry"
)

// Callbacks take the results that other systems post for calls whose tools have answered "later". The token in the URL is the
// whole right: the state service verifies it.
type Callbacks struct {
	Calls   statev1.CallServiceClient // without a caller's identity
	Callers *auth.Credentials         // throttle forged tokens
	Policy  retry.Policy              // also how long a post waits for the run to suspend
	Limits  httpapi.Limits            // of a request body
}

// callbackActor is the actor of a posted result in the audit log.
const callbackActor = "callback"

// posted is the body of a post.
type posted struct {
	Result json.RawMessage `json:"result" doc:"any JSON value"`
	Error  *postedError    `json:"error" doc:"why there is no result"`
}

type postedError struct {
	Message       string `json:"message" required:"true" doc:"for the model"`
	PublicMessage string `json:"publicMessage" doc:"for users; they read the message without it"`
	Code          string `json:"code" doc:"for the sender; it is not stored"`
}

type postTaken struct {
	Status string `json:"status" enum:"accepted,already_completed,late_answer_after_timeout" doc:"already_completed: an equal result was posted before"`
}

// Routes returns the route.
func (c *Callbacks) Routes() []httpapi.Route {
	return []httpapi.Route{{
		Method: http.MethodPost, Pattern: httpapi.CallbackPath + "{token}", Handler: c.serve, Public: true,
		About: httpapi.About{
			Name: "postCallback",
			Summary: "Takes the result of a call whose tool has answered \"later\". The URL was given to the call; it is the only credential. " +
				"An equal repetition changes nothing.",
			Parameters: []httpapi.Parameter{{Name: "token", In: "path", Doc: "the last segment of the URL", Required: true}},
			Body:       posted{}, MaxBytes: c.Limits.MaxBytes,
			Answers: []httpapi.Answer{{Status: http.StatusOK, About: "the result is stored", Body: postTaken{}}},
			Faults: httpapi.Faults{
				fault.Invalid:   {"ANSWER_INVALID"},
				fault.NotFound:  {"CALLBACK_UNKNOWN", "SESSION_NOT_FOUND", "UNKNOWN_TOOL_CALL"},
				fault.Conflict:  {"CALLBACK_EXPIRED", "CALL_ANSWERED", "OWNER_NOT_CONTINUABLE"},
				fault.TooLarge:  {"RESULT_TOO_LARGE"},
				fault.Exhausted: {"AUTH_THROTTLED"}, fault.Unavailable: {"CALL_NOT_OPEN"},
			},
		},
	}}
}

func (c *Callbacks) serve(w http.ResponseWriter, r *http.Request, _ string) error {
	token := r.PathValue("token")
	named, err := grant.ReadCallback(token)
	if err != nil {
		return c.Callers.Forged(r, err)
	}
	request := &statev1.SubmitCallRequest{
		Tenant: named.Tenant, SessionId: named.Session, ToolCallId: named.Call, CallbackToken: token,
		Caller: &statev1.Caller{Actor: callbackActor},
	}
	// Whoever forges a token gets no memory for a body: a request without an answer only checks its token.
	if _, err := c.submit(r, request); fault.ReasonOf(err) != answerInvalid {
		return err
	}
	var body posted
	if err := httpapi.ReadJSON(w, r, c.Limits, &body); err != nil {
		return err
	}
	if request.Answer, err = body.answer(); err != nil {
		return err
	}
	taken, err := c.submit(r, request)
	switch {
	case err != nil:
		return err
	case taken.GetOutcome() == statev1.SubmitCallResponse_OUTCOME_ALREADY_COMPLETED && !taken.GetRepeated():
		return fault.New(fault.Conflict, "CALL_ANSWERED", "the call has ended with another result, or without one; this one changes nothing")
	}
	httpapi.WriteJSON(w, http.StatusOK, postTaken{Status: statuses[taken.GetOutcome()]})
	return nil
}

func (c *Callbacks) submit(r *http.Request, request *statev1.SubmitCallRequest) (taken *statev1.SubmitCallResponse, err error) {
	err = retry.Do(r.Context(), c.Policy, func() (err error) {
		taken, err = c.Calls.SubmitCall(r.Context(), request)
		return err
	})
	if fault.ReasonOf(err) == "CALLBACK_UNKNOWN" {
		err = c.Callers.Forged(r, err)
	}
	return taken, err
}

func (p *posted) answer() (*statev1.CallAnswer, error) {
	switch {
	case p.Result != nil && p.Error != nil:
		return nil, invalid("the body has a result and an error; send only one of the two")
	case p.Error != nil && p.Error.Message == "":
		return nil, invalid("error.message is empty; say what went wrong")
	case p.Error != nil:
		return &statev1.CallAnswer{Answer: &statev1.CallAnswer_Error{Error: p.Error.Message}, PublicError: p.Error.PublicMessage}, nil
	case p.Result == nil:
		return nil, invalid("the body has neither a result nor an error; a call without a result has the result null")
	case !utf8.Valid(p.Result):
		return nil, invalid("the result is not UTF-8")
	}
	var result bytes.Buffer
	if err := json.Compact(&result, p.Result); err != nil { // the decoder has validated it
		return nil, invalid("the result is not JSON")
	}
	return &statev1.CallAnswer{Answer: &statev1.CallAnswer_Result{Result: result.String()}}, nil
}
