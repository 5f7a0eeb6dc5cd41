package anthropic

import (
	"cmp"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/providerhttp"
)

// apiError is an error body: {"type":"error","error":{"type","message"}}.
type apiError struct{ kind, message string }

func parseAPIError(text []byte) apiError {
	var envelope struct {
		Error struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		} `json:"error"`
	}
	// Any other body, perhaps from a proxy, is its own message.
	_ = json.Unmarshal(text, &envelope)
	return apiError{
		kind:    envelope.Error.Type,
		message: cmp.Or(envelope.Error.Message, strings.TrimSpace(string(text))),
	}
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
	e.Code, e.Retryable = classify(res.StatusCode, apiErr.kind)
	refineCode(e)
	model.SetRefusal(e, "", apiErr.kind)
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
	e.Code, e.Retryable = classify(0, apiErr.kind)
	refineCode(e)
	model.SetRefusal(e, "", apiErr.kind)
	return e
}

var unsupportedShape = regexp.MustCompile(`(?i)output_config|output_format|structured output|tool_choice`)

// refineCode recognizes one cause of an invalid request: an unsupported reply format or tool choice gets
// provider_unsupported.
func refineCode(e *model.Error) {
	if e.Code == model.CodeInvalidRequest && unsupportedShape.MatchString(e.Message) {
		e.Code = model.CodeUnsupported
	}
}

// classify uses the error type if it is known, otherwise the status. In the middle of a stream the status is 0.
func classify(status int, kind string) (code string, retryable bool) {
	switch kind {
	case "overloaded_error":
		return model.CodeOverloaded, true
	case "rate_limit_error":
		return model.CodeRateLimited, true
	case "timeout_error":
		return model.CodeTimeout, true
	case "invalid_request_error", "request_too_large":
		return model.CodeInvalidRequest, false
	case "authentication_error":
		return model.CodeUnauthenticated, false
	case "permission_error", "billing_error":
		return model.CodeDenied, false
	case "not_found_error":
		return model.CodeNotFound, false
	case "api_error":
		return model.CodeUnavailable, true
	}
	switch {
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
	case status != 0:
		return model.CodeInvalidResponse, true
	}
	return model.CodeUnavailable, true
}
