package httptool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// Attempts at a repeatable request while the server is busy.
const (
	maxAttempts = 4
	firstPause  = 500 * time.Millisecond
	maxPause    = 15 * time.Second
)

// maxExcerpt limits how much of a failed response the model sees, in bytes.
const maxExcerpt = 2000

func (r *request) execute(ctx context.Context, call *agent.Call) (any, error) {
	for attempt := 1; ; attempt++ {
		value, wait, err := r.attempt(ctx, call, attempt)
		if wait == 0 {
			return value, err
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, err
		}
	}
}

// attempt sends the request once. A wait above 0 requests another attempt after it.
func (r *request) attempt(ctx context.Context, call *agent.Call, attempt int) (value any, wait time.Duration, err error) {
	var sent atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }})
	request, err := r.build(ctx, call)
	if err != nil {
		return nil, 0, err
	}
	response, err := r.client.Do(request)
	if err != nil {
		return nil, 0, r.requestError(err, sent.Load())
	}
	defer response.Body.Close()
	body, err := r.read(response)
	if err != nil {
		return nil, 0, err
	}
	if r.succeeded(response.StatusCode) {
		if r.later {
			return nil, 0, agent.Later
		}
		value, err := r.value(response, body)
		return value, 0, r.withPossibleEffect(err)
	}
	err = r.hide(fmt.Errorf("HTTP status %d %s%s", response.StatusCode, http.StatusText(response.StatusCode), excerpt(body)),
		fmt.Sprintf("The service answered with HTTP status %d.", response.StatusCode))
	busy := response.StatusCode == http.StatusTooManyRequests || response.StatusCode == http.StatusServiceUnavailable
	if !r.safe || !busy || attempt >= maxAttempts {
		return nil, 0, err
	}
	wait = r.pause(response.Header.Get("Retry-After"), attempt)
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait {
		return nil, 0, err // no time remains for it
	}
	return nil, wait, err
}

// requestError returns a client error without the URL, for URLs may hold secrets. For a sent request it adds a warning
// about a possible effect.
func (r *request) requestError(err error, sent bool) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	err = fmt.Errorf("the request failed: %w", err)
	if sent && r.hasEffect() {
		err = fmt.Errorf("%w; it is not known whether it took effect", err)
	}
	return r.hide(err, "The service could not be reached.") // err may name an internal address
}

// hide keeps an error of the service from users, unless ShowErrors is set. They see the sentence.
func (r *request) hide(err error, sentence string) error {
	if r.shown {
		return err
	}
	return agent.PublicError(err, sentence)
}

// withPossibleEffect adds to a problem with a successful response that the request may have had its effect.
func (r *request) withPossibleEffect(err error) error {
	if err == nil || !r.hasEffect() {
		return err
	}
	return fmt.Errorf("%w; the request itself has succeeded, and may have taken effect", err)
}

// hasEffect reports whether the request changes something.
func (r *request) hasEffect() bool {
	return r.method != http.MethodGet && r.method != http.MethodHead && r.method != http.MethodOptions
}

func (r *request) read(response *http.Response) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(response.Body, int64(r.maxBytes)+1))
	if err != nil {
		return nil, r.requestError(err, true)
	}
	if len(body) > r.maxBytes {
		if !r.succeeded(response.StatusCode) {
			return body[:r.maxBytes], nil // the error contains only an excerpt
		}
		return nil, r.withPossibleEffect(fmt.Errorf("the response has more than the %d bytes that are allowed; ask for less", r.maxBytes))
	}
	return body, nil
}

func (r *request) succeeded(status int) bool {
	text := strconv.Itoa(status)
	for _, s := range r.success {
		if s == text || strings.HasSuffix(s, "xx") && s[0] == text[0] {
			return true
		}
	}
	return false
}

// value returns the result of a success: nil for an empty body.
func (r *request) value(response *http.Response, body []byte) (any, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil, nil
	}
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")) // an invalid content type is not JSON
	isJSON := kind == "application/json" || strings.HasSuffix(kind, "+json")
	if r.result == ResultText || r.result == ResultAuto && !isJSON {
		return strings.ToValidUTF8(string(body), "\uFFFD"), nil
	}
	if !json.Valid(body) {
		return nil, r.hide(errors.New("the response is not JSON"+excerpt(body)), "The service answered with something other than JSON.")
	}
	return json.RawMessage(body), nil
}

func (r *request) pause(retryAfter string, attempt int) time.Duration {
	wait := firstPause << (attempt - 1)
	wait += time.Duration(r.jitter() * float64(wait) / 2)
	if seconds, err := strconv.Atoi(retryAfter); err == nil && seconds >= 0 {
		wait = max(wait, time.Duration(min(seconds, int(maxPause/time.Second)))*time.Second)
	} else if at, err := http.ParseTime(retryAfter); err == nil {
		wait = max(wait, time.Until(at))
	}
	return min(wait, maxPause)
}

// excerpt returns the beginning of a response after a colon.
func excerpt(body []byte) string {
	text := strings.TrimSpace(strings.ToValidUTF8(string(body[:min(len(body), maxExcerpt)]), ""))
	if text == "" {
		return ""
	}
	return ": " + text
}
