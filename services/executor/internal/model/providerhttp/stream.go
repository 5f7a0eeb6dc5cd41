package providerhttp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

const (
	// maxErrorBody limits how much of an error body is read, in bytes.
	maxErrorBody = 64 << 10
	// keepAlives is how many idle timeouts may pass without an event while bytes arrive.
	keepAlives = 3
)

var (
	errIdle    = errors.New("no data within the idle timeout")
	errNoEvent = errors.New("no event within the limit for keep-alives")
)

// Request is one call.
type Request struct {
	// Client sends the request; it should follow no redirects.
	Client *http.Client
	// URL, Header and Body are the request, a POST of JSON.
	URL    string
	Header http.Header
	Body   []byte
	// Idle ends the call after this long without a byte. Above 0.
	Idle time.Duration
	// Classify turns a response other than an event stream into an error. It gets the response and the first maxErrorBody bytes of
	// the body.
	Classify func(res *http.Response, text []byte) *model.Error
}

// Stream is the reply to a Request. One goroutine may use it.
type Stream struct {
	callerCtx context.Context //nolint:containedctx // a Stream lives as long as its contexts
	callCtx   context.Context //nolint:containedctx // the same
	cancel    context.CancelCauseFunc
	idle      time.Duration
	timer     *time.Timer
	quiet     atomic.Bool   // the timer is for the limit of keep-alives; expire may run beside a Read
	waited    time.Duration // for bytes since the last event
	body      io.ReadCloser
	events    *eventReader
	err       error
}

// Open sends a request. Its error is the error of ctx or a *model.Error. Close releases the stream.
func Open(ctx context.Context, r Request) (*Stream, error) {
	s := &Stream{callerCtx: ctx, idle: r.Idle}
	s.callCtx, s.cancel = context.WithCancelCause(ctx)
	s.timer = time.AfterFunc(r.Idle, s.expire)
	if err := s.open(r); err != nil {
		err = s.classify(err)
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Stream) expire() {
	if s.quiet.Load() {
		s.cancel(errNoEvent)
		return
	}
	s.cancel(errIdle)
}

func (s *Stream) open(r Request) error {
	req, err := http.NewRequestWithContext(s.callCtx, http.MethodPost, r.URL, bytes.NewReader(r.Body))
	if err != nil {
		return model.InvalidRequest("the address of the request is invalid: %v", err)
	}
	for name, values := range r.Header {
		req.Header[name] = values
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	res, err := r.Client.Do(req)
	s.timer.Stop()
	if err != nil {
		return connectionError(err)
	}
	s.body = res.Body
	// Status 200 with a type other than JSON or HTML counts as an event stream.
	media, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if res.StatusCode == http.StatusOK && media != "application/json" && media != "text/html" {
		s.events = &eventReader{in: bufio.NewReaderSize(s, 4<<10)}
		return nil
	}
	s.timer.Reset(s.idle)
	// The status suffices when the body breaks off.
	text, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBody))
	return r.Classify(res, text)
}

// Read reads the body for the event reader, within the time limits.
func (s *Stream) Read(p []byte) (int, error) {
	left := keepAlives*s.idle - s.waited
	s.quiet.Store(left < s.idle)
	began := time.Now()
	s.timer.Reset(max(0, min(left, s.idle)))
	n, err := s.body.Read(p)
	s.timer.Stop()
	s.waited += time.Since(began)
	if err != nil && !errors.Is(err, io.EOF) {
		err = connectionError(err)
	}
	return n, err
}

// Next reads the next event with data. It returns false at the end of the stream: see Err.
func (s *Stream) Next() bool {
	if s.err != nil {
		return false
	}
	if !s.events.next() {
		s.err = s.events.err
		return false
	}
	if s.events.name != "ping" {
		s.waited = 0
	}
	return true
}

// Event returns the name of the current event, empty for none, and its data, which is valid until Next.
func (s *Stream) Event() (name string, data []byte) { return s.events.name, s.events.data }

// Err returns why the stream ended: nil for a regular end, else the error of the caller's context or a *model.Error.
func (s *Stream) Err() error {
	if s.err == nil {
		return nil
	}
	return s.classify(s.err)
}

// Failure returns err, or why the call was ended: a cancelled call may end its body without an error.
func (s *Stream) Failure(err error) error { return s.classify(err) }

// Unparsed returns the text outside of events, up to a limit. It may be an error in plain JSON.
func (s *Stream) Unparsed() []byte { return s.events.unparsed }

// Close releases the call.
func (s *Stream) Close() {
	s.timer.Stop()
	s.cancel(nil)
	if s.body != nil {
		_ = s.body.Close()
	}
}

// classify returns the error of a call that ended with err.
func (s *Stream) classify(err error) error {
	if s.callerCtx.Err() != nil {
		return s.callerCtx.Err()
	}
	switch cause := context.Cause(s.callCtx); {
	case errors.Is(cause, errIdle):
		return timeoutError(err, fmt.Sprintf("the provider sent no data for %v", s.idle))
	case errors.Is(cause, errNoEvent):
		return timeoutError(err, fmt.Sprintf("the provider kept the call alive for %v without an event", keepAlives*s.idle))
	}
	if e, ok := errors.AsType[*model.Error](err); ok {
		return e
	}
	return &model.Error{Code: model.CodeInvalidResponse, Retryable: true, Message: err.Error(), Err: err}
}

func timeoutError(err error, message string) *model.Error {
	return &model.Error{Code: model.CodeTimeout, Retryable: true, Err: err, Message: message}
}

// IsConnectionFailure reports whether err comes from the connection, not from a response.
func IsConnectionFailure(err error) bool {
	e, ok := errors.AsType[*model.Error](err)
	return ok && e.StatusCode == 0 && e.Err != nil
}

func connectionError(err error) *model.Error {
	e := &model.Error{Code: model.CodeUnavailable, Retryable: true, Message: err.Error(), Err: err}
	if t, ok := errors.AsType[net.Error](err); ok && t.Timeout() {
		e.Code = model.CodeTimeout
	}
	return e
}
