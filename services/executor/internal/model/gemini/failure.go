package gemini

import (
	"cmp"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/providerhttp"
)

// apiError is what an error says: {"error":{"code","message","status","details"}}
// (google.rpc.Status).
type apiError struct {
	found   bool // an error in this form was there
	code    int  // the HTTP status
	status  string
	message string
	reason  string        // of an ErrorInfo among the details
	delay   time.Duration // of a RetryInfo among them
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
	// Without alt=sse, and from some proxies, errors come as a list of one.
	if trimmed := strings.TrimSpace(string(text)); strings.HasPrefix(trimmed, "[") && strings.HasSuffix(trimmed, "]") {
		body = []byte(trimmed[1 : len(trimmed)-1])
	}
	// A body in another form, a proxy's perhaps, is its own message.
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
	if res.StatusCode == http.StatusOK && !apiErr.found {
		e.Code, e.Retryable = model.CodeInvalidResponse, true
		return e
	}
	setCode(e, apiErr)
	providerhttp.ReadRetryHeaders(e, res.Header)
	e.RetryAfter = max(e.RetryAfter, apiErr.delay)
	return e
}

// streamError classifies an error in the middle of a stream.
func streamError(apiErr apiError) *model.Error {
	e := &model.Error{Message: apiErr.message, RetryAfter: apiErr.delay}
	setCode(e, apiErr)
	return e
}

var (
	contextTooLong = regexp.MustCompile(`(?i)token count|number of tokens|context (length|window)|too many tokens`)
	replyShape     = regexp.MustCompile(`(?i)(response.?(mime.?type|json.?schema|schema)|function calling|tool.?config|mode ANY)`)
	notSupported   = regexp.MustCompile(`(?i)support|not enabled|not allowed`)
)

// setCode gives an error its code, and tells apart what the API calls invalid alike.
func setCode(e *model.Error, apiErr apiError) {
	e.Code, e.Retryable = classify(cmp.Or(e.StatusCode, apiErr.code), apiErr)
	if e.Code != model.CodeInvalidRequest {
		return
	}
	switch {
	case contextTooLong.MatchString(apiErr.message):
		e.Message = model.ContextTooLong(e.Message)
	case replyShape.MatchString(apiErr.message) && notSupported.MatchString(apiErr.message):
		e.Code = model.CodeUnsupported
	}
}

// classify decides by the name of the status where it says more than the number.
func classify(status int, apiErr apiError) (code string, retryable bool) {
	if apiErr.reason == "API_KEY_INVALID" || apiErr.reason == "API_KEY_EXPIRED" {
		return model.CodeUnauthenticated, false // answered with 400
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
