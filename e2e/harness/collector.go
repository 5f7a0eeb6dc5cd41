package harness

import (
	"context"
	"encoding/hex"
	"fmt"
	"sync"
	"testing"

	metricsv1 "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/grpc"
)

// Span is a span received by the collector.
type Span struct {
	Service  string // the resource's service.name
	Instance string // the name of the Process
	Name     string
	TraceID  string // lower-case hex
	SpanID   string
	ParentID string // empty for a root
	Kind     string
	Attrs    map[string]string
	Links    []string // ids of spans
	Events   []string // names
}

func (s Span) String() string {
	return fmt.Sprintf("trace %s: %s %s [%s] %v", s.TraceID, s.Service, s.Name, s.Kind, s.Attrs)
}

// Collector is an OpenTelemetry collector. It keeps everything.
type Collector struct {
	collectorv1.UnimplementedTraceServiceServer

	// Endpoint is for OTEL_EXPORTER_OTLP_ENDPOINT.
	Endpoint string

	mu      sync.Mutex
	spans   []Span
	metrics map[string]int // arrivals by name
}

// StartCollector starts a collector; it ends with the test.
func StartCollector(t testing.TB) *Collector {
	t.Helper()
	l := listen(t)
	c := &Collector{Endpoint: "http://" + l.Addr().String(), metrics: map[string]int{}}
	server := grpc.NewServer()
	collectorv1.RegisterTraceServiceServer(server, c)
	metricsv1.RegisterMetricsServiceServer(server, measures{collector: c})
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() {
		server.Stop()
		wg.Wait()
	})
	return c
}

// Export implements the collector's trace service.
func (c *Collector) Export(_ context.Context, r *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range r.GetResourceSpans() {
		about := attributes(resource.GetResource().GetAttributes())
		for _, scope := range resource.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				var links, events []string
				for _, l := range s.GetLinks() {
					links = append(links, hex.EncodeToString(l.GetSpanId()))
				}
				for _, e := range s.GetEvents() {
					events = append(events, e.GetName())
				}
				c.spans = append(c.spans, Span{
					Service:  about["service.name"],
					Instance: about["service.instance.id"],
					Name:     s.GetName(),
					TraceID:  hex.EncodeToString(s.GetTraceId()),
					SpanID:   hex.EncodeToString(s.GetSpanId()),
					ParentID: hex.EncodeToString(s.GetParentSpanId()),
					Kind:     s.GetKind().String(),
					Attrs:    attributes(s.GetAttributes()),
					Links:    links,
					Events:   events,
				})
			}
		}
	}
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

// measures implements the collector's metrics service.
type measures struct {
	metricsv1.UnimplementedMetricsServiceServer
	collector *Collector
}

// Export implements the collector's metrics service.
func (m measures) Export(_ context.Context, r *metricsv1.ExportMetricsServiceRequest) (*metricsv1.ExportMetricsServiceResponse, error) {
	m.collector.mu.Lock()
	defer m.collector.mu.Unlock()
	for _, resource := range r.GetResourceMetrics() {
		for _, scope := range resource.GetScopeMetrics() {
			for _, metric := range scope.GetMetrics() {
				m.collector.metrics[metric.GetName()]++
			}
		}
	}
	return &metricsv1.ExportMetricsServiceResponse{}, nil
}

// HasMetric reports whether a metric of this name has arrived.
func (c *Collector) HasMetric(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.metrics[name] > 0
}

// Trace returns the spans of a trace received so far.
func (c *Collector) Trace(id string) []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	var spans []Span
	for _, s := range c.spans {
		if s.TraceID == id {
			spans = append(spans, s)
		}
	}
	return spans
}

func attributes(pairs []*commonv1.KeyValue) map[string]string {
	m := make(map[string]string, len(pairs))
	for _, p := range pairs {
		switch v := p.GetValue().GetValue().(type) {
		case *commonv1.AnyValue_StringValue:
			m[p.GetKey()] = v.StringValue
		case *commonv1.AnyValue_IntValue:
			m[p.GetKey()] = fmt.Sprint(v.IntValue)
		case *commonv1.AnyValue_BoolValue:
			m[p.GetKey()] = fmt.Sprint(v.BoolValue)
		}
	}
	return m
}
