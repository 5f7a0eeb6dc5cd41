// Package telemetry sets up a process's observability: log lines on a writer, spans and metrics to an
// OpenTelemetry collector, and metrics to Prometheus on a listener of their own.
//
// A trace must survive work that waits in a database. Traceparent turns the trace of a context into two short
// texts to store, and WithTraceparent resumes it in another process or after days.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
)

// shutdownLimit bounds the export of the last spans, so an absent collector does not delay the end of a process.
const shutdownLimit = 5 * time.Second

// measuresLimit bounds the export of the last metrics.
const measuresLimit = time.Second

// Config configures the telemetry of one process.
type Config struct {
	ServiceName string // in spans, for example "holdfast-state"
	Endpoint    string `env:"OTEL_EXPORTER_OTLP_ENDPOINT" doc:"URL of an OpenTelemetry collector's gRPC port, such as http://localhost:4317; with the protocol http/protobuf the URL before /v1/traces, such as http://localhost:4318; empty sends no spans and no measurements"`
	Protocol    string `env:"OTEL_EXPORTER_OTLP_PROTOCOL" envDefault:"grpc" doc:"grpc or http/protobuf"`
	Headers     string `env:"OTEL_EXPORTER_OTLP_HEADERS" secret:"true" doc:"headers for the collector, NAME=VALUE with commas between and values percent-encoded, such as Authorization=Basic%20a2V5"`
	Measures    string `env:"OTEL_METRICS_EXPORTER" envDefault:"otlp" doc:"otlp, or none for a collector that takes spans alone"`
	Listen      string `env:"HOLDFAST_METRICS_LISTEN" doc:"address to serve Prometheus metrics on, such as 127.0.0.1:9464, at /metrics; empty serves none. It needs no credential: keep it private"`
	LogLevel    string `env:"HOLDFAST_LOG_LEVEL" envDefault:"info" doc:"debug, info, warn or error"`
	LogFormat   string `env:"HOLDFAST_LOG_FORMAT" envDefault:"text" doc:"text or json"`
}

// Telemetry is the telemetry of one process.
type Telemetry struct {
	Log       *slog.Logger
	stopSpans func(context.Context) error // flushes and ends spans
	metrics   *Metrics
	server    *metricsServer // nil without Config.Listen
}

// Meter returns the meter of a part of the process, for example "holdfast.state". Without an endpoint and a
// listener, its measurements are dropped at no cost.
func (t *Telemetry) Meter(name string) metric.Meter { return t.metrics.Meter(name) }

// MetricsAddress returns the address that serves /metrics, or "" if none does.
func (t *Telemetry) MetricsAddress() string { return t.server.address() }

// Setup sets the process's global tracer and meter providers, propagators (W3C trace context and baggage) and
// OpenTelemetry error handler. Call it once, early. Log lines go to w; spans go to the endpoint and to each
// extra processor. Without both, the tracer provider is the no-op one of go.opentelemetry.io/otel/trace/noop, so
// other packages can skip the cost of spans: a caller's trace passes through, and none begins here. The
// OpenTelemetry SDK reads further OTEL_* variables (headers, certificates, sampling).
//
// With Config.Listen, a server of its own answers GET /metrics there until Shutdown.
//
// An error names the variable to change. Setup does not wait for the endpoint.
func Setup(ctx context.Context, c Config, w io.Writer, extra ...sdktrace.SpanProcessor) (*Telemetry, error) {
	log, err := NewLogger(w, c.LogLevel, c.LogFormat)
	if err != nil {
		return nil, err
	}
	provider, stopSpans, err := newProvider(ctx, c, extra)
	if err != nil {
		return nil, err
	}
	metrics, err := NewMetrics(ctx, c)
	if err != nil {
		return nil, errors.Join(err, stopSpans(ctx))
	}
	server, err := serveMetrics(ctx, c.Listen, metrics.Handler(), log)
	if err != nil {
		return nil, errors.Join(err, metrics.Shutdown(ctx), stopSpans(ctx))
	}
	otel.SetTracerProvider(provider)
	otel.SetMeterProvider(metrics.provider)
	otel.SetTextMapPropagator(propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("telemetry failed", "error", err) }))
	return &Telemetry{Log: log, stopSpans: stopSpans, metrics: metrics, server: server}, nil
}

func describe(c Config) (*resource.Resource, error) {
	named, err := resource.Merge(resource.Default(), resource.NewSchemaless(attribute.String("service.name", c.ServiceName)))
	if err != nil {
		return nil, fmt.Errorf("describe the process to telemetry: %w", err)
	}
	return named, nil
}

func newProvider(ctx context.Context, c Config, extra []sdktrace.SpanProcessor) (trace.TracerProvider, func(context.Context) error, error) {
	if c.Endpoint == "" && len(extra) == 0 {
		return tracenoop.NewTracerProvider(), func(context.Context) error { return nil }, nil
	}
	named, err := describe(c)
	if err != nil {
		return nil, nil, err
	}
	options := []sdktrace.TracerProviderOption{sdktrace.WithResource(named)}
	for _, processor := range extra {
		options = append(options, sdktrace.WithSpanProcessor(processor))
	}
	if c.Endpoint != "" {
		exporter, err := newExporter(ctx, c)
		if err != nil {
			return nil, nil, err
		}
		options = append(options, sdktrace.WithBatcher(exporter))
	}
	provider := sdktrace.NewTracerProvider(options...)
	return provider, provider.Shutdown, nil
}

// The protocols.
const (
	protocolGRPC = "grpc"
	protocolHTTP = "http/protobuf"
)

func newExporter(ctx context.Context, c Config) (exporter sdktrace.SpanExporter, err error) {
	to, err := c.collector("v1/traces")
	if err != nil {
		return nil, err
	}
	if to.http {
		exporter, err = otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(to.url), otlptracehttp.WithHeaders(to.headers))
	} else {
		exporter, err = otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(to.url), otlptracegrpc.WithHeaders(to.headers))
	}
	if err != nil {
		return nil, fmt.Errorf("export spans to %s: %w", c.Endpoint, err)
	}
	return exporter, nil
}

// collector is where an exporter sends to.
type collector struct {
	url     string
	http    bool
	headers map[string]string
}

// collector returns the collector of a signal, whose path is for HTTP. The exporters report an invalid URL only to a global
// handler and continue with a default.
func (c Config) collector(path string) (collector, error) {
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return collector{}, fmt.Errorf("OTEL_EXPORTER_OTLP_ENDPOINT is %q: it must be a URL such as http://localhost:4317", c.Endpoint)
	}
	to := collector{url: c.Endpoint, http: c.Protocol == protocolHTTP, headers: map[string]string{}}
	if !to.http && c.Protocol != protocolGRPC && c.Protocol != "" {
		return collector{}, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL is %q: it must be %s or %s", c.Protocol, protocolGRPC, protocolHTTP)
	}
	if to.http {
		to.url = u.JoinPath(path).String()
	}
	for pair := range strings.SplitSeq(c.Headers, ",") {
		name, value, found := strings.Cut(strings.TrimSpace(pair), "=")
		if name == "" && !found {
			continue
		}
		decoded, err := url.PathUnescape(value)
		if err != nil || name == "" || !found {
			return collector{}, errors.New("OTEL_EXPORTER_OTLP_HEADERS must be NAME=VALUE with commas between, and values percent-encoded")
		}
		to.headers[name] = decoded
	}
	return to, nil
}

// Shutdown exports the remaining data and ends the telemetry. It takes at most five seconds, also if ctx has
// ended, as is usual at shutdown.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownLimit)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { t.stopMetrics(ctx) })
	err := t.stopSpans(ctx)
	wg.Wait()
	if err != nil {
		return fmt.Errorf("send the last spans: %w", err)
	}
	return nil
}

// stopMetrics tries once to export the last metrics. A failure does not matter at the end of a process.
func (t *Telemetry) stopMetrics(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, measuresLimit)
	defer cancel()
	t.server.close()
	if err := t.metrics.Shutdown(ctx); err != nil {
		t.Log.WarnContext(ctx, "the last measurements were not sent", "error", err)
	}
}

const (
	traceparentKey = "traceparent"
	tracestateKey  = "tracestate"
)

// Traceparent returns the W3C trace context of ctx's span, or "" and "". (https://www.w3.org/TR/trace-context/)
func Traceparent(ctx context.Context) (traceparent, tracestate string) {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[traceparentKey], carrier[tracestateKey]
}

// WithTraceparent returns a context whose new spans belong to the trace from Traceparent. An invalid traceparent
// leaves ctx unchanged; an invalid tracestate is dropped.
func WithTraceparent(ctx context.Context, traceparent, tracestate string) context.Context {
	carrier := propagation.MapCarrier{traceparentKey: traceparent, tracestateKey: tracestate}
	return propagation.TraceContext{}.Extract(ctx, carrier)
}
