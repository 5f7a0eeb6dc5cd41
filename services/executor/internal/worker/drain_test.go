package worker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/worker"
)

func TestARunOfSeveralStepsGoesOnWhenItsClaimStreamBreaks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t, define("demo", modelFunc(func(ctx context.Context, r model.Request, say func(model.Event) bool) error {
			pause(ctx, 10*time.Second)
			if endsWithResults(r) {
				sendText(say, "done")
				return nil
			}
			sendCalls(say, "nothing", `{}`)
			return nil
		})))
		e := p.open()
		run := p.startRun("s", "demo", "hi")
		time.Sleep(5 * time.Second)
		e.connection.cutStreams()
		if ended := p.end(run); ended.GetAttempt() != 1 || len(p.released(run)) != 0 {
			t.Errorf("run = %v, released %d times; want it never released", ended, len(p.released(run)))
		}
	})
}

func TestACallThatTheEndOfADrainCutsRunsAgainOnlyWhereThatIsSafe(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		first := true
		slow := func(ctx context.Context, c *agent.Call) (any, error) {
			if first {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return "done " + c.ID, nil
		}
		p.agents["demo"] = define("demo", stepReplies(callsReply("charge", `{}`, "lookup", `{}`), textReply("done")),
			p.tool("charge", agent.RetryNever, slow), p.tool("lookup", agent.RetrySafe, slow))
		p.config.DrainGrace = 5 * time.Second
		e := p.open()
		run := p.startRun("s", "demo", "hi")
		time.Sleep(time.Second)
		begin := time.Now()
		e.stop()
		<-e.ended
		first = false
		if n := len(p.released(run)); n != 1 || time.Since(begin) > 8*time.Second {
			t.Errorf("released %d times after %v, want once, within the grace and a little", n, time.Since(begin))
		}
		p.open()
		p.end(run)
		equalLines(t, "messages", p.conversation(), []string{
			"user: hi", "assistant: [call_0 charge] [call_1 lookup]", "tool: [result call_0 unknown]", "tool: [result call_1 done]", "assistant: done",
		})
		if p.executions()["call_0"] != 1 || p.executions()["call_1"] != 2 {
			t.Errorf("executions = %v, want the safe one twice", p.executions())
		}
	})
}

func TestASuspendedRunIsNotReleasedAtShutdown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		p.agents["demo"] = define("demo", stepReplies(callsReply("locate", `{}`), textReply("ok")), agent.Tool{Name: "locate", InputSchema: anyObject, Client: true})
		p.passed = func(_ context.Context, e *executor, point worker.Point) {
			if point == worker.PointCommitted {
				e.stop()
			}
		}
		e := p.open()
		run := p.startRun("s", "demo", "hi")
		<-e.ended
		if r := p.run(run); len(p.released(run)) != 0 || r.GetStatus() != statev1.RunStatus_RUN_STATUS_SUSPENDED_CLIENT_TOOL {
			t.Errorf("run = %v, released %d times; want it suspended and not released", r, len(p.released(run)))
		}
	})
}
