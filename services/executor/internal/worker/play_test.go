package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/worker"
)

// play is a house in which an executor may be lost once, and another one goes on.
type play struct {
	*house
	mu   sync.Mutex
	runs map[string]int // executions of tools, by call id
	keys map[string]map[string]bool
	lost bool // the first executor
}

func newPlay(t *testing.T, agents ...worker.Agent) *play {
	p := &play{house: newHouse(t, agents...), runs: map[string]int{}, keys: map[string]map[string]bool{}}
	p.config.DrainGrace = 1
	return p
}

// tool counts its executions, and does what it is given, if anything. A process that is
// dead runs nothing.
func (p *play) tool(name string, retry agent.Retry, do func(ctx context.Context, c *agent.Call) (any, error)) agent.Tool {
	return agent.Tool{Name: name, InputSchema: anyObject, Retry: retry, Execute: func(ctx context.Context, c *agent.Call) (any, error) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		p.mu.Lock()
		p.runs[c.ID]++
		if p.keys[c.ID] == nil {
			p.keys[c.ID] = map[string]bool{}
		}
		p.keys[c.ID][c.IdempotencyKey] = true
		p.mu.Unlock()
		if do != nil {
			return do(ctx, c)
		}
		return "done " + c.ID, nil
	}}
}

// cut is where the first executor dies.
type cut struct {
	point worker.Point // or, where it is empty,
	v     verdict      // at a call to a service
	n     int          // at the n-th time, from 1; never for 0
	hit   string
}

// start opens the first executor.
func (p *play) start(c *cut) *executor {
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
			e.line.kill()
			<-ctx.Done() // nothing comes behind
		}
	}
	e := p.open(func(call int, method string) verdict {
		if c.point == "" && c.n > 0 && call == c.n {
			c.hit = method
			return c.v
		}
		return pass
	})
	e.line.mu.Lock()
	defer e.line.mu.Unlock()
	e.line.onDead = func() {
		e.stop()
		p.state.silence(e.id)
		p.state.mu.Lock()
		p.lost = true
		p.state.announce()
		p.state.mu.Unlock()
	}
	return e
}

// until waits for the condition of the locked state, and replaces an executor that was
// lost.
func (p *play) until(what string, condition func() bool) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Hour)
	defer cancel()
	for {
		lost := false
		err := p.state.await(ctx, func() bool {
			lost = p.lost && p.workers == 1
			return lost || condition()
		})
		if err != nil {
			p.state.mu.Lock()
			defer p.state.mu.Unlock()
			for _, r := range p.state.order {
				p.t.Logf("run %v", r.run)
			}
			p.t.Fatalf("it never comes to this: %s", what)
		}
		if !lost {
			return
		}
		p.open()
	}
}

// end waits until the run is over, and gives it.
func (p *play) end(runID string) *statev1.Run {
	p.t.Helper()
	var run *statev1.Run
	p.until(runID+" ended", func() bool {
		r := p.state.find(runID)
		if r == nil {
			return false
		}
		run = r.run
		return !r.live()
	})
	synctest.Wait()
	return run
}

// ran gives how often tools were run, by call id.
func (p *play) ran() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.runs)
}

// once checks that each call had one key, and that readers have what stands.
func (p *play) once() {
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

// dialogue gives the messages of the session in lines.
func (p *play) dialogue() []string {
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	var lines []string
	for _, stored := range p.state.sessions["s"].messages {
		lines = append(lines, describe(stored.GetMessage()))
	}
	return lines
}

// points are all of them, in their order.
var points = []worker.Point{
	worker.PointClaimed, worker.PointDrained, worker.PointModelCalled, worker.PointReplied,
	worker.PointPlanRecorded, worker.PointCallBegins, worker.PointCallEnded, worker.PointCallRecorded, worker.PointCallTold,
	worker.PointCallsEnded, worker.PointCommitBegins, worker.PointCommitted, worker.PointStopSeen,
	worker.PointStopKept, worker.PointFinishing, worker.PointFinished,
}

// playEverywhere plays with a cut at each passing of each point, and with each verdict at
// each call to a service, and once without. It gives the points that were passed.
func playEverywhere(t *testing.T, play func(t *testing.T, c *cut), verdicts ...verdict) (hit map[string]bool) {
	t.Helper()
	hit = map[string]bool{}
	one := func(c cut) bool {
		synctest.Test(t, func(t *testing.T) { play(t, &c) })
		if t.Failed() {
			t.Fatalf("cut at %+v", c)
		}
		hit[c.hit] = true
		return c.hit != ""
	}
	one(cut{})
	for _, v := range verdicts {
		misses := 0
		for n := 1; misses < 3; n++ { // how many calls there are depends on how deltas meet
			if !one(cut{v: v, n: n}) {
				misses++
			}
		}
	}
	for _, point := range points {
		for n := 1; one(cut{point: point, n: n}); n++ {
		}
	}
	return hit
}

func equalLines(t testing.TB, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n%s\nwant:\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// says gives a model that says texts, one after another as the conversation has
// assistant messages.
func replies(steps ...func(say func(model.Event) bool)) mind {
	return func(_ context.Context, r model.Request, say func(model.Event) bool) error {
		n := 0
		for _, m := range r.Messages {
			if m.Role == agent.RoleAssistant {
				n++
			}
		}
		if n >= len(steps) {
			return fmt.Errorf("the model has nothing to say to %d messages", len(r.Messages))
		}
		steps[n](say)
		return nil
	}
}

func text(words ...string) func(func(model.Event) bool) {
	return func(say func(model.Event) bool) { speak(say, words...) }
}

func ask(calls ...string) func(func(model.Event) bool) {
	return func(say func(model.Event) bool) { request(say, calls...) }
}

// verifyState checks that a reader that applies what is shown of the custom state
// has what the state service has.
func (p *play) verifyState() {
	p.t.Helper()
	seen := map[string]any{}
	for _, r := range p.stream.records("s") {
		var patch []struct {
			Op, Path string
			Value    any
		}
		if text := r.GetChunk().GetStatePatch().GetPatches(); text != "" {
			if err := json.Unmarshal([]byte(text), &patch); err != nil {
				p.t.Fatal(err)
			}
		}
		for _, op := range patch {
			key, item := strings.CutSuffix(strings.TrimPrefix(op.Path, "/"), "/-")
			switch {
			case op.Op == "remove":
				delete(seen, key)
			case item:
				seen[key] = append(seen[key].([]any), op.Value)
			default:
				seen[key] = op.Value
			}
		}
	}
	got, _ := json.Marshal(seen)
	want, _ := json.Marshal(p.state.sessions["s"].state)
	if string(got) != string(want) && !(len(seen) == 0 && len(p.state.sessions["s"].state) == 0) {
		p.t.Errorf("readers have the state %s, want %s", got, want)
	}
}
