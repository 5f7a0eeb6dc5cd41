package worker_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/worker"
)

// asking is an agent whose first reply makes the calls, of a tool of the server's, one
// that needs a yes and one of the client's.
func asking(p *play, calls ...string) worker.Agent {
	pay := p.tool("pay", agent.RetryNever, nil)
	pay.Approval = true
	return definition("demo", replies(ask(calls...), text("Done.")),
		p.tool("look", agent.RetrySafe, nil), pay, agent.Tool{Name: "locate", InputSchema: anyObject, Client: true})
}

// troubles are what becomes of the stream tier while a run suspends.
var troubles = map[string]func(p *play, point worker.Point){
	"none": func(*play, worker.Point) {},
	"away until the run has suspended": func(p *play, point worker.Point) {
		if point == worker.PointReplied {
			p.stream.Down.Store(true)
			time.AfterFunc(30*time.Second, func() { p.stream.Down.Store(false) })
		}
	},
	"the log is begun anew behind the last step": func(p *play, point worker.Point) {
		if point == worker.PointFinished {
			p.stream.Lose()
		}
	},
}

func TestEachOpenCallIsAskedOnceWhereverTheExecutorDies(t *testing.T) {
	t.Parallel()
	for name, calls := range map[string][]string{
		"approval": {"pay", `{"n":1}`},
		"client":   {"locate", `{"n":1}`},
		"mixed":    {"look", `{"n":1}`, "pay", `{"n":2}`, "locate", `{"n":3}`, "pay", `{"n":4}`},
	} {
		for trouble, happens := range troubles {
			t.Run(name+", "+trouble, func(t *testing.T) {
				t.Parallel()
				var verdicts []verdict
				if trouble == "none" { // else points are enough
					verdicts = []verdict{dieBefore, dieAfter}
				}
				playEverywhere(t, func(t *testing.T, c *cut) {
					p := newPlay(t)
					a := asking(p, calls...)
					p.agents[a.Name] = a
					p.start(c)
					dies := p.passed
					p.passed = func(ctx context.Context, e *executor, point worker.Point) {
						if e.id == "executor 1" {
							happens(p, point)
						}
						dies(ctx, e, point)
					}
					first := p.state.startRun("s", "demo", "hi")
					p.end(first)
					p.verifyAsked()
					p.verifyReaders("s")
				}, verdicts...)
			})
		}
	}
}

// verifyAsked checks that what stands in the stream asks each open call of the session
// once, with all that is needed to answer it, and behind its arguments.
func (p *play) verifyAsked() {
	p.t.Helper()
	lines := script(p.stream.records("s"))
	once := func(line string) {
		p.t.Helper()
		if n := stands(lines, line); n != 1 {
			p.t.Errorf("%q stands %d times in %q, want once", line, n, lines)
		}
	}
	asked, told := 0, 0
	for _, c := range p.state.sessions["s"].calls {
		once("1 args " + c.GetToolCallId() + " " + c.GetInput())
		asked++
		if c.GetKind() == statev1.CallKind_CALL_KIND_CLIENT_TOOL {
			once("1 start " + c.GetToolCallId() + " for a client")
			continue
		}
		once("1 start " + c.GetToolCallId())
		once("1 asked " + c.GetToolCallId())
		for _, r := range p.stream.records("s") {
			q := r.GetChunk().GetToolApprovalRequest()
			if q.GetToolCallId() == c.GetToolCallId() && (q.GetApprovalId() != c.GetApprovalId() || q.GetToolName() != c.GetToolName() || q.GetInput() != c.GetInput()) {
				p.t.Errorf("asked %v, want what the session waits for: %v", q, c)
			}
		}
	}
	for _, line := range lines {
		if strings.Contains(line, " asked ") || strings.HasSuffix(line, " for a client") {
			told++
		}
	}
	if asked == 0 || told != asked {
		p.t.Errorf("%d questions are told of %d open calls in %q", told, asked, lines)
	}
	if !slices.IsSorted([]int{slices.Index(lines, "1 step_started"), slices.Index(lines, "1 step_committed"), slices.Index(lines, "END PAUSED ")}) {
		p.t.Errorf("stream = %q, want it in order", lines)
	}
}

func stands(lines []string, line string) (n int) {
	for _, l := range lines {
		if l == line {
			n++
		}
	}
	return n
}

// A run that waits once more for what an earlier one has asked was never the one that asked,
// also where the state service files the question under it.
func TestARunThatSuspendsAgainAndIsLostDoesNotAskAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPlay(t)
		a := asking(p, "pay", `{}`)
		p.agents[a.Name] = a
		p.start(&cut{point: worker.PointFinished, n: 2})
		dies := p.passed
		p.passed = func(ctx context.Context, e *executor, point worker.Point) {
			p.state.mu.Lock()
			second := e.id == "executor 1" && p.state.find("s/run 2") != nil
			if second && point == worker.PointFinished {
				p.state.sessions["s"].calls[0].RunId = "s/run 2"
			}
			p.state.mu.Unlock()
			if second && point == worker.PointClaimed {
				p.stream.Down.Store(true)
				time.AfterFunc(30*time.Second, func() { p.stream.Down.Store(false) })
			}
			dies(ctx, e, point)
		}
		p.end(p.state.startRun("s", "demo", "hi"))
		p.end(p.state.resume("s"))
		lines := script(p.stream.records("s"))
		asked := slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !strings.Contains(line, " asked ") })
		if len(asked) != 1 {
			t.Errorf("shown %v, want one question", lines)
		}
		p.verifyReaders("s")
	})
}
