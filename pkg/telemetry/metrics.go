package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
)

// Limits of the server of /metrics.
const (
	scrapeTimeout     = 10 * time.Second // Prometheus gives up after as long by default
	scrapeIdle        = 2 * time.Minute  // longer than the usual interval between scrapes
	scrapesAtOnce     = 2                // a second one, for a replica of Prometheus
	scrapeHeaderBytes = 8 << 10
)

// Metrics are the instruments of a process, and the ways in which their measurements leave it.
type Metrics struct {
	provider metric.MeterProvider
	handler  http.Handler                // nil without Config.Listen
	shutdown func(context.Context) error // nil if nothing is measured
}

// NewMetrics returns metrics exported to c.Endpoint every minute, or every OTEL_METRIC_EXPORT_INTERVAL,
// and that Handler serves if c.Listen is not empty. Without both, nothing is measured. It does not listen.
// Setup calls it; a test calls it to read the metrics of one service.
func NewMetrics(ctx context.Context, c Config) (*Metrics, error) {
	if c.Measures == "none" {
		c.Endpoint = ""
	}
	if c.Endpoint == "" && c.Listen == "" {
		return &Metrics{provider: noop.NewMeterProvider()}, nil
	}
	named, err := describe(c)
	if err != nil {
		return nil, err
	}
	m, options := &Metrics{}, []sdkmetric.Option{sdkmetric.WithResource(named)}
	if c.Listen != "" {
		// A registry of its own keeps the metrics of libraries out, and those of other tests.
		registry := prometheus.NewRegistry()
		exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo())
		if err != nil {
			return nil, fmt.Errorf("export measurements to Prometheus: %w", err)
		}
		options = append(options, sdkmetric.WithReader(exporter))
		m.handler = promhttp.HandlerFor(registry, promhttp.HandlerOpts{
			MaxRequestsInFlight: scrapesAtOnce, Timeout: scrapeTimeout,
			ErrorHandling: promhttp.ContinueOnError, // one failed gauge does not hide the others
		})
	}
	if c.Endpoint != "" {
		exporter, err := newMeasureExporter(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("export measurements to %s: %w", c.Endpoint, err)
		}
		options = append(options, sdkmetric.WithReader(sdkmetric.NewPeriodicReader(exporter)))
	}
	provider := sdkmetric.NewMeterProvider(options...)
	m.provider, m.shutdown = provider, provider.Shutdown
	return m, nil
}

func newMeasureExporter(ctx context.Context, c Config) (sdkmetric.Exporter, error) {
	to, err := c.collector("v1/metrics")
	if err != nil {
		return nil, err
	}
	if to.http {
		return otlpmetrichttp.New(ctx, otlpmetrichttp.WithEndpointURL(to.url), otlpmetrichttp.WithHeaders(to.headers))
	}
	return otlpmetricgrpc.New(ctx, otlpmetricgrpc.WithEndpointURL(to.url), otlpmetricgrpc.WithHeaders(to.headers))
}

// Meter returns the meter of a part of the process, for example "holdfast.state".
func (m *Metrics) Meter(name string) metric.Meter { return m.provider.Meter(name) }

// Handler serves the measurements in the text format of Prometheus at GET /metrics. It serves nothing without
// Config.Listen.
func (m *Metrics) Handler() http.Handler {
	mux := http.NewServeMux()
	if m.handler != nil {
		mux.Handle("GET /metrics", m.handler)
	}
	return mux
}

// Shutdown exports the last measurements and ends the measuring.
func (m *Metrics) Shutdown(ctx context.Context) error {
	if m.shutdown == nil {
		return nil
	}
	return m.shutdown(ctx)
}

// metricsServer serves /metrics on a listener of its own, so that a public port never shows it.
type metricsServer struct {
	server   *http.Server
	listener net.Listener
	serving  sync.WaitGroup
}

// serveMetrics listens on the address. It returns nil for an empty address.
func serveMetrics(ctx context.Context, address string, h http.Handler, log *slog.Logger) (*metricsServer, error) {
	if address == "" {
		return nil, nil
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("HOLDFAST_METRICS_LISTEN is %q: %w", address, err)
	}
	s := &metricsServer{listener: listener, server: &http.Server{
		Handler: h, ReadTimeout: scrapeTimeout, WriteTimeout: 2 * scrapeTimeout, IdleTimeout: scrapeIdle,
		MaxHeaderBytes: scrapeHeaderBytes, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}}
	s.serving.Go(func() {
		if err := s.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("metrics are no longer served", "error", err)
		}
	})
	log.InfoContext(ctx, "metrics are served", "address", s.address())
	return s, nil
}

func (s *metricsServer) address() string {
	if s == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// close cuts scrapes in flight: the next one belongs to the next process.
func (s *metricsServer) close() {
	if s == nil {
		return
	}
	_ = s.server.Close() // the process ends anyway
	s.serving.Wait()
}
