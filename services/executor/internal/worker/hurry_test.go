package worker_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/worker"
)

// breaks makes a stream tier that can be away, which it is from the point on.
func breaks(p *play, at worker.Point) (away *atomic.Bool) {
	away = &atomic.Bool{}
	p.stream.gate = func(context.Context, *streamv1.AppendRequest) error {
		if away.Load() {
			return fault.New(fault.Unavailable, "LOG_UNAVAILABLE", "no log")
		}
		return nil
	}
	once := false
	p.passed = func(_ context.Context, _ *executor, point worker.Point) {
		if point == at && !once {
			once = true
			away.Store(true)
		}
	}
	return away
}

func TestAStopShortensTheWaitForTheStreamTierBeforeAPlanAndBeforeACommit(t *testing.T) {
	t.Parallel()
	limit := func(p *play) { p.agents["demo"] = limited(p.agents["demo"], time.Minute) }
	for name, c := range map[string]struct {
		at   worker.Point
		set  func(p *play)
		want statev1.RunStatus
	}{
		"a stop before a plan":       {worker.PointModelCalled, nil, interrupted},
		"a stop before a commit":     {worker.PointCallsEnded, nil, interrupted},
		"a deadline before a plan":   {worker.PointModelCalled, limit, failed},
		"a deadline before a commit": {worker.PointCallsEnded, limit, failed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newPlay(t)
				p.agents["demo"] = definition("demo", replies(ask("nothing", `{}`), text("never")), p.tool("nothing", agent.RetrySafe, nil))
				p.config.StreamPatience = 10 * time.Minute
				away := breaks(p, c.at)
				if c.set != nil {
					c.set(p)
				}
				p.open()
				run := p.state.startRun("s", "demo", "hi")
				time.Sleep(time.Minute)
				if c.set == nil {
					p.state.stopRun(run, interrupt, "")
				}
				begin := time.Now()
				p.until("over", func() bool { return p.state.find(run).run.GetStatus() == c.want })
				if took := time.Since(begin); took > 3*time.Second {
					t.Errorf("the end took %v", took)
				}
				away.Store(false)
				p.end(run)
				p.verifyReaders("s")
			})
		})
	}
}

func limited(a worker.Agent, limit time.Duration) worker.Agent {
	a.RunTimeout = limit
	return a
}
