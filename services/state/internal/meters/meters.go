// Package meters has the instruments of the state service outside of its store. All methods of a nil Meters
// do nothing, so a service without metrics pays nothing.
package meters

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// Bounds of the query for the backlog, made once in each collection.
const (
	backlogTimeout = 2 * time.Second
	backlogRows    = 10_000
)

// The reasons why a run returns to the queue.
const (
	ExecutorLost = "executor_lost" // its executor is silent, or its claim stream broke
	ClaimLost    = "claim_lost"    // its claim did not reach the executor
)

// Meters are the instruments.
type Meters struct {
	ended    metric.Int64Counter
	claims   metric.Int64Counter
	claimed  metric.Float64Histogram
	requeued metric.Int64Counter
	refused  metric.Int64Counter
	backlog  metric.Registration
}

// Counts is the meters' part of store.Counts.
type Counts interface {
	Backlog(ctx context.Context, now session.Millis, most int64) (store.Backlog, error)
}

// New registers the instruments. It returns nil for the meter that measures nothing.
func New(meter metric.Meter, counts Counts, now func() time.Time) (*Meters, error) {
	if _, off := meter.(noop.Meter); off || meter == nil {
		return nil, nil
	}
	m := &Meters{}
	var errs [6]error
	m.ended, errs[0] = meter.Int64Counter("holdfast.state.runs.ended", metric.WithUnit("{run}"),
		metric.WithDescription("runs that ended, by outcome and agent.type; a suspended run has ended"))
	m.claims, errs[1] = meter.Int64Counter("holdfast.state.claims", metric.WithUnit("{claim}"),
		metric.WithDescription("runs that were claimed for an executor, by agent.type"))
	m.claimed, errs[2] = meter.Float64Histogram(
		"holdfast.state.claim.wait",
		metric.WithUnit("s"),
		metric.WithDescription(
			"time from the start of a run to its first claim, by agent.type; without runs that waited for another run of their session",
		),
		metric.WithExplicitBucketBoundaries(.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800),
	)
	m.requeued, errs[3] = meter.Int64Counter("holdfast.state.runs.requeued", metric.WithUnit("{run}"),
		metric.WithDescription("runs that returned to the queue, by reason: executor_lost, claim_lost"))
	m.refused, errs[4] = meter.Int64Counter("holdfast.state.quota.refused", metric.WithUnit("{request}"),
		metric.WithDescription("requests that a quota refused, by limit, such as tenant.queued"))
	m.backlog, errs[5] = observeBacklog(meter, counts, now)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("make the instruments of the state service: %w", err)
	}
	return m, nil
}

// observeBacklog registers the gauges of what waits in the database. Every replica reports the same values.
func observeBacklog(meter metric.Meter, counts Counts, now func() time.Time) (metric.Registration, error) {
	var errs [4]error
	var queued, suspended metric.Int64ObservableGauge
	var queuedAge, suspendedAge metric.Float64ObservableGauge
	queued, errs[0] = meter.Int64ObservableGauge("holdfast.state.runs.queued", metric.WithUnit("{run}"),
		metric.WithDescription("queued runs in the database that are due, at most 10,000; every replica reports all"))
	queuedAge, errs[1] = meter.Float64ObservableGauge("holdfast.state.runs.queued.age", metric.WithUnit("s"),
		metric.WithDescription("age of the oldest queued run that is due; 0 without one"))
	suspended, errs[2] = meter.Int64ObservableGauge("holdfast.state.sessions.suspended", metric.WithUnit("{session}"),
		metric.WithDescription("suspended sessions that expire, by reason, at most 10,000; every replica reports all"))
	suspendedAge, errs[3] = meter.Float64ObservableGauge("holdfast.state.sessions.suspended.age", metric.WithUnit("s"),
		metric.WithDescription("time since the last change of the oldest suspended session that expires, by reason"))
	registration, err := meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		ctx, cancel := context.WithTimeout(ctx, backlogTimeout)
		defer cancel()
		at := session.Millis(now().UnixMilli())
		b, err := counts.Backlog(ctx, at, backlogRows)
		if err != nil {
			return fmt.Errorf("measure the backlog: %w", err)
		}
		o.ObserveInt64(queued, b.Queued)
		o.ObserveFloat64(queuedAge, age(b.OldestQueued, at))
		for status, s := range b.Suspended {
			reason := label("reason", string(status))
			o.ObserveInt64(suspended, s.Sessions, reason)
			o.ObserveFloat64(suspendedAge, age(s.Oldest, at), reason)
		}
		return nil
	}, queued, queuedAge, suspended, suspendedAge)
	return registration, errors.Join(append(errs[:], err)...)
}

// Close ends the queries for the backlog.
func (m *Meters) Close() {
	if m != nil {
		_ = m.backlog.Unregister() // a remaining instrument is harmless
	}
}

// age returns the seconds since then; 0 for no time.
func age(then, now session.Millis) float64 {
	if then == 0 {
		return 0
	}
	return max(0, float64(now-then)/1000)
}

func label(key, value string) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(attribute.String(key, value)))
}

// Changed counts the runs that the written changes have ended. The views are those before.
func (m *Meters) Changed(ctx context.Context, views []*session.View, changes []*session.Change) {
	if m == nil {
		return
	}
	for i, c := range changes {
		if c == nil || c.Delete {
			continue
		}
		for j := range c.Runs {
			if r := &c.Runs[j]; r.Status.Ended() && !hadEnded(views[i], r.RunID) {
				m.ended.Add(ctx, 1, metric.WithAttributes(attribute.String("outcome", string(r.Status)), attribute.String("agent.type", r.AgentType)))
			}
		}
	}
}

// hadEnded reports whether the run had ended before the change.
func hadEnded(v *session.View, runID string) bool {
	for _, r := range []*session.Run{v.Run, v.Current, v.KeyedRun} {
		if r != nil && r.RunID == runID {
			return r.Status.Ended()
		}
	}
	return false
}

// Claimed counts a claim.
func (m *Meters) Claimed(ctx context.Context, before *session.Run, now session.Millis) {
	if m == nil {
		return
	}
	agent := label("agent.type", before.AgentType)
	m.claims.Add(ctx, 1, agent)
	if before.Attempt == 0 && before.QueuePlace == 0 {
		m.claimed.Record(ctx, age(max(before.CreatedAt, before.DueAt), now), agent)
	}
}

// Requeued counts runs that returned to the queue.
func (m *Meters) Requeued(ctx context.Context, runs int, reason string) {
	if m != nil && runs > 0 {
		m.requeued.Add(ctx, int64(runs), label("reason", reason))
	}
}

// Refused counts a request if err is that of a quota.
func (m *Meters) Refused(ctx context.Context, err error) {
	if m == nil || err == nil {
		return
	}
	if f, ok := fault.From(err); ok && f.Meta[fault.LimitName] != "" {
		m.refused.Add(ctx, 1, label("limit", f.Meta[fault.LimitName]))
	}
}
