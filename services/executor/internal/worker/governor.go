package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/retry"
)

const (
	// unlimitedReply is the estimate of a reply without a limit, in tokens.
	unlimitedReply = 1_000
	// leaseSlack is how long a lease outlasts the time limit of its call: for files, and for the release.
	leaseSlack = time.Minute
	maxLease   = 24 * time.Hour // by the contract
	// releasePatience bounds a release. A lease without a release ends with its executor or its TTL.
	releasePatience = 2 * time.Second
)

// governor asks the state service for a lease before each call of a model with limits. Of the calls of a model
// that wait here, only the first asks, so the state service sees one waiting call for each model and executor.
// While the state service is unavailable, calls wait as commits do. Safe for concurrent use.
type governor struct {
	service    statev1.GovernorServiceClient
	executorID string
	timeout    time.Duration // of one attempt at a request
	ttl        time.Duration // of a lease
	newID      func() string
	now        func() time.Time
	meters     *meters // nil measures nothing

	mu    sync.Mutex
	lines map[string]*line // by model
}

// line is the waiting calls of a model.
type line struct {
	// first has one token, for the call that asks. The channel gives it to the longest waiting call.
	first chan struct{}
	// freed gets a token when a call of the model ends here. One is enough: one call waits for it.
	freed chan struct{}
}

func newGovernor(c Config, p Peers) *governor {
	return &governor{
		service: p.Governors, executorID: p.ExecutorID, timeout: c.CallTimeout, ttl: min(c.ModelTimeout+leaseSlack, maxLease),
		newID: p.NewID, now: p.Now, lines: map[string]*line{},
	}
}

// lease is the right to make one call. A nil lease is of a model without limits.
type lease struct {
	governor *governor
	line     *line
	id       string
	names    []string // of the governors
}

// acquire waits for the lease of a call. It returns errDraining when draining is closed, and the cause of an
// ended ctx.
func (g *governor) acquire(ctx context.Context, log *slog.Logger, name string, governors []model.Governor, r model.Request,
	draining <-chan struct{},
) (*lease, error) {
	if len(governors) == 0 {
		return nil, nil
	}
	begin := g.now()
	defer func() {
		waited := g.now().Sub(begin)
		trace.SpanFromContext(ctx).SetAttributes(attribute.Int64("governor.wait_ms", waited.Milliseconds()))
		g.meters.waited(ctx, name, waited)
	}()
	l := &lease{governor: g, line: g.line(name), id: g.newID()}
	request := &statev1.AcquireRequest{ExecutorId: g.executorID, LeaseId: l.id, Tokens: estimateTokens(r), TtlMs: g.ttl.Milliseconds()}
	for _, of := range governors {
		l.names = append(l.names, of.Name)
		request.Governors = append(request.Governors, &statev1.GovernorLimits{
			Name: of.Name, RequestsPerMinute: of.RequestsPerMinute, TokensPerMinute: of.TokensPerMinute, Concurrency: of.Concurrency,
		})
	}
	select {
	case <-l.line.first:
		defer func() { l.line.first <- struct{}{} }()
	case <-draining:
		return nil, errDraining
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if err := l.ask(ctx, log, request, draining); err != nil {
		l.release(ctx, &statev1.ReleaseRequest{UsedTokens: new(int64(0))}) // its place, or a lease whose answer was lost
		return nil, err
	}
	return l, nil
}

// line returns the line of a model.
func (g *governor) line(name string) *line {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.lines[name]
	if l == nil {
		l = &line{first: make(chan struct{}, 1), freed: make(chan struct{}, 1)}
		l.first <- struct{}{}
		g.lines[name] = l
	}
	return l
}

// ask asks until the lease is granted.
func (l *lease) ask(ctx context.Context, log *slog.Logger, r *statev1.AcquireRequest, draining <-chan struct{}) error {
	for {
		var answer *statev1.AcquireResponse
		err := retry.Call(ctx, l.governor.timeout, func(ctx context.Context) (err error) {
			answer, err = l.governor.service.Acquire(ctx, r)
			return err
		})
		if err != nil || answer.GetWaitMs() <= 0 {
			return err
		}
		wait := time.Duration(answer.GetWaitMs()) * time.Millisecond
		log.DebugContext(ctx, "the model call waits for the limits of its provider", "governors", l.names, "wait", wait)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-l.line.freed:
		case <-draining:
			err = errDraining
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		timer.Stop()
		if err != nil {
			return err
		}
	}
}

// end releases the lease after the call, with the tokens of its reply. A delay that the provider asks for
// delays the calls of all executors.
func (l *lease) end(ctx context.Context, used model.Usage, failure error) {
	if l == nil {
		return
	}
	r := &statev1.ReleaseRequest{}
	if tokens := max(used.TotalTokens, used.PromptTokens+used.CompletionTokens); tokens > 0 {
		r.UsedTokens = &tokens
	}
	if failed, ok := errors.AsType[modelFailure](failure); ok {
		if refused, ok := errors.AsType[*model.Error](failed.err); ok {
			r.PauseMs = refused.RetryAfter.Milliseconds()
		}
	}
	l.release(ctx, r)
	select {
	case l.line.freed <- struct{}{}:
	default: // a token is there already
	}
}

// release ends the lease also after the end of ctx.
func (l *lease) release(ctx context.Context, r *statev1.ReleaseRequest) {
	r.LeaseId, r.Governors = l.id, l.names
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releasePatience)
	defer cancel()
	_ = retry.Call(ctx, l.governor.timeout, func(ctx context.Context) error {
		_, err := l.governor.service.Release(ctx, r)
		return err
	})
}

// estimateTokens estimates the tokens of a request and its reply.
func estimateTokens(r model.Request) int64 {
	bytes := len(r.System)
	for _, t := range r.Tools {
		bytes += len(t.Name) + len(t.Description) + len(t.InputSchema)
	}
	reply := r.MaxOutputTokens
	if reply == 0 {
		reply = unlimitedReply
	}
	return int64(bytes/4 + loop.EstimateTokens(r.Messages) + reply)
}
