package worker_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/catalog"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/worker"
)

// strictAgent is an agent whose tools all need a number: one of the server, one with an approval, and one of the
// client.
func strictAgent(p *system, m modelFunc) catalog.Agent {
	schema := json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`)
	look, pay := p.tool("look", agent.RetrySafe, nil), p.tool("pay", agent.RetryNever, nil)
	look.InputSchema, pay.InputSchema, pay.Approval = schema, schema, true
	return define("demo", m, look, pay, agent.Tool{Name: "locate", InputSchema: schema, Client: true})
}

func TestARefusedCallHasAnEndAndNoStartWhereverTheExecutorDies(t *testing.T) {
	t.Parallel()
	refused := []string{"locate", `{"n":"x"}`, "gone", `{}`, "pay", `{}`, "look", `{}`}
	begin := []string{"0 run_started 1", "1 step_started", `1 args call_0 {"n":"x"}`, "1 args call_1 {}", "1 args call_2 {}", "1 args call_3 {}"}
	ends := []string{"1 end call_0", "1 end call_1", "1 end call_2", "1 end call_3"}
	done := []string{"1 step_committed", "2 step_started", "2 text Done.", "2 step_committed", `2 run_completed "Done."`, `END "Done."`}
	for name, test := range map[string]struct{ calls, want []string }{
		"alone": {refused, slices.Concat(begin, ends, done)},
		"beside one that runs": {
			append(slices.Clone(refused), "look", `{"n":1}`),
			slices.Concat(begin, []string{`1 args call_4 {"n":1}`, "1 start call_4"}, ends, []string{"1 end call_4"}, done),
		},
		"beside one that a client runs": {
			append(slices.Clone(refused), "locate", `{"n":1}`),
			slices.Concat(begin, []string{`1 args call_4 {"n":1}`, "1 start call_4 for a client"}, ends,
				[]string{"1 step_committed", "1 run_suspended step_partial", "END PAUSED "}),
		},
	} {
		for trouble, happens := range streamTroubles {
			t.Run(name+", "+trouble, func(t *testing.T) {
				t.Parallel()
				dieEverywhere(t, func(t *testing.T, c *death) {
					p := newSystem(t)
					a := strictAgent(p, stepReplies(callsReply(test.calls...), textReply("Done.")))
					p.agents[a.Name] = a
					p.openMortal(c)
					dies := p.passed
					p.passed = func(ctx context.Context, e *executor, point worker.Point) {
						if e.id == "executor 1" {
							happens(p, point)
						}
						dies(ctx, e, point)
					}
					p.end(p.startRun("s", "demo", "hi"))
					equalLines(t, "stream", streamLines(p.records("s")), test.want)
					for _, r := range p.records("s") {
						if end := r.GetChunk().GetToolEnd(); end != nil && (end.GetToolName() == "" || end.GetSuccess() != (end.GetToolCallId() == "call_4")) {
							t.Errorf("end = %v, want its name, and that it has failed", end)
						}
					}
					p.verifyReaders("s")
				})
			})
		}
	}
}

func TestACallOfAMessageThatAStopHasCutDoesNotStart(t *testing.T) {
	t.Parallel()
	for trouble, happens := range streamTroubles {
		t.Run(trouble, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newSystem(t)
				a := strictAgent(p, func(ctx context.Context, _ model.Request, say func(model.Event) bool) error {
					sendCalls(say, "locate", `{"n":1}`)
					<-ctx.Done()
					return ctx.Err()
				})
				p.agents[a.Name] = a
				p.passed = func(_ context.Context, _ *executor, point worker.Point) { happens(p, point) }
				p.open()
				run := p.startRun("s", "demo", "hi")
				time.Sleep(10 * time.Second)
				p.stopRun(run, interrupt, "enough")
				p.end(run)
				equalLines(t, "messages", p.conversation(), []string{"user: hi", "assistant: [call_0 locate]", "tool: [result call_0 failed]"})
				equalLines(t, "stream", streamLines(p.records("s")), []string{
					"0 run_started 1", "1 step_started", `1 args call_0 {"n":1}`, "1 end call_0", "1 step_committed", "1 run_interrupted enough", "END INTERRUPTED ",
				})
			})
		})
	}
}
