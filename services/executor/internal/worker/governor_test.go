package worker_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/catalog"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// provider is a model whose calls last a while. It records their begins, and the most calls at once.
type provider struct {
	lasts time.Duration // guarded by mu

	mu        sync.Mutex
	now, most int
	begins    []time.Time
}

func (p *provider) call(ctx context.Context, _ model.Request, say func(model.Event) bool) error {
	p.mu.Lock()
	p.now++
	p.most = max(p.most, p.now)
	p.begins = append(p.begins, time.Now())
	lasts := p.lasts
	p.mu.Unlock()
	pause(ctx, lasts)
	p.mu.Lock()
	p.now--
	p.mu.Unlock()
	if ctx.Err() == nil {
		sendText(say, "ok")
	}
	return ctx.Err()
}

// mostPerMinute returns the most calls that began within any minute.
func (p *provider) mostPerMinute() (most int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.begins {
		most = max(most, len(slices.DeleteFunc(slices.Clone(p.begins[i:]), func(t time.Time) bool { return !t.Before(p.begins[i].Add(time.Minute)) })))
	}
	return most
}

func (p *provider) calls() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.begins)
}

// within returns the agent with limits for its model.
func within(a catalog.Agent, limits model.Limits) catalog.Agent {
	a.Governors = map[string][]model.Governor{"fake/mind": {{Name: "fake", Limits: limits}}}
	return a
}

func TestTwoExecutorsKeepALimitTogether(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]model.Limits{
		"of calls in progress":           {Concurrency: 2},
		"of requests in a minute":        {RequestsPerMinute: 3},
		"of tokens in a minute":          {TokensPerMinute: 2_100}, // two estimates, or one beside the tokens of many calls
		"of everything at the same time": {Concurrency: 2, RequestsPerMinute: 3, TokensPerMinute: 100_000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := &provider{lasts: 10 * time.Second}
				h := newSystem(t, within(define("demo", modelFunc(p.call)), limits))
				h.open()
				h.open()
				var runs []string
				for i := range 8 {
					runs = append(runs, h.startRun(fmt.Sprint("s", i), "demo", "hi"))
				}
				for _, run := range runs {
					if ended := h.end(run); ended.GetStatus() != completed {
						t.Errorf("run = %v, want it completed", ended)
					}
				}
				if limits.Concurrency > 0 && p.most > int(limits.Concurrency) {
					t.Errorf("%d calls at once, want at most %d", p.most, limits.Concurrency)
				}
				if got := p.mostPerMinute(); limits.RequestsPerMinute > 0 && got > int(limits.RequestsPerMinute) {
					t.Errorf("%d calls in a minute, want at most %d", got, limits.RequestsPerMinute)
				}
				if limits.Concurrency == 0 && limits.TokensPerMinute > 0 && p.most > 2 {
					t.Errorf("%d calls at once, want the tokens of two", p.most)
				}
				if p.most < 2 || p.calls() != 8 {
					t.Errorf("%d calls with at most %d at once, want 8 and at least 2", p.calls(), p.most)
				}
			})
		})
	}
}

func TestTheLeasesOfADeadExecutorComeBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &provider{lasts: time.Hour}
		h := newSystem(t, within(define("demo", modelFunc(p.call)), model.Limits{Concurrency: 2}))
		first := h.open()
		runs := []string{h.startRun("s1", "demo", "hi"), h.startRun("s2", "demo", "hi")}
		h.until("both calls have begun", func() bool { return p.calls() == 2 })
		first.connection.kill()
		first.stop()
		p.mu.Lock()
		p.lasts = time.Second
		p.mu.Unlock()
		begin := time.Now()
		h.open()
		for _, run := range runs {
			if ended := h.end(run); ended.GetStatus() != completed {
				t.Errorf("run = %v, want it completed", ended)
			}
		}
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("the runs took %v, want the leases back with the executor's registration", took)
		}
	})
}

func TestAStopEndsTheWaitForALimitAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &provider{lasts: 10 * time.Second}
		h := newSystem(t, within(define("demo", modelFunc(p.call)), model.Limits{RequestsPerMinute: 1}))
		h.open()
		h.end(h.startRun("s1", "demo", "hi"))
		asks, behind := h.startRun("s2", "demo", "hi"), h.startRun("s3", "demo", "hi")
		time.Sleep(time.Second)
		for session, run := range map[string]string{"s3": behind, "s2": asks} {
			begin := time.Now()
			_, err := statev1.NewRunServiceClient(h.stateAPI).RequestStop(h.context(), &statev1.RequestStopRequest{
				Tenant: tenant, SessionId: session, RunId: run, Kind: interrupt,
			})
			must(t, err)
			if ended := h.end(run); ended.GetStatus() != interrupted {
				t.Errorf("run = %v, want it interrupted", ended)
			}
			if took := time.Since(begin); took > 50*time.Millisecond {
				t.Errorf("the stop took %v", took)
			}
		}
		begin := time.Now()
		h.end(h.startRun("s4", "demo", "hi"))
		if took := time.Since(begin); p.calls() != 2 || took > 63*time.Second {
			t.Errorf("%d calls, the last after %v; want no call of the stopped runs, and no room for them", p.calls(), took)
		}
	})
}

func TestTheDeadlineOfARunEndsItsWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &provider{lasts: time.Second}
		a := within(define("demo", modelFunc(p.call)), model.Limits{RequestsPerMinute: 1})
		a.RunTimeout = 20 * time.Second
		h := newSystem(t, a)
		h.open()
		h.end(h.startRun("s1", "demo", "hi"))
		begin := time.Now()
		if run := h.end(h.startRun("s2", "demo", "hi")); run.GetFailure().GetCode() != "framework_deadline_exceeded" {
			t.Errorf("run = %v, want it ended by its deadline", run)
		}
		if took := time.Since(begin); took < 20*time.Second || took > 22*time.Second {
			t.Errorf("the run took %v, want 20 seconds", took)
		}
	})
}

func TestAWaitingRunLeavesAnExecutorThatStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &provider{lasts: time.Second}
		h := newSystem(t, within(define("demo", modelFunc(p.call)), model.Limits{RequestsPerMinute: 1}))
		h.config.DrainGrace = 30 * time.Second
		first := h.open()
		h.end(h.startRun("s1", "demo", "hi"))
		run := h.startRun("s2", "demo", "hi")
		time.Sleep(time.Second)
		begin := time.Now()
		first.stop()
		<-first.ended
		if took := time.Since(begin); took > time.Second {
			t.Errorf("the executor took %v to stop, want it not to wait for the limit", took)
		}
		h.open()
		if ended := h.end(run); ended.GetStatus() != completed {
			t.Errorf("run = %v, want it completed by the next executor", ended)
		}
	})
}

func TestTheTimeLimitOfACallBeginsAfterItsWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &provider{lasts: 20 * time.Second}
		h := newSystem(t, within(define("demo", modelFunc(p.call)), model.Limits{RequestsPerMinute: 1}))
		h.config.ModelTimeout = 30 * time.Second
		spans := tracetest.NewSpanRecorder()
		h.tracer = trace.NewTracerProvider(trace.WithSpanProcessor(spans)).Tracer("")
		h.open()
		h.end(h.startRun("s1", "demo", "hi"))
		if run := h.end(h.startRun("s2", "demo", "hi")); run.GetStatus() != completed || p.calls() != 2 {
			t.Errorf("run = %v after %d calls, want it completed without a retry", run, p.calls())
		}
		var waits []int64
		for _, s := range spans.Ended() {
			for _, a := range s.Attributes() {
				if a.Key == "governor.wait_ms" {
					waits = append(waits, a.Value.AsInt64())
				}
			}
		}
		if len(waits) != 2 || waits[0] > 100 || waits[1] < 38_000 || waits[1] > 44_000 {
			t.Errorf("the spans have waits of %d ms, want none and the rest of the minute", waits)
		}
	})
}

func TestADelayOfTheProviderHoldsBackOtherExecutors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var begins []time.Time
		busy := modelFunc(func(_ context.Context, _ model.Request, say func(model.Event) bool) error {
			mu.Lock()
			defer mu.Unlock()
			if begins = append(begins, time.Now()); len(begins) == 1 {
				return &model.Error{Code: model.CodeRateLimited, Retryable: true, StatusCode: 429, RetryAfter: 30 * time.Second}
			}
			sendText(say, "ok")
			return nil
		})
		a := within(define("demo", busy), model.Limits{RequestsPerMinute: 100})
		a.MaxRetries = new(3)
		h := newSystem(t, a)
		h.config.Slots = 1
		h.open()
		h.open()
		first := h.startRun("s1", "demo", "hi")
		h.until("the first call was refused", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(begins) == 1
		})
		time.Sleep(100 * time.Millisecond)
		second := h.startRun("s2", "demo", "hi")
		h.end(first)
		h.end(second)
		if len(begins) != 3 || begins[1].Sub(begins[0]) < 30*time.Second {
			t.Errorf("calls at %v, want both others after the delay", begins)
		}
	})
}

func TestAModelWithoutLimitsAsksNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := within(define("demo", alwaysText("ok")), model.Limits{Concurrency: 1})
		a.Governors["fake/other"], a.Governors["fake/mind"] = a.Governors["fake/mind"], nil
		h := newSystem(t, a)
		var mu sync.Mutex
		var asked []string
		h.open(func(_ int, method string) verdict {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, method)
			return pass
		})
		h.end(h.startRun("s", "demo", "hi"))
		if slices.ContainsFunc(asked, func(method string) bool { return method == "Acquire" || method == "Release" }) || len(asked) == 0 {
			t.Errorf("requests = %v, want none of governors", asked)
		}
	})
}

func TestAGovernedCallWaitsForTheStateService(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]verdict{"that does not answer": failAfter, "that cannot be reached": failBefore} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := &provider{lasts: time.Second}
				h := newSystem(t, within(define("demo", modelFunc(p.call)), model.Limits{Concurrency: 1, RequestsPerMinute: 2}))
				var mu sync.Mutex
				failures := 3
				h.open(func(_ int, method string) verdict {
					mu.Lock()
					defer mu.Unlock()
					if method == "Acquire" && failures > 0 {
						failures--
						return fails
					}
					return pass
				})
				begin := time.Now()
				h.end(h.startRun("s1", "demo", "hi"))
				if run := h.end(h.startRun("s2", "demo", "hi")); run.GetStatus() != completed {
					t.Errorf("run = %v, want it completed", run)
				}
				if took := time.Since(begin); took > 30*time.Second || p.calls() != 2 {
					t.Errorf("%d calls in %v, want each counted once", p.calls(), took)
				}
			})
		})
	}
}
