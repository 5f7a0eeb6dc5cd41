package worker_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/holdfast-run/holdfast/services/executor/internal/worker"
)

// death is the moment at which the first executor dies: at a point, or at a call to a service.
type death struct {
	point   worker.Point // empty: at a call
	verdict verdict      // of the call
	n       int          // which passing of the point, or which call, from 1; 0 for none
	hit     string
}

// openMortal opens the first executor, which dies at the given moment. until replaces it.
func (p *system) openMortal(c *death) *executor {
	passed := 0
	p.passed = func(ctx context.Context, e *executor, point worker.Point) {
		if e.id != "executor 1" || c.point != point {
			return
		}
		p.mu.Lock()
		passed++
		dies := passed == c.n
		p.mu.Unlock()
		if dies {
			c.hit = string(point)
			e.connection.kill()
			<-ctx.Done() // nothing follows
		}
	}
	e := p.open(func(call int, method string) verdict {
		if c.point == "" && c.n > 0 && call == c.n {
			c.hit = method
			return c.verdict
		}
		return pass
	})
	p.replaceOnDeath(e)
	return e
}

// replaceOnDeath has until open another executor after the death of this one.
func (p *system) replaceOnDeath(e *executor) {
	e.connection.mu.Lock()
	defer e.connection.mu.Unlock()
	e.connection.onDeath = func() {
		e.stop()
		p.mu.Lock()
		p.replace = true
		p.mu.Unlock()
		p.traffic.mu.Lock()
		defer p.traffic.mu.Unlock()
		p.traffic.wake()
	}
}

// died reports whether the first executor has died.
func (p *system) died() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.replace || p.executors > 1
}

// verifyOnce checks that each call had one key, and that readers have what is stored.
func (p *system) verifyOnce() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, keys := range p.keys {
		if len(keys) != 1 {
			p.t.Errorf("call %s had the keys %v, want one", id, keys)
		}
	}
	p.verifyReaders("s")
	p.verifyState()
}

// allPoints has the points in their order.
var allPoints = []worker.Point{
	worker.PointClaimed, worker.PointDrained, worker.PointContextGiven, worker.PointModelCalled, worker.PointReplied,
	worker.PointPlanRecorded, worker.PointCallBegins, worker.PointCallEnded, worker.PointCallRecorded, worker.PointCallReported,
	worker.PointCallsEnded, worker.PointCommitBegins, worker.PointCommitted, worker.PointStopSeen,
	worker.PointStopKept, worker.PointFinishing, worker.PointFinished,
}

// dieEverywhere plays once without a death, once with each verdict for each call to a service, and once with a
// death at each passing of each point. It returns the moments that have occurred.
//
// The race detector triples the time of a play and sees the same code in each, so under it only every eighth call
// and passing is played. The tests run without it as well.
func dieEverywhere(t *testing.T, play func(t *testing.T, c *death), verdicts ...verdict) (hit map[string]bool) {
	t.Helper()
	hit = map[string]bool{}
	one := func(c death) bool {
		synctest.Test(t, func(t *testing.T) { play(t, &c) })
		if t.Failed() {
			t.Fatalf("cut at %+v", c)
		}
		hit[c.hit] = true
		return c.hit != ""
	}
	one(death{})
	for _, v := range verdicts {
		misses := 0
		for n := 1; misses < 3; n += stride { // the number of calls varies, as appends merge deltas
			if !one(death{verdict: v, n: n}) {
				misses++
			}
		}
	}
	for _, point := range allPoints {
		for n := 1; one(death{point: point, n: n}); n += stride {
		}
	}
	return hit
}
