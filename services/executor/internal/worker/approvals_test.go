package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/worker"
)

func TestAnApprovedToolThatFailsIsAResultWithItsApproval(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		do   func(ctx context.Context, c *agent.Call) (any, error)
		want string
	}{
		"it fails":          {func(context.Context, *agent.Call) (any, error) { return nil, errors.New("no money") }, "no money"},
		"it panics":         {func(context.Context, *agent.Call) (any, error) { panic("boom") }, "has crashed"},
		"it takes too long": {func(ctx context.Context, _ *agent.Call) (any, error) { <-ctx.Done(); return nil, ctx.Err() }, "did not end within 1s"},
		"it gives too much": {func(context.Context, *agent.Call) (any, error) { return strings.Repeat("x", 70_000), nil }, "more than can be stored"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newSystem(t)
				p.environ = []string{"HOLDFAST_STATE_MAX_RESULT_BYTES=1000"}
				pay := p.tool("pay", agent.RetryNever, test.do)
				pay.Approval, pay.Timeout = true, time.Second
				a := define("demo", stepReplies(callsReply("pay", `{}`), textReply("ok")), pay)
				p.agents[a.Name] = a
				p.open()
				p.end(p.startRun("s", "demo", "hi"))
				p.answer("call_0", approval(true, "go on"))
				if run := p.end(p.current()); run.GetStatus() != completed || p.executions()["call_0"] != 1 {
					t.Errorf("run = %v after %v executions, want it completed after one", run, p.executions())
				}
				got := p.results()[0]
				if got.GetSuccess() || !strings.Contains(got.GetError(), test.want) {
					t.Errorf("result = %v, want a failure with %q", got, test.want)
				}
				id := p.openedCalls("s")[0].GetApprovalId()
				if v := got.GetApproval(); !v.GetApproved() || v.GetReason() != "go on" || v.GetApprovalId() != id {
					t.Errorf("approval = %v, want that of %s", v, id)
				}
				p.verifyReaders("s")
			})
		})
	}
}

// Whoever runs the drain of an approved call: its result and its stream have the decision once, before the end
// of the call.
func TestADecisionStandsWithItsCallWhereverTheExecutorDies(t *testing.T) {
	t.Parallel()
	for name, down := range map[string]worker.Point{"": "never", " without the stream tier": worker.PointDrained} {
		t.Run("a drain"+name, func(t *testing.T) {
			t.Parallel()
			dieEverywhere(t, func(t *testing.T, c *death) {
				p := newSystem(t)
				a := askingAgent(p, "pay", `{"n":1}`, "pay", `{"n":2}`)
				p.agents[a.Name] = a
				p.openMortal(c)
				dies := p.passed
				p.passed = func(ctx context.Context, e *executor, point worker.Point) {
					if e.id == "executor 1" && point == down {
						p.faults.streamDown.Store(true)
						time.AfterFunc(30*time.Second, func() { p.faults.streamDown.Store(false) })
					}
					dies(ctx, e, point)
				}
				p.end(p.startRun("s", "demo", "hi"))
				p.answer("call_0", approval(true, "go on"))
				p.answer("call_1", approval(false, ""))
				if run := p.end(p.current()); run.GetStatus() != completed || p.executions()["call_0"] > 1 || p.executions()["call_1"] > 0 {
					t.Errorf("run = %v after %v executions", run, p.executions())
				}
				how := "done"
				if p.results()[0].GetError() != "" {
					how = "unknown"
				}
				equalLines(t, "messages", p.conversation()[2:4], []string{
					"tool: [result call_0 " + how + ", approved: go on]", "tool: [result call_1 failed, refused]",
				})
				p.verifyDecisions(p.current(), "call_0 approve go on", "call_1 reject ")
				p.verifyReaders("s")
			})
		})
	}
}

// verifyDecisions checks that readers see each decision of the run once, with the id of its question, before the
// end of its call.
func (p *system) verifyDecisions(runID string, want ...string) {
	p.t.Helper()
	var told []string
	ended := map[string]bool{}
	for _, r := range p.records("s") {
		chunk := r.GetChunk()
		if chunk.GetAgentId() != runID {
			continue
		}
		ended[chunk.GetToolEnd().GetToolCallId()] = true
		if d := chunk.GetToolApprovalResponse(); d != nil {
			told = append(told, fmt.Sprintf("%s %s %s", d.GetToolCallId(), d.GetDecision(), d.GetReason()))
			if c := p.openedCall(d.GetToolCallId()); d.GetApprovalId() != c.GetApprovalId() || ended[d.GetToolCallId()] {
				p.t.Errorf("decision %v of call %v, end before it: %v", d, c, ended[d.GetToolCallId()])
			}
		}
	}
	slices.Sort(told)
	equalLines(p.t, "decisions", told, want)
}

// A client's result may have a megabyte. If the log refuses it, readers get it from the state service.
func TestALargeResultOfAClientIsStoredWhole(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		p.environ = []string{"HOLDFAST_STREAM_CHUNK_BYTES=524288"}
		a := askingAgent(p, "locate", `{}`, "locate", `{}`)
		p.agents[a.Name] = a
		p.open()
		p.end(p.startRun("s", "demo", "hi"))
		large := `"` + strings.Repeat("x", 1_000_000-2) + `"`
		p.answer("call_0", result(large))
		p.answer("call_1", result(`null`))
		if run := p.end(p.current()); run.GetStatus() != completed {
			t.Errorf("run = %v, want it completed", run)
		}
		kept := p.results()
		if kept[0].GetResult() != large || kept[1].GetResult() != "null" || !kept[1].GetSuccess() {
			t.Errorf("stored %d bytes and %v, want %d and null", len(kept[0].GetResult()), kept[1], len(large))
		}
		ends := map[string]*eventv1.ToolEnd{}
		for _, r := range p.records("s") {
			if end := r.GetChunk().GetToolEnd(); end != nil {
				ends[end.GetToolCallId()] = end
			}
		}
		if end := ends["call_0"]; !end.GetSuccess() || end.GetResult() != large {
			t.Errorf("readers have %d bytes of the large one", len(end.GetResult()))
		}
		if end := ends["call_1"]; !end.GetSuccess() || end.GetResult() != "null" {
			t.Errorf("the end for null is %v", end)
		}
		p.verifyReaders("s")
	})
}
