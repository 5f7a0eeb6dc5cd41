package gemini

import (
	"cmp"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/model/providerhttp"
)

// apiError is a google.rpc.Status: {"error":{"code","message","status","details"}}.
type apiError struct {
	found   bool // the body has this form
	code    int  // HTTP status
	status  string
	message string
	reason  string        // from the ErrorInfo of the details
	delay   time.Duration // from the RetryInfo of the details
}

func parseAPIError(text []byte) apiError {
	var envelope struct {
		Error *struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
			Status  string `json:"status"`
			Details []struct {
				Reason     string `json:"reason"`
				RetryDelay string `json:"retryDelay"`
			} `json:"details"`
		} `json:"error"`
	}
	body := text
	// Without alt=sse, and from some proxies, the error is the only element of a list.
	if trimmed := strings.TrimSpace(string(text)); strings.HasPrefix(trimmed, "[") && strings.HasSuffix(trimmed, "]") {
		body = []byte(trimmed[1 : len(trimmed)-1])
	}
	// Any other body, perhaps from a proxy, is its own message.
	if json.Unmarshal(body, &envelope) != nil || envelope.Error == nil {
		return apiError{message: strings.TrimSpace(string(text))}
	}
	e := envelope.Error
	apiErr := apiError{found: true, code: e.Code, status: e.Status, message: cmp.Or(e.Message, e.Status, string(text))}
	for _, d := range e.Details {
		apiErr.reason = cmp.Or(apiErr.reason, d.Reason)
		if delay, err := time.ParseDuration(d.RetryDelay); err == nil && delay > 0 {
			apiErr.delay = delay
		}
	}
	return apiErr
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
	if res.StatusCode == http.StatusOK && !apiErr.found {
		e.Code = model.CodeInvalidResponse
		e.Retryable = true
		return e
	}
	setCode(e, apiErr)
	providerhttp.ReadRetryHeaders(e, res.Header)
	e.RetryAfter = max(e.RetryAfter, apiErr.delay)
	return e
}

// unparsedError classifies text in the stream that belongs to no event: an error in plain JSON, or a page.
func unparsedError(text []byte) *model.Error {
	if apiErr := parseAPIError(text); apiErr.found {
		return streamError(apiErr)
	}
	return model.InvalidResponse("the response is not an event stream: %.200s", text)
}

// streamError classifies an error in the middle of a stream.
func streamError(apiErr apiError) *model.Error {
	e := &model.Error{Message: apiErr.message, RetryAfter: apiErr.delay}
	setCode(e, apiErr)
	return e
}

var (
	replyShape   = regexp.MustCompile(`(?i)(response.?(mime.?type|json.?schema|schema)|function calling|tool.?config|mode ANY)`)
	notSupported = regexp.MustCompile(`(?i)support|not enabled|not allowed`)
)

// setCode classifies an error. An unsupported feature gets provider_unsupported, other invalid requests a refusal.
func setCode(e *model.Error, apiErr apiError) {
	e.Code, e.Retryable = classify(cmp.Or(e.StatusCode, apiErr.code), apiErr)
	if e.Code == model.CodeInvalidRequest && replyShape.MatchString(apiErr.message) && notSupported.MatchString(apiErr.message) {
		e.Code = model.CodeUnsupported
	}
	model.SetRefusal(e, "", apiErr.reason)
}

// classify prefers the status name where it is more precise than the HTTP status.
func classify(status int, apiErr apiError) (code string, retryable bool) {
	if apiErr.reason == "API_KEY_INVALID" || apiErr.reason == "API_KEY_EXPIRED" {
		return model.CodeUnauthenticated, false // sent with HTTP 400
	}
	switch {
	case status == http.StatusUnauthorized, apiErr.status == "UNAUTHENTICATED":
		return model.CodeUnauthenticated, false
	case status == http.StatusForbidden, apiErr.status == "PERMISSION_DENIED":
		return model.CodeDenied, false
	case status == http.StatusNotFound, apiErr.status == "NOT_FOUND":
		return model.CodeNotFound, false
	case status == http.StatusTooManyRequests, apiErr.status == "RESOURCE_EXHAUSTED":
		return model.CodeRateLimited, true
	case status == http.StatusServiceUnavailable, status == 529, apiErr.status == "UNAVAILABLE":
		return model.CodeOverloaded, true
	case status == http.StatusGatewayTimeout && apiErr.found, apiErr.status == "DEADLINE_EXCEEDED":
		return model.CodeTimeout, true
	case status == http.StatusRequestTimeout, status == http.StatusConflict, status == 499, status >= 500:
		return model.CodeUnavailable, true
	case status >= 400:
		return model.CodeInvalidRequest, false
	}
	return model.CodeUnavailable, true
}
