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

// complaint is what an error body says: {"type":"error","error":{"type","message"}}.
type complaint struct{ kind, message string }

func readComplaint(text []byte) complaint {
	var envelope struct {
		Error struct {
			Type    string `json:"type"`
			Message string `json:"message"`
		} `json:"error"`
	}
	// A body in another form, a proxy's perhaps, is its own message.
	_ = json.Unmarshal(text, &envelope)
	return complaint{
		kind:    envelope.Error.Type,
		message: cmp.Or(envelope.Error.Message, strings.TrimSpace(string(text))),
	}
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
	e.Code, e.Retryable = classify(res.StatusCode, said.kind)
	specify(e)
	providerhttp.ReadRetryHeaders(e, res.Header)
	return e
}

// spoken makes an error of what the provider said in the middle of a stream, and
// leaves other errors as they are.
func spoken(err error) error {
	if e, ok := errors.AsType[*anthropic.Error](err); ok {
		return interruption([]byte(e.RawJSON()))
	}
	return err
}

// interruption classifies an error event in the middle of a stream.
func interruption(text []byte) *model.Error {
	said := readComplaint(text)
	e := &model.Error{Message: said.message}
	e.Code, e.Retryable = classify(0, said.kind)
	specify(e)
	return e
}

var (
	tooLong = regexp.MustCompile(`(?i)prompt is too long|exceeds? (the )?context|context (limit|window)|too many tokens`)
	ofShape = regexp.MustCompile(`(?i)output_config|output_format|structured output|tool_choice`)
)

// specify tells apart what the API calls invalid requests alike: a conversation that
// is too long, and a shape of the reply, which the runtime asks for, that the model
// cannot give.
func specify(e *model.Error) {
	switch {
	case e.Code != model.CodeInvalidRequest:
	case tooLong.MatchString(e.Message):
		e.Message = model.TooLong(e.Message)
	case ofShape.MatchString(e.Message):
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
