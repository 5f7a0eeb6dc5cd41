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

// complaint is what an error says: {"error":{"code","message","status","details"}}
// (google.rpc.Status).
type complaint struct {
	there   bool // an error in this form was there
	code    int  // the HTTP status
	status  string
	message string
	reason  string        // of an ErrorInfo among the details
	delay   time.Duration // of a RetryInfo among them
}

func readComplaint(text []byte) complaint {
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
		return complaint{message: strings.TrimSpace(string(text))}
	}
	e := envelope.Error
	said := complaint{there: true, code: e.Code, status: e.Status, message: cmp.Or(e.Message, e.Status, string(text))}
	for _, d := range e.Details {
		said.reason = cmp.Or(said.reason, d.Reason)
		if delay, err := time.ParseDuration(d.RetryDelay); err == nil && delay > 0 {
			said.delay = delay
		}
	}
	return said
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
	if res.StatusCode == http.StatusOK && !said.there {
		e.Code, e.Retryable = model.CodeInvalidResponse, true
		return e
	}
	fill(e, said)
	providerhttp.ReadRetryHeaders(e, res.Header)
	e.RetryAfter = max(e.RetryAfter, said.delay)
	return e
}

// interruption classifies an error in the middle of a stream.
func interruption(said complaint) *model.Error {
	e := &model.Error{Message: said.message, RetryAfter: said.delay}
	fill(e, said)
	return e
}

var (
	tooLong     = regexp.MustCompile(`(?i)token count|number of tokens|context (length|window)|too many tokens`)
	unsupported = regexp.MustCompile(`(?i)(response.?(mime.?type|json.?schema|schema)|function calling|tool.?config|mode ANY)`)
	refuses     = regexp.MustCompile(`(?i)support|not enabled|not allowed`)
)

// fill gives an error its code, and tells apart what the API calls invalid alike.
func fill(e *model.Error, said complaint) {
	e.Code, e.Retryable = classify(cmp.Or(e.StatusCode, said.code), said)
	if e.Code != model.CodeInvalidRequest {
		return
	}
	switch {
	case tooLong.MatchString(said.message):
		e.Message = model.TooLong(e.Message)
	case unsupported.MatchString(said.message) && refuses.MatchString(said.message):
		e.Code = model.CodeUnsupported
	}
}

// classify decides by the name of the status where it says more than the number.
func classify(status int, said complaint) (code string, retryable bool) {
	if said.reason == "API_KEY_INVALID" || said.reason == "API_KEY_EXPIRED" {
		return model.CodeUnauthenticated, false // answered with 400
	}
	switch {
	case status == http.StatusUnauthorized, said.status == "UNAUTHENTICATED":
		return model.CodeUnauthenticated, false
	case status == http.StatusForbidden, said.status == "PERMISSION_DENIED":
		return model.CodeDenied, false
	case status == http.StatusNotFound, said.status == "NOT_FOUND":
		return model.CodeNotFound, false
	case status == http.StatusTooManyRequests, said.status == "RESOURCE_EXHAUSTED":
		return model.CodeRateLimited, true
	case status == http.StatusServiceUnavailable, status == 529, said.status == "UNAVAILABLE":
		return model.CodeOverloaded, true
	case status == http.StatusGatewayTimeout && said.there, said.status == "DEADLINE_EXCEEDED":
		return model.CodeTimeout, true
	case status == http.StatusRequestTimeout, status == http.StatusConflict, status == 499, status >= 500:
		return model.CodeUnavailable, true
	case status >= 400:
		return model.CodeInvalidRequest, false
	}
	return model.CodeUnavailable, true
}
