package httpapi

import (
	"net/http"
	"time"
)

// TimeWrites gives each write of an answer the timeout, also the last one after the handler has
// returned, so that a stalled client cannot hold a connection. A handler may take any time between
// writes.
func TimeWrites(next http.Handler, timeout time.Duration, now func() time.Time) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		timed := &timedWriter{w, http.NewResponseController(w), timeout, now}
		timed.clear() // the server's own deadline began with the header
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

func (w *timedWriter) Flush() { _ = w.FlushError() } // the next write returns the error

// FlushError is what http.ResponseController calls.
func (w *timedWriter) FlushError() error {
	w.set()
	defer w.clear()
	return w.control.Flush()
}

func (w *timedWriter) set() {
	_ = w.control.SetWriteDeadline(w.now().Add(w.timeout)) // if not supported, the connection's own deadline counts
}

// clear removes the deadline: over HTTP/2 it would end a quiet stream.
func (w *timedWriter) clear() { _ = w.control.SetWriteDeadline(time.Time{}) }

func (w *timedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
