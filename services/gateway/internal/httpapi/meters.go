package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Meters are the instruments of a gateway. All methods of a nil Meters do nothing, so a gateway without metrics pays
// nothing.
type Meters struct {
	requests metric.Float64Histogram
	calls    metric.Float64Histogram
	refused  metric.Int64Counter
	unknown  metric.Int64Counter
}

// requestBuckets are the buckets of durations, in seconds.
var requestBuckets = metric.WithExplicitBucketBoundaries(.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800)

// NewMeters registers the instruments. It returns nil for the meter that measures nothing.
func NewMeters(meter metric.Meter, streams *Streams) (*Meters, error) {
	if _, off := meter.(noop.Meter); off || meter == nil {
		return nil, nil
	}
	m := &Meters{}
	var errs [6]error
	m.requests, errs[0] = meter.Float64Histogram(
		"holdfast.gateway.request.duration",
		metric.WithUnit("s"),
		metric.WithDescription(
			"time of a request with its whole answer, by http.route, http.request.method and http.response.status_code; without the Connect API",
		),
		requestBuckets,
	)
	m.calls, errs[5] = meter.Float64Histogram(
		"holdfast.gateway.rpc.duration",
		metric.WithUnit("s"),
		metric.WithDescription(
			"time of an RPC of the Connect API with its whole answer, by rpc.method and rpc.response.status_code; its errors are in holdfast.rpc.errors",
		),
		requestBuckets,
	)
	m.refused, errs[1] = meter.Int64Counter("holdfast.gateway.requests.refused", metric.WithUnit("{request}"),
		metric.WithDescription("requests that were answered with an error, by reason; without the Connect API"))
	m.unknown, errs[2] = meter.Int64Counter("holdfast.gateway.auth.failures", metric.WithUnit("{request}"),
		metric.WithDescription("requests whose caller was not admitted, by reason"))
	open, err := meter.Int64ObservableGauge("holdfast.gateway.streams", metric.WithUnit("{stream}"),
		metric.WithDescription("open streams, by protocol: chat, chat_websocket, sse, websocket, cloudflare, connect, wait, export"))
	errs[3] = err
	_, errs[4] = meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for protocol, n := range streams.counts() {
			o.ObserveInt64(open, int64(n), labels(attribute.String("protocol", string(protocol))))
		}
		return nil
	}, open)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("make the instruments of the gateway: %w", err)
	}
	return m, nil
}

func labels(of ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(of...))
}

// answered measures a request.
func (m *Meters) answered(r *http.Request, status int, took time.Duration) {
	if m == nil {
		return
	}
	method := r.Method
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
	default:
		method = "_OTHER" // clients may send any text
	}
	m.requests.Record(r.Context(), took.Seconds(), labels(
		attribute.String("http.route", cmp.Or(r.Pattern, "none")), attribute.String("http.request.method", method),
		attribute.Int("http.response.status_code", status),
	))
}

// Called measures an RPC of the Connect API. procedure is a registered one, such as
// /holdfast.agent.v1.AgentService/Start.
func (m *Meters) Called(ctx context.Context, procedure, code string, took time.Duration) {
	if m != nil {
		m.calls.Record(ctx, took.Seconds(), labels(
			attribute.String("rpc.method", strings.TrimPrefix(procedure, "/")), attribute.String("rpc.response.status_code", code)))
	}
}

// refuse counts a request answered with an error.
func (m *Meters) refuse(ctx context.Context, err error) {
	if m != nil {
		m.refused.Add(ctx, 1, labels(attribute.String("reason", reasonOf(err))))
	}
}

// NotAdmitted counts a request whose caller was not admitted.
func (m *Meters) NotAdmitted(ctx context.Context, err error) {
	if m != nil {
		m.unknown.Add(ctx, 1, labels(attribute.String("reason", reasonOf(err))))
	}
}

// reasonOf returns the reason of an error. Refusals of a program have one together: their codes are the program's.
func reasonOf(err error) string {
	if RefusalOf(err) != nil {
		return EntryRefused
	}
	return cmp.Or(fault.ReasonOf(err), "INTERNAL")
}
