package httpapi

import (
	"net/http"
	"time"
)

// TimeWrites gives each write of the handler's answers the timeout, so that a
// client that stops reading does not hold a stream for ever.
func TimeWrites(next http.Handler, timeout time.Duration, now func() time.Time) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(&timedWriter{w, http.NewResponseController(w), timeout, now}, r)
	})
}

type timedWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	now     func() time.Time
}

func (w *timedWriter) Write(b []byte) (int, error) {
	defer w.clear()
	_ = w.control.SetWriteDeadline(w.now().Add(w.timeout)) // where it is not supported, the connection decides
	return w.ResponseWriter.Write(b)
}

func (w *timedWriter) Flush() {
	defer w.clear()
	_ = w.control.SetWriteDeadline(w.now().Add(w.timeout))
	_ = w.control.Flush() // the next write sees the failure
}

// clear takes the deadline away: over HTTP/2 it would end a stream that is quiet.
func (w *timedWriter) clear() { _ = w.control.SetWriteDeadline(time.Time{}) }

func (w *timedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
