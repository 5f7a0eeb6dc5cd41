package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/catalog"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/worker"
)

const (
	interrupted = statev1.RunStatus_RUN_STATUS_INTERRUPTED
	interrupt   = statev1.StopKind_STOP_KIND_INTERRUPT
	abort       = statev1.StopKind_STOP_KIND_ABORT
)

// hangingModel sends the words and waits for the end of its context, whose cause it stores in ended.
func hangingModel(ended *atomic.Pointer[error], words ...string) modelFunc {
	return func(ctx context.Context, _ model.Request, say func(model.Event) bool) error {
		for _, word := range words {
			say(model.TextDelta{Text: word})
		}
		<-ctx.Done()
		cause := context.Cause(ctx)
		ended.Store(&cause)
		return ctx.Err()
	}
}

func TestAStopReachesTheModelAtOnceAndKeepsWhatItHasSaid(t *testing.T) {
	t.Parallel()
	for name, quiet := range map[string]bool{"through the claim stream": false, "by a heartbeat": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var cause atomic.Pointer[error]
				p := newSystem(t, define("demo", hangingModel(&cause, "One ", "two ")))
				p.faults.stopsByHeartbeat = quiet
				p.open()
				run := p.startRun("s", "demo", "hi")
				time.Sleep(10 * time.Second)
				begin := time.Now()
				p.stopRun(run, interrupt, "enough")
				ended := p.end(run)
				if took := time.Since(begin); took > time.Second || !quiet && took > 50*time.Millisecond {
					t.Errorf("the stop took %v", took)
				}
				if ended.GetStatus() != interrupted || ended.GetFailure() != nil {
					t.Errorf("run = %v, want it interrupted", ended)
				}
				stop, ok := errors.AsType[worker.Stopped](*cause.Load())
				if !ok || stop.Kind != loop.StopInterrupt {
					t.Errorf("the model's context ended with %v, want the stop", *cause.Load())
				}
				equalLines(t, "messages", p.conversation(), []string{"user: hi", "assistant: One two "})
				if m := p.messages("s")[1]; m.GetMetadata()[agent.MetadataInterrupted] != "interrupt" {
					t.Errorf("message = %v, want that it was interrupted", m)
				}
				equalLines(t, "stream", streamLines(p.records("s")), []string{
					"0 run_started 1", "1 step_started", "1 text One two ", "1 step_committed", "1 run_interrupted enough", "END INTERRUPTED ",
				})
			})
		})
	}
}

func TestAnAbortedRunFailsAndOutranksAnInterrupt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var cause atomic.Pointer[error]
		p := newSystem(t, define("demo", hangingModel(&cause, "One ")))
		p.passed = func(_ context.Context, _ *executor, point worker.Point) {
			if point == worker.PointStopSeen {
				time.Sleep(time.Second) // both stops have arrived by now
			}
		}
		p.open()
		run := p.startRun("s", "demo", "hi")
		synctest.Wait()
		p.stopRun(run, interrupt, "")
		p.stopRun(run, abort, "")
		ended := p.end(run)
		if ended.GetStatus() != failed || ended.GetFailure().GetCode() != "framework_cancelled" || ended.GetOutput() != "" || ended.GetFailure().GetRetryable() {
			t.Errorf("run = %v, want it aborted", ended)
		}
		p.verifyReaders("s")
	})
}

func TestADeadlineEndsTheRunWhateverItIsAt(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]func(*system, *statev1.StartRunRequest){
		"of the run": func(p *system, r *statev1.StartRunRequest) { r.TimeoutMs = (3 * time.Hour).Milliseconds() },
		"of its agent": func(p *system, _ *statev1.StartRunRequest) {
			a := p.agents["demo"]
			a.RunTimeout = 3 * time.Hour
			p.agents["demo"] = a
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var cause atomic.Pointer[error]
				p := newSystem(t, define("demo", hangingModel(&cause, "One ")))
				p.config.ModelTimeout, p.config.HeartbeatInterval = 24*time.Hour, time.Minute
				// Hours pass here, so state checks for silent executors only every minute.
				p.environ = []string{"HOLDFAST_STATE_SILENT_AFTER=5m", "HOLDFAST_STATE_SWEEP_EVERY=1m", "HOLDFAST_STATE_CLAIM_POLL=1m"}
				r := &statev1.StartRunRequest{SessionId: "s", AgentType: "demo", Messages: userMessages("hi")}
				limit(p, r)
				run := p.post(r)
				begin := time.Now()
				p.open()
				synctest.Wait()
				time.Sleep(4 * time.Hour)
				ended := p.end(run)
				if ended.GetStatus() != failed || ended.GetFailure().GetCode() != "framework_deadline_exceeded" {
					t.Errorf("run = %v, want that its deadline has ended it", ended)
				}
				if stop, ok := errors.AsType[worker.Stopped](*cause.Load()); !ok || stop.Kind != loop.StopDeadline {
					t.Errorf("the model's context ended with %v after %v", *cause.Load(), time.Since(begin))
				}
			})
		})
	}
}

func TestAStopCutsToolsAndKeepsTheResultsThatAreThere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		var cause atomic.Pointer[error]
		a := define("demo", stepReplies(callsReply("quick", `{}`, "slow", `{}`, "queued", `{}`), textReply("never")),
			p.tool("quick", agent.RetryNever, nil),
			p.tool("slow", agent.RetryNever, func(ctx context.Context, c *agent.Call) (any, error) {
				if err := c.Update(func(draft agent.State) error { draft["dirty"] = true; return nil }); err != nil {
					return nil, err
				}
				<-ctx.Done()
				why := context.Cause(ctx)
				cause.Store(&why)
				return nil, ctx.Err()
			}),
			p.tool("queued", agent.RetryNever, nil))
		p.agents["demo"] = a
		p.config.ParallelCalls = 1
		p.open()
		run := p.startRun("s", "demo", "hi")
		time.Sleep(time.Second)
		p.stopRun(run, interrupt, "")
		if ended := p.end(run); ended.GetStatus() != interrupted {
			t.Errorf("run = %v, want it interrupted", ended)
		}
		if _, ok := errors.AsType[worker.Stopped](*cause.Load()); !ok {
			t.Errorf("the tool's context ended with %v, want the stop", *cause.Load())
		}
		if len(p.customState("s")) != 0 || p.executions()["call_2"] != 0 {
			t.Errorf("state = %v, executions %v; want nothing of the cut call, and the queued one never run", p.customState("s"), p.executions())
		}
		equalLines(t, "messages", p.conversation(), []string{
			"user: hi", "assistant: [call_0 quick] [call_1 slow] [call_2 queued]",
			"tool: [result call_0 done]", "tool: [result call_1 unknown]", "tool: [result call_2 failed]",
		})
		got := streamLines(p.records("s"))
		for _, want := range []string{"1 end call_0", "1 end call_1", "1 end call_2", "1 step_committed"} {
			if !slices.Contains(got, want) {
				t.Errorf("stream = %s, want %s", strings.Join(got, "\n"), want)
			}
		}
		p.verifyReaders("s")
	})
}

func TestAStopCutsTheWaitBeforeARetryACompactionAndAGuard(t *testing.T) {
	t.Parallel()
	cases := map[string]func(p *system, a *catalog.Agent){
		"wait": func(_ *system, a *catalog.Agent) {
			a.Models["fake/mind"] = modelFunc(func(context.Context, model.Request, func(model.Event) bool) error {
				return &model.Error{Code: model.CodeRateLimited, Retryable: true, RetryAfter: time.Minute}
			})
		},
		"guard": func(_ *system, a *catalog.Agent) {
			a.Models["fake/mind"] = stepReplies(textReply("an end"))
			a.Guard.OnReply = func(ctx context.Context, _ agent.Ending) (agent.Verdict, error) {
				<-ctx.Done()
				return agent.Verdict{}, ctx.Err()
			}
		},
		"compaction": func(_ *system, a *catalog.Agent) {
			a.Models["fake/mind"] = stepReplies(callsReply("nothing", `{}`), textReply("an end"))
			a.Context = agent.ContextPolicy{
				MaxTokens: 20, KeepTokens: 1, Compaction: agent.CompactSummary,
				Count: func(agent.Message) int { return 10 },
				Compact: func(ctx context.Context, _ *agent.RunView, _ []agent.Message) (string, error) {
					<-ctx.Done()
					return "", ctx.Err()
				},
			}
		},
	}
	for name, set := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newSystem(t, define("demo", stepReplies()))
				a := p.agents["demo"]
				set(p, &a)
				p.agents["demo"] = a
				p.open()
				run := p.startRun("s", "demo", "hi")
				time.Sleep(10 * time.Second)
				begin := time.Now()
				p.stopRun(run, interrupt, "")
				if ended := p.end(run); ended.GetStatus() != interrupted || time.Since(begin) > time.Second {
					t.Errorf("run = %v after %v, want it interrupted at once", ended, time.Since(begin))
				}
				p.verifyReaders("s")
			})
		})
	}
}

func TestAStopWorksWhileTheStreamTierIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var cause atomic.Pointer[error]
		p := newSystem(t, define("demo", hangingModel(&cause, slices.Repeat([]string{strings.Repeat("word ", 1000)}, 250)...)))
		away := &outage{}
		p.faults.gate = away.gate
		p.config.StreamPatience = time.Hour
		p.open()
		run := p.startRun("s", "demo", "hi")
		time.Sleep(time.Minute) // the model waits for the stream by now
		begin := time.Now()
		p.stopRun(run, interrupt, "")
		p.until("interrupted", func() bool { return p.run(run).GetStatus() == interrupted })
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("the stop took %v", took)
		}
		away.stop()
		p.end(run)
		p.verifyReaders("s")
		got := streamLines(p.records("s"))
		if len(got) != 6 || got[len(got)-1] != "END INTERRUPTED " || joinedText(p.records("s")) != p.messages("s")[1].GetParts()[0].GetText().GetText() {
			t.Errorf("stream has %d lines and ends with %q", len(got), got[len(got)-1])
		}
	})
}

func TestAStopThatComesWhileTheOutcomeIsCommittedChangesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t, define("demo", stepReplies(textReply("done"))))
		var run string
		p.passed = func(_ context.Context, _ *executor, point worker.Point) {
			if point == worker.PointCommitBegins {
				p.stopRun(run, abort, "")
				time.Sleep(time.Second) // the stop has arrived by now
			}
		}
		run = p.startRun("s", "demo", "hi")
		p.open()
		if ended := p.end(run); ended.GetStatus() != completed || ended.GetOutput() != `"done"` {
			t.Errorf("run = %v, want it completed", ended)
		}
	})
}

func TestAStoppedRunEndsOnceWhereverItsExecutorDies(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]statev1.StopKind{"interrupt": interrupt, "abort": abort} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dieEverywhere(t, func(t *testing.T, c *death) {
				p := newSystem(t)
				p.agents["demo"] = define("demo", stepReplies(callsReply("charge", `{}`, "slow", `{}`), textReply("never")),
					p.tool("charge", agent.RetryNever, nil),
					p.tool("slow", agent.RetrySafe, func(ctx context.Context, _ *agent.Call) (any, error) {
						<-ctx.Done()
						return nil, ctx.Err()
					}))
				p.openMortal(c)
				run := p.startRun("s", "demo", "hi")
				p.until("tools run or the executor is lost", func() bool {
					return len(p.recordedResults("s")) > 0 || p.run(run).GetAttempt() > 1
				})
				p.stopRun(run, kind, "")
				ended := p.end(run)
				want, last := interrupted, "END INTERRUPTED "
				if kind == abort {
					want, last = failed, "END "
				}
				got := streamLines(p.records("s"))
				if ended.GetStatus() != want || !strings.HasPrefix(got[len(got)-1], last) {
					t.Errorf("run = %v, stream %s", ended, strings.Join(got, "\n"))
				}
				if p.executions()["call_0"] > 1 {
					t.Errorf("charge ran %d times", p.executions()["call_0"])
				}
				p.verifyOnce()
				for _, line := range p.conversation()[1:] {
					if !strings.HasPrefix(line, "assistant:") && !strings.HasPrefix(line, "tool:") {
						t.Errorf("message %q", line)
					}
				}
			}, failAfter, dieBefore, dieAfter)
		})
	}
}

func TestWhatHooksWriteInAStepThatAStopCutsDoesNotCount(t *testing.T) {
	t.Parallel()
	dieEverywhere(t, func(t *testing.T, c *death) {
		var cause atomic.Pointer[error]
		p := newSystem(t)
		hanging := hangingModel(&cause, "One ")
		a := define("demo", modelFunc(func(ctx context.Context, r model.Request, say func(model.Event) bool) error {
			if !endsWithResults(r) {
				sendCalls(say, "write", `{}`)
				return nil
			}
			return hanging(ctx, r, say)
		}), p.tool("write", agent.RetrySafe, func(_ context.Context, c *agent.Call) (any, error) {
			putState(c, "k", "tool")
			return "done " + c.ID, nil
		}))
		a.Hooks.BeforeModel = func(_ context.Context, h *agent.HookCall, _ agent.ModelCall) {
			putState(h, "before", fmt.Sprint(h.Step))
		}
		a.Hooks.AfterModel = func(_ context.Context, h *agent.HookCall, _ agent.ModelCall, _ agent.Message, _ error) {
			putState(h, "after", fmt.Sprint(h.Step))
		}
		a.Hooks.OnMessage = func(_ context.Context, h *agent.HookCall, m agent.Message) {
			if m.Role == agent.RoleAssistant {
				putState(h, "message", fmt.Sprint(h.Step))
			}
		}
		p.agents["demo"] = a
		p.openMortal(c)
		run := p.startRun("s", "demo", "hi")
		p.until("the second step", func() bool { return p.session("s").GetSession().GetStepCount() == 1 })
		time.Sleep(10 * time.Second)
		p.stopRun(run, interrupt, "")
		if ended := p.end(run); ended.GetStatus() != interrupted {
			t.Errorf("run = %v, want it interrupted", ended)
		}
		for key, value := range p.customState("s") {
			if value != "tool" && value != "1" {
				t.Errorf("state %s = %v, want nothing of the second step", key, value)
			}
		}
		p.verifyOnce()
	}, dieBefore, dieAfter)
}
