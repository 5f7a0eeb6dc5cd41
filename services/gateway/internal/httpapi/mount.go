package httpapi

import (
	"net/http"
	"time"
)

// TimeWrites gives each write of the handler's answers the timeout, and what is
// left to write when the handler has returned, so that a client that stops reading
// does not hold a connection for ever. How long the handler may take between two
// writes is its own affair.
func TimeWrites(next http.Handler, timeout time.Duration, now func() time.Time) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		timed := &timedWriter{w, http.NewResponseController(w), timeout, now}
		timed.clear() // the server's own deadline has run since the header came
		defer timed.set()
		next.ServeHTTP(timed, r)
	})
}

type timedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	now     func() time.Time
}

func (w *timedWriter) Write(b []byte) (int, error) {
	w.set()
	defer w.clear()
	return w.ResponseWriter.Write(b)
}

func (w *timedWriter) Flush() { _ = w.FlushError() } // the next write sees the failure

// FlushError is what http.ResponseController calls.
func (w *timedWriter) FlushError() error {
	w.set()
	defer w.clear()
	return w.control.Flush()
}

func (w *timedWriter) set() {
	_ = w.control.SetWriteDeadline(w.now().Add(w.timeout)) // where it is not supported, the connection decides
}

// clear takes the deadline away: over HTTP/2 it would end a stream that is quiet.
func (w *timedWriter) clear() { _ = w.control.SetWriteDeadline(time.Time{}) }

func (w *timedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
