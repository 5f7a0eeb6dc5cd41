package anthropic

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/providerhttp"
)

// apiError is what an error body says: {"type":"error","error":{"type","message"}}.
type apiError struct{ kind, message string }

func parseAPIError(text []byte) apiError {
	var envelope struct {
		Error struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		} `json:"error"`
	}
	// A body in another form, a proxy's perhaps, is its own message.
	_ = json.Unmarshal(text, &envelope)
	return apiError{
		kind:    envelope.Error.Type,
		message: cmp.Or(envelope.Error.Message, strings.TrimSpace(string(text))),
	}
}

// responseError classifies an answer that is not an event stream.
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
	providerhttp.ReadRetryHeaders(e, res.Header)
	return e
}

// streamError makes an error of what the provider apiErr in the middle of a stream, and
// leaves other errors as they are.
func streamError(err error) error {
	if e, ok := errors.AsType[*anthropic.Error](err); ok {
		return eventError([]byte(e.RawJSON()))
	}
	return err
}

// eventError classifies an error event in the middle of a stream.
func eventError(text []byte) *model.Error {
	apiErr := parseAPIError(text)
	e := &model.Error{Message: apiErr.message}
	e.Code, e.Retryable = classify(0, apiErr.kind)
	refineCode(e)
	return e
}

var (
	contextTooLong   = regexp.MustCompile(`(?i)prompt is too long|exceeds? (the )?context|context (limit|window)|too many tokens`)
	unsupportedShape = regexp.MustCompile(`(?i)output_config|output_format|structured output|tool_choice`)
)

// refineCode tells apart what the API calls invalid requests alike: a conversation that
// is too long, and a shape of the reply, which the runtime asks for, that the model
// cannot give.
func refineCode(e *model.Error) {
	switch {
	case e.Code != model.CodeInvalidRequest:
	case contextTooLong.MatchString(e.Message):
		e.Message = model.ContextTooLong(e.Message)
	case unsupportedShape.MatchString(e.Message):
		e.Code = model.CodeUnsupported
	}
}

// classify decides by the type of the error where it is known, else by the
// status, which is 0 in the middle of a stream.
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
