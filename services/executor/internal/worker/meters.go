package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/executor/internal/catalog"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// meters are the instruments of an executor. All methods of nil meters do nothing, so an executor without metrics
// pays nothing. The names of gen_ai.* are those of the OpenTelemetry semantic conventions for generative AI.
type meters struct {
	steps     metric.Int64Counter
	stepTime  metric.Float64Histogram
	modelTime metric.Float64Histogram
	firstTime metric.Float64Histogram
	tokens    metric.Int64Histogram
	retries   metric.Int64Counter
	toolTime  metric.Float64Histogram
	waits     metric.Float64Histogram
}

// The buckets of durations, in seconds. The conventions advise modelBuckets and firstBuckets.
var (
	stepBuckets  = metric.WithExplicitBucketBoundaries(.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
	modelBuckets = metric.WithExplicitBucketBoundaries(.01, .02, .04, .08, .16, .32, .64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
	firstBuckets = metric.WithExplicitBucketBoundaries(.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10)
	tokenBuckets = metric.WithExplicitBucketBoundaries(1, 4, 16, 64, 256, 1<<10, 4<<10, 16<<10, 64<<10, 256<<10, 1<<20, 4<<20, 16<<20, 64<<20)
)

// newMeters registers the instruments. It returns nil for the meter that measures nothing.
func newMeters(meter metric.Meter, live func() int, problems func() []catalog.Problem, slots int) (*meters, error) {
	if _, off := meter.(noop.Meter); off || meter == nil {
		return nil, nil
	}
	m := &meters{}
	var errs [10]error
	m.steps, errs[0] = meter.Int64Counter("holdfast.executor.steps", metric.WithUnit("{step}"),
		metric.WithDescription("steps that were committed, by agent.type"))
	m.stepTime, errs[1] = meter.Float64Histogram("holdfast.executor.step.duration", metric.WithUnit("s"), stepBuckets,
		metric.WithDescription("time from the commit before a step, or from the claim, to its own commit, by agent.type"))
	m.modelTime, errs[2] = meter.Float64Histogram("gen_ai.client.operation.duration", metric.WithUnit("s"), modelBuckets,
		metric.WithDescription("time of a model call without waits for the limits of its provider, "+
			"by provider, model and, for failed ones, error.type"))
	m.firstTime, errs[3] = meter.Float64Histogram("gen_ai.client.operation.time_to_first_chunk", metric.WithUnit("s"), firstBuckets,
		metric.WithDescription("time from the request to a model to the first piece of its reply, by provider and model"))
	m.tokens, errs[4] = meter.Int64Histogram("gen_ai.client.token.usage", metric.WithUnit("{token}"), tokenBuckets,
		metric.WithDescription("tokens of a model call, by provider, model and gen_ai.token.type: input, output"))
	m.toolTime, errs[5] = meter.Float64Histogram("holdfast.executor.tool.duration", metric.WithUnit("s"), stepBuckets,
		metric.WithDescription("time of a tool call, by agent.type, gen_ai.tool.name and outcome: "+
			"success, failure, cut, waits (for a sub-agent)"))
	m.waits, errs[6] = meter.Float64Histogram("holdfast.executor.governor.wait", metric.WithUnit("s"), stepBuckets,
		metric.WithDescription("time that a model call waited for the limits of its provider, by model; only calls of models with limits"))
	m.retries, errs[7] = meter.Int64Counter("holdfast.executor.retries", metric.WithUnit("{call}"),
		metric.WithDescription("failed model calls that are repeated, by agent.type and error.type"))
	errs[8] = observeRuns(meter, live, slots)
	errs[9] = observeProblems(meter, problems)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("make the instruments of the executor: %w", err)
	}
	return m, nil
}

func observeRuns(meter metric.Meter, live func() int, slots int) error {
	runs, err1 := meter.Int64ObservableGauge("holdfast.executor.runs", metric.WithUnit("{run}"),
		metric.WithDescription("runs that the executor holds"))
	limit, err2 := meter.Int64ObservableGauge("holdfast.executor.slots", metric.WithUnit("{run}"),
		metric.WithDescription("runs that the executor may hold at once"))
	_, err3 := meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		o.ObserveInt64(runs, int64(live()))
		o.ObserveInt64(limit, int64(slots))
		return nil
	}, runs, limit)
	return errors.Join(err1, err2, err3)
}

func observeProblems(meter metric.Meter, problems func() []catalog.Problem) error {
	parts, err1 := meter.Int64ObservableGauge("holdfast.executor.problems", metric.WithUnit("{part}"),
		metric.WithDescription(
			"parts of the agents that are out of service or lack something, by kind: file, endpoint, provider, mcpServer, tool, agent",
		))
	_, err2 := meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		count := map[string]int64{"file": 0, "endpoint": 0, "provider": 0, "mcpServer": 0, "tool": 0, "agent": 0}
		for _, p := range problems() {
			count[p.Kind]++
		}
		for kind, n := range count {
			o.ObserveInt64(parts, n, metric.WithAttributes(attribute.String("kind", kind)))
		}
		return nil
	}, parts)
	return errors.Join(err1, err2)
}

// stepped counts a committed step.
func (m *meters) stepped(ctx context.Context, agentType string, took time.Duration) {
	if m == nil {
		return
	}
	agent := metric.WithAttributeSet(attribute.NewSet(attribute.String("agent.type", agentType)))
	m.steps.Add(ctx, 1, agent)
	m.stepTime.Record(ctx, took.Seconds(), agent)
}

// retried counts a model call repeated after it failed with a code.
func (m *meters) retried(ctx context.Context, agentType, code string) {
	if m != nil {
		m.retries.Add(ctx, 1, metric.WithAttributes(
			attribute.String("agent.type", agentType), attribute.String("error.type", cmp.Or(code, "_OTHER"))))
	}
}

// measuredCall measures one model call. A nil measuredCall measures nothing.
type measuredCall struct {
	meters *meters
	labels []attribute.KeyValue
	now    func() time.Time
	began  time.Time
}

// callModel begins a call of a model, named provider/name.
func (m *meters) callModel(name string, now func() time.Time) *measuredCall {
	if m == nil {
		return nil
	}
	provider, of := splitModel(name)
	return &measuredCall{meters: m, now: now, began: now(), labels: []attribute.KeyValue{
		attribute.String("gen_ai.operation.name", chat), attribute.String("gen_ai.provider.name", provider),
		attribute.String("gen_ai.request.model", of),
	}}
}

// received measures the time to the first piece.
func (c *measuredCall) received(ctx context.Context) {
	if c == nil {
		return
	}
	c.meters.firstTime.Record(ctx, c.now().Sub(c.began).Seconds(), metric.WithAttributes(c.labels...))
}

// end measures the whole call.
func (c *measuredCall) end(ctx context.Context, used model.Usage, err error) {
	if c == nil {
		return
	}
	count := func(kind string, n int64) {
		if n > 0 {
			labels := append(slices.Clip(c.labels), attribute.String("gen_ai.token.type", kind))
			c.meters.tokens.Record(ctx, n, metric.WithAttributes(labels...))
		}
	}
	count("input", used.PromptTokens)
	count("output", used.CompletionTokens)
	labels := c.labels
	if err != nil {
		labels = append(labels, attribute.String("error.type", errorType(err)))
	}
	c.meters.modelTime.Record(ctx, c.now().Sub(c.began).Seconds(), metric.WithAttributes(labels...))
}

// errorType returns the code of a model's failure, or "cut" for a call that a stop or the end of the run has interrupted.
func errorType(err error) string {
	if failed, ok := errors.AsType[modelFailure](err); ok {
		if classified, ok := errors.AsType[*model.Error](failed.err); ok {
			return cmp.Or(classified.Code, "_OTHER")
		}
		return "_OTHER"
	}
	return cmp.Or(fault.ReasonOf(err), "cut")
}

// toolFailed is what became of a call whose tool has failed.
const toolFailed = "failure"

// became names what became of a call.
func (o outcome) became() string {
	switch {
	case o.Awaits != nil:
		return "waits"
	case o.Stopped:
		return "cut"
	case o.Result.Success:
		return "success"
	}
	return toolFailed
}

// calledTool measures a call of a tool that the agent declares.
func (m *meters) calledTool(ctx context.Context, agentType, name string, o outcome, took time.Duration) {
	if m == nil {
		return
	}
	m.toolTime.Record(ctx, took.Seconds(), metric.WithAttributes(attribute.String("agent.type", agentType),
		attribute.String("gen_ai.tool.name", name), attribute.String("outcome", o.became())))
}

// waited measures the wait of a model call for its lease.
func (m *meters) waited(ctx context.Context, name string, took time.Duration) {
	if m != nil {
		m.waits.Record(ctx, took.Seconds(), metric.WithAttributes(attribute.String("gen_ai.request.model", name)))
	}
}
