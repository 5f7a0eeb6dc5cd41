package worker_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
)

func TestAWrongClockOfAnExecutorMovesNoDeadline(t *testing.T) {
	t.Parallel()
	const within, limit = time.Minute, 10 * time.Second
	for _, lead := range []time.Duration{-time.Hour, 0, time.Hour} {
		t.Run(fmt.Sprint(lead), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newSystem(t)
				p.lead = lead
				a := define("demo", stepReplies(callsReply("locate", `{}`), callsReply("wait", `{}`), textReply("ok")),
					agent.Tool{Name: "locate", InputSchema: anyObject, Client: true, AnswerWithin: within},
					agent.Tool{Name: "wait", InputSchema: anyObject, ReadOnly: true, Execute: func(ctx context.Context, _ *agent.Call) (any, error) {
						pause(ctx, 2*limit)
						return 1, ctx.Err()
					}})
				a.RunTimeout = limit
				p.agents[a.Name] = a
				p.open()
				p.end(p.startRun("s", "demo", "hi"))
				if left := time.Until(time.UnixMilli(p.openedCall("call_0").GetDeadlineAt())); left > within || left < within-5*time.Second {
					t.Errorf("the call is answered within %v, want %v", left, within)
				}
				time.Sleep(within / 2)
				p.answer("call_0", result(`1`))
				began := time.Now()
				run := p.end(p.current())
				if took := time.Since(began); run.GetStatus() != statev1.RunStatus_RUN_STATUS_FAILED || took < limit || took > 2*limit-time.Second {
					t.Errorf("got %v after %v, want it ended after its limit of %v", run, took, limit)
				}
			})
		})
	}
}

func TestTheBeginAndTheEndOfARunHaveTheSameTimeLiveAndStored(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		model modelFunc
		steps int // that are stored
	}{
		"with a step":    {alwaysText("Hello"), 1},
		"outside a step": {stepReplies(), 0}, // the model fails
	} {
		for _, lead := range []time.Duration{-time.Hour, 0, time.Hour} {
			t.Run(fmt.Sprint(name, lead), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					p := newSystem(t, define("demo", of.model))
					p.lead = lead
					p.open()
					p.follow("s")
					run := p.end(p.startRun("s", "demo", "hi"))
					steps := p.steps("s")
					if len(steps) != of.steps {
						t.Fatalf("got %d steps, want %d", len(steps), of.steps)
					}
					for _, step := range steps {
						if run.GetCompletedAt() != step.GetCommittedAt() {
							t.Errorf("the run ended at %d, want %d", run.GetCompletedAt(), step.GetCommittedAt())
						}
					}
					found := 0
					for _, f := range p.records("s") {
						c, want := f.GetChunk(), int64(0)
						switch {
						case c.GetRunStarted() != nil:
							want = run.GetStartedAt()
						case c.GetStepCommitted() != nil, c.GetRunCompleted() != nil, c.GetError() != nil:
							want = run.GetCompletedAt()
						default:
							continue
						}
						found++
						if c.GetTimestamp() != want || want == 0 {
							t.Errorf("got %v, want the time %d", c, want)
						}
					}
					if found < 2+of.steps {
						t.Errorf("got %d chunks, want the begin, the commit and the end", found)
					}
				})
			})
		}
	}
}
