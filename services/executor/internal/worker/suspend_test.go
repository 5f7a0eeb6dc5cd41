package worker_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/executor/internal/catalog"
	"github.com/holdfast-run/holdfast/services/executor/internal/worker"
)

// suspendingAgent is an agent whose only reply has calls of a tool, of two tools with an approval, and of one of
// the client's.
func suspendingAgent(p *system) catalog.Agent {
	book, pay := p.tool("book", agent.RetrySafe, nil), p.tool("pay", agent.RetryNever, nil)
	book.Approval, pay.Approval, pay.Approvers = true, true, agent.Others
	a := define("demo", stepReplies(
		callsReply("charge", `{"n":1}`, "book", `{"n":2}`, "locate", `{"n":3}`, "pay", `{"n":4}`),
		textReply("All ", "is done."),
	), p.tool("charge", agent.RetryNever, func(ctx context.Context, c *agent.Call) (any, error) {
		return "done " + c.ID, c.Update(func(draft agent.State) error {
			draft["charged"] = true
			return nil
		})
	}), book, pay, agent.Tool{Name: "locate", InputSchema: anyObject, Client: true, AnswerWithin: time.Hour})
	return a
}

func TestASuspendedRunGoesOnWithItsAnswersWhereverItsExecutorDies(t *testing.T) {
	t.Parallel()
	hit := dieEverywhere(t, func(t *testing.T, c *death) {
		p := newSystem(t)
		a := suspendingAgent(p)
		p.agents[a.Name] = a
		p.openMortal(c)
		first := p.startRun("s", "demo", "hi")
		if run := p.end(first); run.GetStatus() != statev1.RunStatus_RUN_STATUS_SUSPENDED_STEP_PARTIAL {
			t.Fatalf("run = %v, want it suspended", run)
		}
		p.answer("call_1", approval(true, ""))
		p.answer("call_2", result(`"done call_2"`))
		p.answer("call_3", approval(false, "too dear"))
		second := p.end(p.current())
		if second.GetStatus() != completed || second.GetMessageId() != p.run(first).GetMessageId() {
			t.Errorf("run = %v, want it completed in the same message", second)
		}
		p.verifyOnce()
		charged, booked := "[result call_0 done]", "[result call_1 done, approved]"
		if p.executions()["call_0"] > 1 || p.executions()["call_3"] > 0 {
			t.Errorf("executions = %v, want charge once at most and pay never", p.executions())
		}
		lines := p.conversation()
		state := p.customState("s")
		if slices.Contains(lines, "tool: [result call_0 unknown]") && c.hit != "" {
			charged = "[result call_0 unknown]"
		} else if state["charged"] != true {
			t.Errorf("state = %v, want that it was charged", state)
		}
		equalLines(t, "messages", lines, []string{
			"user: hi", "assistant: [call_0 charge] [call_1 book] [call_2 locate] [call_3 pay]", "tool: " + charged,
			"tool: " + booked, "tool: [result call_2 done]", "tool: [result call_3 failed, refused: too dear]", "assistant: All is done.",
		})
		stream := streamLines(p.records("s"))
		stream = slices.DeleteFunc(stream, func(line string) bool { return line == "1 state_patch" })
		if slices.Index(stream, "2 judged call_1 approve") > slices.Index(stream, "2 end call_1") {
			t.Errorf("stream = %v, want the decision before the end", stream)
		}
		if at := slices.Index(stream, "1 run_resumed run 1 2"); at > 0 { // calls end in any order
			slices.Sort(stream[at+1 : slices.Index(stream, "2 step_committed")])
		}
		equalLines(t, "stream", stream, []string{
			"0 run_started 1", "1 step_started", `1 args call_0 {"n":1}`, `1 args call_1 {"n":2}`, `1 args call_2 {"n":3}`, `1 args call_3 {"n":4}`,
			"1 start call_0", "1 start call_1", "1 start call_2 for a client", "1 start call_3", "1 end call_0",
			"1 asked call_1", "1 asked call_3", "1 step_committed", "1 run_suspended step_partial", "END PAUSED ",
			"1 run_resumed run 1 2",
			"2 end call_1", "2 end call_2", "2 end call_3", "2 judged call_1 approve", "2 judged call_3 reject", "2 step_committed",
			"3 step_started", "3 text All is done.", "3 step_committed", `3 run_completed "All is done."`, `END "All is done."`,
		})
	}, failBefore, failAfter, dieBefore, dieAfter)
	for _, want := range []worker.Point{worker.PointDrained, worker.PointCallBegins, worker.PointCallRecorded, worker.PointCommitted, worker.PointFinished} {
		if !hit[string(want)] {
			t.Errorf("the point %s was never passed", want)
		}
	}
}

func TestASuspendingCommitSaysWhatTheSessionWaitsFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		a := suspendingAgent(p)
		p.agents[a.Name] = a
		p.open()
		run := p.end(p.startRun("s", "demo", "hi"))
		commit := p.commits()[0]
		if len(commit.GetCalls()) != 3 || commit.GetSuspension().GetStepId() == "" {
			t.Fatalf("commit = %v, want three calls and a suspension", commit)
		}
		var lines []string
		for _, c := range commit.GetCalls() {
			if c.GetStepId() != commit.GetSuspension().GetStepId() {
				t.Errorf("call = %v, want the step of the suspension", c)
			}
			within := time.Until(time.UnixMilli(c.GetDeadlineAt())).Round(time.Minute)
			if c.GetDeadlineAt() == 0 {
				within = 0
			}
			lines = append(lines, fmt.Sprintf("%s %s %s approval %v within %v %s", c.GetToolCallId(), c.GetToolName(), c.GetInput(), c.GetApprovalId() != "", within, c.GetApprovers()))
		}
		equalLines(t, "calls", lines, []string{
			`call_1 book {"n":2} approval true within 0s APPROVERS_UNSPECIFIED`,
			`call_2 locate {"n":3} approval false within 1h0m0s APPROVERS_UNSPECIFIED`,
			`call_3 pay {"n":4} approval true within 0s APPROVERS_OTHERS`,
		})
		records := p.records("s")
		if end := records[len(records)-1].GetTerminal().GetEnd(); end.GetStatus() != streamv2.EndStatus_END_STATUS_PAUSED || run.GetOutput() != "" {
			t.Errorf("end = %v of %v, want it paused without an output", end, run)
		}
	})
}

func TestAnAnswerThatChangesDuringItsUseIsReadAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		a := define("demo", stepReplies(callsReply("locate", `{}`), textReply("ok")), agent.Tool{Name: "locate", InputSchema: anyObject, Client: true, AnswerWithin: time.Minute})
		p.agents[a.Name] = a
		var changed atomic.Bool
		p.passed = func(_ context.Context, _ *executor, point worker.Point) {
			if point == worker.PointDrained && changed.CompareAndSwap(false, true) {
				p.answer("call_0", result(`"done call_0"`))
			}
		}
		p.open()
		p.end(p.startRun("s", "demo", "hi"))
		time.Sleep(2 * time.Minute) // the call times out
		run := p.end(p.current())
		if run.GetStatus() != completed || len(p.released(run.GetRunId())) != 1 {
			t.Errorf("run = %v, want it completed after one release", run)
		}
		if lines := p.conversation(); !slices.Contains(lines, "tool: [result call_0 done]") {
			t.Errorf("messages = %s, want the new answer", strings.Join(lines, "\n"))
		}
		p.verifyReaders("s")
	})
}

func TestAResumedSessionWhoseCallsAreOpenSuspendsAgainAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		a := define("demo", stepReplies(callsReply("locate", `{}`), textReply("ok")), agent.Tool{Name: "locate", InputSchema: anyObject, Client: true})
		p.agents[a.Name] = a
		p.open()
		p.end(p.startRun("s", "demo", "hi"))
		p.stopRun("", interrupt, "") // the call stays open
		run := p.end(p.resume("s"))
		if run.GetStatus() != statev1.RunStatus_RUN_STATUS_SUSPENDED_CLIENT_TOOL {
			t.Errorf("run = %v, want it suspended", run)
		}
		p.answer("call_0", result(`"done call_0"`))
		if run := p.end(p.current()); run.GetStatus() != completed {
			t.Errorf("run = %v, want it completed", run)
		}
		p.verifyReaders("s")
	})
}
