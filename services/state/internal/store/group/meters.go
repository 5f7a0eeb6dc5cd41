package group

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// meters are the instruments of a committer.
type meters struct {
	batchSize metric.Int64Histogram
	queueTime metric.Float64Histogram
	conflicts metric.Int64Counter
	refused   metric.Int64Counter
	length    metric.Registration
}

// register makes the instruments. length is called on each collection of metrics, and
// so costs commands nothing.
func (m *meters) register(meter metric.Meter, length func() int) error {
	if meter == nil {
		meter = noop.Meter{}
	}
	var errs [6]error
	m.batchSize, errs[0] = meter.Int64Histogram("holdfast.state.batch.size", metric.WithUnit("{command}"),
		metric.WithDescription("commands that were written in one transaction"),
		metric.WithExplicitBucketBoundaries(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024))
	m.queueTime, errs[1] = meter.Float64Histogram("holdfast.state.queue.time", metric.WithUnit("s"),
		metric.WithDescription("time from a command's arrival to its transaction"),
		metric.WithExplicitBucketBoundaries(.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30))
	m.conflicts, errs[2] = meter.Int64Counter("holdfast.state.batch.conflicts", metric.WithUnit("{conflict}"),
		metric.WithDescription("transactions that failed because they met others"))
	m.refused, errs[3] = meter.Int64Counter("holdfast.state.queue.refused", metric.WithUnit("{command}"),
		metric.WithDescription("commands that were refused because the queue was full"))
	waiting, err := meter.Int64ObservableUpDownCounter("holdfast.state.queue.length", metric.WithUnit("{command}"),
		metric.WithDescription("commands that wait for a transaction"))
	errs[4] = err
	m.length, errs[5] = meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		o.ObserveInt64(waiting, int64(length()))
		return nil
	}, waiting)
	if err := errors.Join(errs[:]...); err != nil {
		return fmt.Errorf("make the instruments of the store: %w", err)
	}
	return nil
}

// close ends the calls of length.
func (m *meters) close() {
	_ = m.length.Unregister() // a remaining instrument is harmless
}
