package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// meters are the instruments of a server.
type meters struct {
	appends metric.Int64Counter
	took    metric.Float64Histogram
	readers metric.Int64UpDownCounter
	cut     metric.Int64Counter
	founded metric.Int64Counter
	rewinds metric.Int64Counter

	stored metric.MeasurementOption // the usual outcome of an append
}

// open makes the instruments. A nil meter measures nothing.
func (m *meters) open(meter metric.Meter) error {
	if meter == nil {
		meter = noop.Meter{}
	}
	m.stored = outcome("stored")
	var errs [6]error
	m.appends, errs[0] = meter.Int64Counter("holdfast.stream.appends", metric.WithUnit("{append}"),
		metric.WithDescription("records that were stored, and requests that were refused, by outcome: stored, or the reason"))
	m.took, errs[1] = meter.Float64Histogram("holdfast.stream.append.time", metric.WithUnit("s"),
		metric.WithDescription("time from an append's arrival to its acknowledgement"),
		metric.WithExplicitBucketBoundaries(.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10))
	m.readers, errs[2] = meter.Int64UpDownCounter("holdfast.stream.readers", metric.WithUnit("{reader}"),
		metric.WithDescription("open reads"))
	m.cut, errs[3] = meter.Int64Counter("holdfast.stream.readers.cut", metric.WithUnit("{reader}"),
		metric.WithDescription("reads that were ended because the reader was too slow"))
	m.founded, errs[4] = meter.Int64Counter("holdfast.stream.doubts.founded", metric.WithUnit("{doubt}"),
		metric.WithDescription("calls whose doubt was founded: a partition had lost its end; several may tell of one that was begun anew"))
	m.rewinds, errs[5] = meter.Int64Counter("holdfast.stream.rewinds", metric.WithUnit("{rewind}"),
		metric.WithDescription("rewinds that were acknowledged"))
	if err := errors.Join(errs[:]...); err != nil {
		return fmt.Errorf("make the instruments of the stream: %w", err)
	}
	return nil
}

func outcome(word string) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(attribute.String("outcome", word)))
}

// appended notes what became of an append that took so long and stored so many
// records.
func (m *meters) appended(ctx context.Context, took time.Duration, stored int32, err error) {
	if err != nil {
		m.appends.Add(ctx, 1, outcome(cmp.Or(fault.ReasonOf(err), "INTERNAL")))
		return
	}
	m.appends.Add(ctx, int64(stored), m.stored)
	m.took.Record(ctx, took.Seconds())
}
