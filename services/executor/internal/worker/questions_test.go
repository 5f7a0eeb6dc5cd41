package worker_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/catalog"
	"github.com/holdfast-run/holdfast/services/executor/internal/worker"
)

// askingAgent is an agent whose first reply has the calls. Its tools are one of the server, one with an
// approval, and one of the client.
func askingAgent(p *system, calls ...string) catalog.Agent {
	pay := p.tool("pay", agent.RetryNever, nil)
	pay.Approval = true
	return define("demo", stepReplies(callsReply(calls...), textReply("Done.")),
		p.tool("look", agent.RetrySafe, nil), pay, agent.Tool{Name: "locate", InputSchema: anyObject, Client: true})
}

// streamTroubles has failures of the stream tier during the suspension of a run.
var streamTroubles = map[string]func(p *system, point worker.Point){
	"none": func(*system, worker.Point) {},
	"away until the run has suspended": func(p *system, point worker.Point) {
		if point == worker.PointReplied {
			p.faults.streamDown.Store(true)
			time.AfterFunc(30*time.Second, func() { p.faults.streamDown.Store(false) })
		}
	},
	"the log is begun anew behind the last step": func(p *system, point worker.Point) {
		if point == worker.PointFinished {
			p.loseLog()
		}
	},
}

func TestEachOpenCallHasOneQuestionWhereverTheExecutorDies(t *testing.T) {
	t.Parallel()
	for name, calls := range map[string][]string{
		"approval": {"pay", `{"n":1}`},
		"client":   {"locate", `{"n":1}`},
		"mixed":    {"look", `{"n":1}`, "pay", `{"n":2}`, "locate", `{"n":3}`, "pay", `{"n":4}`},
	} {
		for trouble, happens := range streamTroubles {
			t.Run(name+", "+trouble, func(t *testing.T) {
				t.Parallel()
				var verdicts []verdict
				if trouble == "none" { // otherwise points are enough
					verdicts = []verdict{dieBefore, dieAfter}
				}
				dieEverywhere(t, func(t *testing.T, c *death) {
					p := newSystem(t)
					a := askingAgent(p, calls...)
					p.agents[a.Name] = a
					p.openMortal(c)
					dies := p.passed
					p.passed = func(ctx context.Context, e *executor, point worker.Point) {
						if e.id == "executor 1" {
							happens(p, point)
						}
						dies(ctx, e, point)
					}
					first := p.startRun("s", "demo", "hi")
					p.end(first)
					p.verifyQuestions()
					p.verifyReaders("s")
				}, verdicts...)
			})
		}
	}
}

// verifyQuestions checks that readers see one question for each open call, with all that an answer needs, after
// the arguments of the call.
func (p *system) verifyQuestions() {
	p.t.Helper()
	lines := streamLines(p.records("s"))
	once := func(line string) {
		p.t.Helper()
		if n := countLines(lines, line); n != 1 {
			p.t.Errorf("%q is %d times in %q, want once", line, n, lines)
		}
	}
	asked, told := 0, 0
	for _, c := range p.openedCalls("s") {
		once("1 args " + c.GetToolCallId() + " " + c.GetInput())
		asked++
		if c.GetKind() == statev1.CallKind_CALL_KIND_CLIENT_TOOL {
			once("1 start " + c.GetToolCallId() + " for a client")
			continue
		}
		once("1 start " + c.GetToolCallId())
		once("1 asked " + c.GetToolCallId())
		for _, r := range p.records("s") {
			q := r.GetChunk().GetToolApprovalRequest()
			if q.GetToolCallId() == c.GetToolCallId() && (q.GetApprovalId() != c.GetApprovalId() || q.GetToolName() != c.GetToolName() || q.GetInput() != c.GetInput()) {
				p.t.Errorf("question %v, want that of the open call %v", q, c)
			}
		}
	}
	for _, line := range lines {
		if strings.Contains(line, " asked ") || strings.HasSuffix(line, " for a client") {
			told++
		}
	}
	if asked == 0 || told != asked {
		p.t.Errorf("%d questions for %d open calls in %q", told, asked, lines)
	}
	if !slices.IsSorted([]int{slices.Index(lines, "1 step_started"), slices.Index(lines, "1 step_committed"), slices.Index(lines, "END PAUSED ")}) {
		p.t.Errorf("stream = %q, want it in order", lines)
	}
}

func countLines(lines []string, line string) (n int) {
	for _, l := range lines {
		if l == line {
			n++
		}
	}
	return n
}

func TestARunThatSuspendsAgainAndIsLostDoesNotAskAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		a := askingAgent(p, "pay", `{}`)
		p.agents[a.Name] = a
		p.openMortal(&death{point: worker.PointFinished, n: 2})
		dies := p.passed
		var resumed atomic.Bool
		p.passed = func(ctx context.Context, e *executor, point worker.Point) {
			if e.id == "executor 1" && resumed.Load() && point == worker.PointClaimed {
				p.faults.streamDown.Store(true)
				time.AfterFunc(30*time.Second, func() { p.faults.streamDown.Store(false) })
			}
			dies(ctx, e, point)
		}
		p.end(p.startRun("s", "demo", "hi"))
		p.stopRun("", interrupt, "") // the call stays open
		resumed.Store(true)
		if run := p.end(p.resume("s")); run.GetStatus() != statev1.RunStatus_RUN_STATUS_SUSPENDED_CLIENT_TOOL {
			t.Errorf("run = %v, want it suspended", run)
		}
		lines := streamLines(p.records("s"))
		asked := slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !strings.Contains(line, " asked ") })
		if len(asked) != 1 {
			t.Errorf("shown %v, want one question", lines)
		}
		p.verifyReaders("s")
	})
}
