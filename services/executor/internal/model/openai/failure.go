package openai

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/providerhttp"
)

// complaint is what an error body says, in the forms that servers give it:
// {"error": {…}}, {"error": "text"}, {"message": "text"}, {"detail": …}.
type complaint struct {
	message string
	kind    string // the "type"
	code    string
	param   string // the member of the request that it is about
}

func readComplaint(text []byte) complaint {
	var envelope struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Detail  json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(text, &envelope) != nil {
		return complaint{message: strings.TrimSpace(string(text))}
	}
	var object struct {
		Message string          `json:"message"`
		Type    string          `json:"type"`
		Code    json.RawMessage `json:"code"` // a text or a number
		Param   json.RawMessage `json:"param"`
	}
	var message string
	if json.Unmarshal(envelope.Error, &message) != nil {
		// Fields of other types stay empty; the rest is still worth reading.
		_ = json.Unmarshal(envelope.Error, &object)
	}
	return complaint{
		message: cmp.Or(object.Message, message, envelope.Message, field(envelope.Detail), string(text)),
		kind:    object.Type,
		code:    field(object.Code),
		param:   field(object.Param),
	}
}

// field is the text of a member that may have any type; empty where there is none, or null.
func field(value json.RawMessage) string {
	if string(value) == "null" {
		return ""
	}
	return model.Plain(value)
}

// refusal classifies an answer that is not an event stream.
func refusal(res *http.Response, text []byte) *model.Error {
	if e := model.Redirected(res); e != nil {
		return e
	}
	said := readComplaint(text)
	e := &model.Error{
		StatusCode: res.StatusCode,
		Message:    cmp.Or(said.message, http.StatusText(res.StatusCode)),
	}
	if res.StatusCode == http.StatusOK && said.kind == "" && said.code == "" {
		e.Code, e.Retryable = model.CodeInvalidResponse, true
		return e
	}
	e.Code, e.Retryable = classify(res.StatusCode, said)
	specify(e, said)
	providerhttp.ReadRetryHeaders(e, res.Header)
	return e
}

// spoken makes an error of what the provider said in the middle of a stream, and
// leaves other errors as they are.
func spoken(err error) error {
	if e, ok := errors.AsType[*ssestream.StreamError](err); ok {
		return interruption(e.Event.Data)
	}
	return err
}

// interruption classifies an error in the middle of a stream.
func interruption(text []byte) *model.Error {
	said := readComplaint(text)
	e := &model.Error{Message: said.message}
	// OpenRouter and others put the HTTP status that it would have been into the code.
	status, err := strconv.Atoi(said.code)
	if err == nil && status >= 400 && status < 600 {
		e.StatusCode = status
	}
	e.Code, e.Retryable = classify(e.StatusCode, said)
	specify(e, said)
	return e
}

var (
	// tooLong is how servers without a code for it say that a conversation is too long.
	tooLong = regexp.MustCompile(`(?i)context (length|window|size)|maximum (context|sequence) length|too many (input )?tokens|prompt is too long`)
	// ofShape names the members of a request that ask for the shape of the reply.
	ofShape = regexp.MustCompile(`(?i)response_format|text\.format|json_schema|tool_choice|structured output`)
	support = regexp.MustCompile(`(?i)support|not available|not allowed`)
)

// specify tells apart what servers call an invalid request alike: a conversation
// that is too long, and a shape of the reply that the model cannot give.
func specify(e *model.Error, said complaint) {
	if e.Code != model.CodeInvalidRequest {
		return
	}
	switch {
	case said.code == "context_length_exceeded", tooLong.MatchString(said.message):
		e.Message = model.TooLong(e.Message)
	case ofShape.MatchString(said.param), ofShape.MatchString(said.message) && support.MatchString(said.message):
		e.Code = model.CodeUnsupported
	}
}

// classify decides by the status where there is one, else by the name of the error.
func classify(status int, said complaint) (code string, retryable bool) {
	switch {
	case said.code == "insufficient_quota" || said.kind == "insufficient_quota":
		// Answered with 429, but waiting does not bring the money.
		return model.CodeRateLimited, false
	case status == http.StatusUnauthorized:
		return model.CodeUnauthenticated, false
	case status == http.StatusForbidden:
		return model.CodeDenied, false
	case status == http.StatusNotFound:
		return model.CodeNotFound, false
	case status == http.StatusRequestTimeout, status == http.StatusConflict:
		return model.CodeUnavailable, true
	case status == http.StatusTooManyRequests:
		return model.CodeRateLimited, true
	case status == http.StatusServiceUnavailable, status == 529:
		return model.CodeOverloaded, true
	case status >= 500:
		return model.CodeUnavailable, true
	case status >= 400:
		return model.CodeInvalidRequest, false
	}
	for _, name := range []string{said.code, said.kind} {
		switch name {
		case "rate_limit_exceeded", "rate_limit_error", "too_many_requests":
			return model.CodeRateLimited, true
		case "overloaded", "overloaded_error", "engine_overloaded", "server_is_overloaded", "slow_down":
			return model.CodeOverloaded, true
		case "timeout", "timeout_error":
			return model.CodeTimeout, true
		case "invalid_api_key", "authentication_error":
			return model.CodeUnauthenticated, false
		case "permission_denied", "permission_error":
			return model.CodeDenied, false
		case "model_not_found", "not_found_error":
			return model.CodeNotFound, false
		case "invalid_request_error", "context_length_exceeded", "invalid_prompt":
			return model.CodeInvalidRequest, false
		}
	}
	return model.CodeUnavailable, true
}
