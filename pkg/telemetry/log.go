package telemetry

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
)

// NewLogger returns a logger that writes lines to w in the format "text" or "json", from the level "debug",
// "info", "warn" or "error". Lines within a span carry its trace_id and span_id. For another level or format,
// the error names the variable to change.
func NewLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	var from slog.Level
	if err := from.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("HOLDFAST_LOG_LEVEL is %q: it must be debug, info, warn or error", level)
	}
	options := &slog.HandlerOptions{Level: from}
	switch format {
	case "text":
		return slog.New(traced{slog.NewTextHandler(w, options)}), nil
	case "json":
		return slog.New(traced{slog.NewJSONHandler(w, options)}), nil
	default:
		return nil, fmt.Errorf("HOLDFAST_LOG_FORMAT is %q: it must be text or json", format)
	}
}

// traced adds the ids of the context's span to each record.
type traced struct{ slog.Handler }

func (t traced) Handle(ctx context.Context, r slog.Record) error {
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		r = r.Clone() // another handler may share the record
		r.AddAttrs(slog.String("trace_id", span.TraceID().String()), slog.String("span_id", span.SpanID().String()))
	}
	return t.Handler.Handle(ctx, r)
}

func (t traced) WithAttrs(attrs []slog.Attr) slog.Handler { return traced{t.Handler.WithAttrs(attrs)} }
func (t traced) WithGroup(name string) slog.Handler       { return traced{t.Handler.WithGroup(name)} }
