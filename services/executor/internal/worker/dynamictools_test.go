package worker_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/worker"
)

// The calls of dynamic tools are marked wherever they are shown and stored, whichever executor shows them, also
// after a loss of the log.
func TestACallOfADynamicToolSaysSoEverywhere(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		dieEverywhere(t, func(t *testing.T, c *death) {
			p := newSystem(t)
			far := p.tool("far", agent.RetrySafe, nil)
			far.Dynamic = true
			p.agents["demo"] = define("demo", stepReplies(callsReply("near", `{}`, "far", `{}`, "nowhere", `{}`), textReply("done")), p.tool("near", agent.RetrySafe, nil), far)
			p.openMortal(c)
			dies := p.passed
			var loses atomic.Bool
			loses.Store(lost)
			p.passed = func(ctx context.Context, e *executor, point worker.Point) {
				if point == worker.PointPlanRecorded && loses.CompareAndSwap(true, false) {
					p.loseLog()
				}
				dies(ctx, e, point)
			}
			p.end(p.startRun("s", "demo", "hi"))
			p.verifyDynamic()
			p.verifyOnce()
		}, dieBefore, dieAfter)
	}
}

func (p *system) verifyDynamic() {
	p.t.Helper()
	told, kept := 0, 0
	check := func(what, name string, dynamic bool, n *int) {
		*n++
		if dynamic != (name == "far") {
			p.t.Errorf("%s of %s: dynamic = %v", what, name, dynamic)
		}
	}
	for _, r := range p.records("s") {
		if e := r.GetChunk().GetToolArgStreamStart(); e != nil {
			check("the arguments", e.GetToolName(), e.GetDynamic(), &told)
		}
		if e := r.GetChunk().GetToolStart(); e != nil {
			check("the start", e.GetToolName(), e.GetDynamic(), &told)
		}
	}
	for _, m := range p.messages("s") {
		for _, part := range m.GetParts() {
			if c := part.GetToolCall(); c != nil {
				check("the call", c.GetToolName(), c.GetDynamic(), &kept)
			}
		}
	}
	if told < 5 || kept != 3 {
		p.t.Errorf("%d chunks and %d parts of calls, want those of three", told, kept)
	}
}
