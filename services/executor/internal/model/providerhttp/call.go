// Package providerhttp handles the HTTP connection of one call to a model provider: it detects idle connections
// and classifies failures.
package providerhttp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"time"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// maxErrorBody limits how much of an error body is read, in bytes.
const maxErrorBody = 64 << 10

var errIdle = errors.New("no data within the idle timeout")

// Call is the connection of one call. Idle time counts only while a reader waits for bytes, so a slow consumer
// is never mistaken for a silent server.
type Call struct {
	callerCtx context.Context //nolint:containedctx // a Call lives as long as its contexts
	callCtx   context.Context //nolint:containedctx // the same
	idle      time.Duration
	timer     *time.Timer
	classify  func(res *http.Response, text []byte) *model.Error
}

// NewCall starts a call under callCtx. The idle timer starts now and cancels callCtx when it expires. end
// releases the call. classify turns a response that is not an event stream into an error; it gets the response
// and the first maxErrorBody bytes of the body.
func NewCall(ctx context.Context, idle time.Duration, classify func(*http.Response, []byte) *model.Error) (callCtx context.Context, c *Call, end func()) {
	callCtx, cancel := context.WithCancelCause(ctx)
	c = &Call{
		callerCtx: ctx, callCtx: callCtx, idle: idle, classify: classify,
		timer: time.AfterFunc(idle, func() { cancel(errIdle) }),
	}
	return callCtx, c, func() {
		c.timer.Stop()
		cancel(nil)
	}
}

// Send is an SDK middleware. It returns event streams and turns every other response into an error. Status 200
// with a type other than JSON or HTML counts as an event stream.
func (c *Call) Send(req *http.Request, next func(*http.Request) (*http.Response, error)) (*http.Response, error) {
	res, err := next(req)
	c.timer.Stop()
	if err != nil {
		return nil, connectionError(err)
	}
	media, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if res.StatusCode == http.StatusOK && media != "application/json" && media != "text/html" {
		res.Body = &body{ReadCloser: res.Body, call: c}
		return res, nil
	}
	defer res.Body.Close()
	c.timer.Reset(c.idle)
	// The status suffices when the body breaks off.
	text, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBody))
	return nil, c.classify(res, text)
}

type body struct {
	io.ReadCloser
	call *Call
}

func (b *body) Read(p []byte) (int, error) {
	b.call.timer.Reset(b.call.idle)
	n, err := b.ReadCloser.Read(p)
	b.call.timer.Stop()
	if err != nil && !errors.Is(err, io.EOF) {
		err = connectionError(err)
	}
	return n, err
}

// Error returns the error of a call that the SDK ended with err: the caller's context error if its context has
// ended, otherwise a *model.Error.
func (c *Call) Error(err error) error {
	if c.callerCtx.Err() != nil {
		return c.callerCtx.Err()
	}
	if errors.Is(context.Cause(c.callCtx), errIdle) {
		return &model.Error{
			Code: model.CodeTimeout, Retryable: true, Err: err,
			Message: fmt.Sprintf("the provider sent no data for %v", c.idle),
		}
	}
	if e, ok := errors.AsType[*model.Error](err); ok {
		return e
	}
	// Connection failures are classified above, so the SDK could not decode the response.
	return &model.Error{Code: model.CodeInvalidResponse, Retryable: true, Message: err.Error(), Err: err}
}

// IsConnectionFailure reports whether err comes from the connection, not from a response.
func IsConnectionFailure(err error) bool {
	e, ok := errors.AsType[*model.Error](err)
	return ok && e.StatusCode == 0
}

func connectionError(err error) *model.Error {
	e := &model.Error{Code: model.CodeUnavailable, Retryable: true, Message: err.Error(), Err: err}
	if t, ok := errors.AsType[net.Error](err); ok && t.Timeout() {
		e.Code = model.CodeTimeout
	}
	return e
}
