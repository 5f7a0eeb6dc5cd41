package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"time"

	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// maxRefusal is how much of an answer that is not a stream is read.
const maxRefusal = 64 << 10

var errIdle = errors.New("no byte came in time")

// line is the connection of one call: it watches for silence and classifies
// what fails on the way. Silence is counted only while someone waits for bytes,
// so a slow consumer is never taken for a silent server.
type line struct {
	idle  time.Duration
	timer *time.Timer
}

// dial begins a call under the context that it gives, whose cause is errIdle
// after too long a silence. The first silence begins now; hangUp ends the call.
func dial(ctx context.Context, idle time.Duration) (calling context.Context, l *line, hangUp func()) {
	calling, cancel := context.WithCancelCause(ctx)
	l = &line{idle: idle, timer: time.AfterFunc(idle, func() { cancel(errIdle) })}
	return calling, l, func() {
		l.timer.Stop()
		cancel(nil)
	}
}

// send is the SDK's middleware: only event streams get through it.
func (l *line) send(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	res, err := next(req)
	l.timer.Stop()
	if err != nil {
		return nil, unreachable(err)
	}
	media, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if res.StatusCode == http.StatusOK && media != "application/json" && media != "text/html" {
		res.Body = &body{ReadCloser: res.Body, line: l}
		return res, nil
	}
	defer res.Body.Close()
	l.timer.Reset(l.idle)
	// A refusal that breaks off says enough with its status.
	text, _ := io.ReadAll(io.LimitReader(res.Body, maxRefusal))
	return nil, refusal(res, text)
}

// body is a response body whose silence is measured.
type body struct {
	io.ReadCloser
	line *line
}

func (b *body) Read(p []byte) (int, error) {
	b.line.timer.Reset(b.line.idle)
	n, err := b.ReadCloser.Read(p)
	b.line.timer.Stop()
	if err != nil && err != io.EOF {
		err = unreachable(err)
	}
	return n, err
}

// failure is what a call ends with when the SDK gave err: ctx is the caller's,
// calling what dial made of it.
func (l *line) failure(ctx, calling context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if context.Cause(calling) == errIdle {
		return &model.Error{
			Code: model.CodeTimeout, Retryable: true, Err: err,
			Message: fmt.Sprintf("the provider gave no byte for %v", l.idle),
		}
	}
	if e, ok := errors.AsType[*model.Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*ssestream.StreamError](err); ok {
		return interruption(e.Event.Data)
	}
	// Failures of the connection are classified above; what is left is what
	// the SDK could not read.
	return &model.Error{Code: model.CodeInvalidResponse, Retryable: true, Message: err.Error(), Err: err}
}

// broken says whether err is the connection's, not something that was said on it.
func broken(err error) bool {
	e, ok := errors.AsType[*model.Error](err)
	return ok && e.StatusCode == 0
}

// unreachable classifies a failure of the connection.
func unreachable(err error) *model.Error {
	e := &model.Error{Code: model.CodeUnavailable, Retryable: true, Message: err.Error(), Err: err}
	if t, ok := errors.AsType[net.Error](err); ok && t.Timeout() {
		e.Code = model.CodeTimeout
	}
	return e
}
