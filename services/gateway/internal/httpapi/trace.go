package httpapi

import (
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

const tracerName = "github.com/holdfast-run/holdfast/services/gateway"

// traced gives each request a span in the caller's trace and a line in the access log, and turns a
// panic into INTERNAL. Mounted handlers make their own spans.
func (s *Server) traced(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.mounted(r.URL.Path) {
			next.ServeHTTP(w, r)
			return
		}
		ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		ctx, span := otel.Tracer(tracerName).Start(ctx, r.Method, trace.WithSpanKind(trace.SpanKindServer),
			trace.WithAttributes(attribute.String("http.request.method", r.Method), attribute.String("url.path", tracedPath(r.URL.Path))))
		r = r.WithContext(ctx)
		recorded := &recorder{ResponseWriter: w}
		began := s.Now()
		defer func() { s.finish(recorded, r, span, began, recover()) }()
		next.ServeHTTP(recorded, r)
	})
}

// tracedPath returns the path without a secret in it.
func tracedPath(path string) string {
	if strings.HasPrefix(path, CallbackPath) {
		return CallbackPath + "{token}"
	}
	return path
}

func (s *Server) mounted(path string) bool {
	for prefix := range s.Mounts {
		if strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}

// finish ends the span. p is the value of a panic, nil for none.
func (s *Server) finish(w *recorder, r *http.Request, span trace.Span, began time.Time, p any) {
	defer span.End()
	cut := p == http.ErrAbortHandler //nolint:errorlint // net/http compares the value in the same way
	if p != nil && !cut {
		s.Log.ErrorContext(r.Context(), "request panicked", "route", r.Pattern, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		if w.status == 0 {
			WriteError(w, fmt.Errorf("panic"))
		} else {
			cut = true
		}
	}
	status := max(w.status, http.StatusOK)
	span.SetName(r.Method + " " + r.Pattern)
	span.SetAttributes(attribute.String("http.route", r.Pattern), attribute.Int("http.response.status_code", status))
	if status >= http.StatusInternalServerError {
		span.SetStatus(codes.Error, http.StatusText(status))
	}
	took := s.Now().Sub(began)
	s.Meters.answered(r, status, took)
	s.Log.DebugContext(r.Context(), "request", "method", r.Method, "route", r.Pattern, "status", status, "duration", took, "cut", cut)
	if cut {
		panic(http.ErrAbortHandler)
	}
}

// recorder records the status of an answer.
type recorder struct {
	http.ResponseWriter
	status int
}

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }
