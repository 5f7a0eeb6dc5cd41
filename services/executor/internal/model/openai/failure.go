package openai

import (
	"cmp"
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/providerhttp"
)

// apiError is an error body. Servers use several forms: {"error": {…}}, {"error": "text"}, {"message": "text"},
// {"detail": …}.
type apiError struct {
	message string
	kind    string // the "type"
	code    string
	param   string // the invalid member of the request
}

func parseAPIError(text []byte) apiError {
	var envelope struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Detail  json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(text, &envelope) != nil {
		return apiError{message: strings.TrimSpace(string(text))}
	}
	var object struct {
		Message string          `json:"message"`
		Type    string          `json:"type"`
		Code    json.RawMessage `json:"code"` // a string or a number
		Param   json.RawMessage `json:"param"`
	}
	var message string
	if json.Unmarshal(envelope.Error, &message) != nil {
		// Fields of unexpected types stay empty.
		_ = json.Unmarshal(envelope.Error, &object)
	}
	return apiError{
		message: cmp.Or(object.Message, message, envelope.Message, fieldText(envelope.Detail), string(text)),
		kind:    object.Type,
		code:    fieldText(object.Code),
		param:   fieldText(object.Param),
	}
}

// fieldText returns the text of a member of any type, "" if it is missing or null.
func fieldText(value json.RawMessage) string {
	if string(value) == "null" {
		return ""
	}
	return model.PlainText(value)
}

// responseError classifies a response other than an event stream.
func responseError(res *http.Response, text []byte) *model.Error {
	if e := model.RedirectError(res); e != nil {
		return e
	}
	apiErr := parseAPIError(text)
	e := &model.Error{
		StatusCode: res.StatusCode,
		Message:    cmp.Or(apiErr.message, http.StatusText(res.StatusCode)),
	}
	if res.StatusCode == http.StatusOK && apiErr.kind == "" && apiErr.code == "" {
		e.Code = model.CodeInvalidResponse
		e.Retryable = true
		return e
	}
	e.Code, e.Retryable = classify(res.StatusCode, apiErr)
	refineCode(e, apiErr)
	model.SetRefusal(e, apiErr.param, apiErr.code)
	providerhttp.ReadRetryHeaders(e, res.Header)
	return e
}

// unparsedError classifies text in the stream that belongs to no event: an error in plain JSON, or a page.
func unparsedError(text []byte) *model.Error {
	var object map[string]json.RawMessage
	if json.Unmarshal(text, &object) == nil {
		return eventError(text)
	}
	return model.InvalidResponse("the response is not an event stream: %.200s", text)
}

// eventError classifies an error that the provider sent in the middle of a stream.
func eventError(text []byte) *model.Error {
	apiErr := parseAPIError(text)
	e := &model.Error{Message: apiErr.message}
	// OpenRouter and others use the HTTP status as the code.
	status, err := strconv.Atoi(apiErr.code)
	if err == nil && status >= 400 && status < 600 {
		e.StatusCode = status
	}
	e.Code, e.Retryable = classify(e.StatusCode, apiErr)
	refineCode(e, apiErr)
	model.SetRefusal(e, apiErr.param, apiErr.code)
	return e
}

var (
	// replyShape matches the request members that control format and tool choice.
	replyShape   = regexp.MustCompile(`(?i)response_format|text\.format|json_schema|tool_choice|structured output`)
	notSupported = regexp.MustCompile(`(?i)support|not available|not allowed`)
)

// refineCode recognizes one cause of an invalid request: an unsupported reply format or tool choice gets
// provider_unsupported.
func refineCode(e *model.Error, apiErr apiError) {
	if e.Code != model.CodeInvalidRequest {
		return
	}
	if replyShape.MatchString(apiErr.param) || replyShape.MatchString(apiErr.message) && notSupported.MatchString(apiErr.message) {
		e.Code = model.CodeUnsupported
	}
}

// classify uses the status if there is one, otherwise the name of the error.
func classify(status int, apiErr apiError) (code string, retryable bool) {
	switch {
	case apiErr.code == "insufficient_quota" || apiErr.kind == "insufficient_quota":
		// HTTP 429, but waiting does not refill the account.
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
	for _, name := range []string{apiErr.code, apiErr.kind} {
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
