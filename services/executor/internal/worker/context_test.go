package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/catalog"
	"github.com/holdfast-run/holdfast/services/executor/internal/worker"
)

// closing returns an agent that gets rows before each model call and of its tool look, and loses its tool pay after the
// first reply.
func closing(p *system) catalog.Agent {
	a := define("demo", stepReplies(callsReply("look", `{}`), callsReply("pay", `{}`), textReply("done")),
		p.tool("look", agent.RetrySafe, func(_ context.Context, call *agent.Call) (any, error) {
			return "done " + call.ID, errors.Join(
				call.AddContext(agent.ContextRow{Kind: agent.ContextMemory, Key: "tea", Text: "Likes tea."}),
				call.AddContext(agent.ContextRow{Kind: agent.ContextMemory, Key: "tea", Text: "Likes tea."}),
			)
		}), p.tool("pay", agent.RetryNever, nil))
	a.StepContext = func(_ context.Context, h *agent.HookCall, v agent.StepView) ([]agent.ContextRow, error) {
		appendState(h, "asked")
		rows := []agent.ContextRow{{Kind: agent.ContextInstruction, Key: "tone", Text: "Be kind."}}
		if v.Steps == 1 {
			rows = append(rows, agent.ContextRow{Kind: agent.ContextTools, Text: "No payments.", Disable: []string{"pay"}})
		}
		return rows, nil
	}
	return a
}

func TestRowsOfContextAreStoredOnceWhereverTheExecutorDies(t *testing.T) {
	t.Parallel()
	hit := dieEverywhere(t, func(t *testing.T, c *death) {
		p := newSystem(t)
		p.agents["demo"] = closing(p)
		p.openMortal(c)
		if run := p.end(p.startRun("s", "demo", "hi")); run.GetStatus() != completed {
			t.Errorf("run = %v, want it completed", run)
		}
		equalLines(t, "messages", p.conversation(), []string{
			"user: hi", "context: Be kind.", "assistant: [call_0 look]", "tool: [result call_0 done]", "context: Likes tea.", "context: No payments.",
			"assistant: [call_0_1 pay]", "tool: [result call_0_1 failed]", "assistant: done",
		})
		if got, want := p.stateText(), `{"asked":["asked","asked","asked"]}`; got != want {
			t.Errorf("state = %s, want %s", got, want)
		}
		for _, m := range p.messages("s") {
			if isContext := m.GetRole() == eventv1.Role_ROLE_CONTEXT; isContext != m.GetHidden() {
				t.Errorf("message %v: hidden is %v", m, m.GetHidden())
			}
		}
		for _, text := range []string{"Be kind.", "Likes tea.", "No payments."} {
			for _, line := range comparableLines(p.records("s")) {
				if strings.Contains(line, text) {
					t.Errorf("readers see %q, want no row of context", line)
				}
			}
		}
		p.verifyOnce()
	}, failBefore, failAfter, dieBefore, dieAfter)
	if !hit[string(worker.PointContextGiven)] {
		t.Errorf("the moments were %v, want one between the hook and the commit", hit)
	}
}

func TestAStepHasABoundOfRowsAndAFailedCallAddsNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		var over error
		p.agents["demo"] = define("demo", stepReplies(callsReply("many", `{}`), callsReply("fails", `{}`), textReply("done")),
			p.tool("many", agent.RetryNever, func(_ context.Context, call *agent.Call) (any, error) {
				for n := range agent.MaxContextRows {
					must(t, call.AddContext(agent.ContextRow{Kind: agent.ContextNotice, Text: fmt.Sprint("Row ", n)}))
				}
				over = call.AddContext(agent.ContextRow{Kind: agent.ContextNotice, Text: "Too many."})
				return "done", nil
			}),
			p.tool("fails", agent.RetryNever, func(_ context.Context, call *agent.Call) (any, error) {
				must(t, call.AddContext(agent.ContextRow{Kind: agent.ContextNotice, Text: "Dropped."})) // the next step counts anew
				return nil, errors.New("it failed")
			}))
		p.open()
		if run := p.end(p.startRun("s", "demo", "hi")); run.GetStatus() != completed {
			t.Errorf("run = %v, want it completed", run)
		}
		if fault.ReasonOf(over) != "CONTEXT_TOO_MANY" {
			t.Errorf("row %d: got %v, want CONTEXT_TOO_MANY", agent.MaxContextRows+1, over)
		}
		rows := slices.DeleteFunc(p.conversation(), func(line string) bool { return !strings.HasPrefix(line, "context:") })
		if len(rows) != agent.MaxContextRows || slices.Contains(rows, "context: Dropped.") {
			t.Errorf("got the rows %q, want %d, and none of the failed call", rows, agent.MaxContextRows)
		}
	})
}

func TestContextThatCannotBeStoredFailsTheRun(t *testing.T) {
	t.Parallel()
	for name, given := range map[string]struct {
		rows []agent.ContextRow
		err  error
	}{
		"an error":       {err: errors.New("the memory is away")},
		"a row too many": {rows: slices.Repeat([]agent.ContextRow{{Kind: agent.ContextNotice, Text: "x"}}, agent.MaxContextRows+1)},
		"no text":        {rows: []agent.ContextRow{{Kind: agent.ContextNotice}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newSystem(t)
				a := define("demo", stepReplies(textReply("done")))
				a.StepContext = func(context.Context, *agent.HookCall, agent.StepView) ([]agent.ContextRow, error) {
					return given.rows, given.err
				}
				p.agents["demo"] = a
				p.open()
				run := p.end(p.startRun("s", "demo", "hi"))
				if f := run.GetFailure(); f.GetCode() != "framework_internal_error" || !strings.Contains(f.GetDetail(), "StepContext") {
					t.Errorf("run = %v, want it failed with what StepContext has done", run)
				}
				equalLines(t, "messages", p.conversation(), []string{"user: hi"})
			})
		})
	}
}

// What an application disables while a run waits counts when the run continues, at another executor, and after a rewind no
// more.
func TestDisabledToolsStayDisabledAcrossASuspensionAndNotAfterARewind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		pay := p.tool("pay", agent.RetryNever, nil)
		pay.Approval = true
		p.agents["demo"] = define("demo", stepReplies(callsReply("pay", `{}`), textReply("done")), pay)
		first := p.open()
		p.end(p.startRun("s", "demo", "hi"))
		row := agent.ContextRow{Kind: agent.ContextTools, Disable: []string{"pay"}}.Message("", agent.ContextOfApp)
		_, err := p.sessionsAPI().AppendMessages(p.context(), &statev1.AppendMessagesRequest{
			Tenant: tenant, SessionId: "s", Messages: []*eventv1.Message{{
				Id: "row", Role: eventv1.Role_ROLE_CONTEXT, Hidden: true, Metadata: row.Metadata, Parts: userMessages("")[0].GetParts(),
			}},
		})
		must(t, err)
		first.stop()
		p.open()
		p.answer(p.openedCalls("s")[0].GetToolCallId(), approval(true, ""))
		if s := p.settle().GetSession(); s.GetStatus() != statev1.SessionStatus_SESSION_STATUS_COMPLETED {
			t.Fatalf("session = %v, want it completed", s)
		}
		if failed := p.results()[0]; !strings.Contains(failed.GetError(), "tool_disabled") || len(p.executions()) != 0 {
			t.Errorf("the result is %v after %v executions, want tool_disabled and none", failed, p.executions())
		}
		again := p.post(&statev1.StartRunRequest{SessionId: "s", AgentType: "demo", Messages: userMessages("hello"), Intent: &statev1.StartRunRequest_Edit{
			Edit: &statev1.Edit{MessageId: p.messages("s")[0].GetId()},
		}})
		p.end(again)
		calls := p.openedCalls("s")
		p.answer(calls[len(calls)-1].GetToolCallId(), approval(true, ""))
		p.settle()
		if results := p.results(); len(results) != 1 || !results[0].GetSuccess() {
			t.Errorf("after the rewind the results are %v, want the tool's", results)
		}
	})
}
