package worker_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/catalog"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/worker"
)

// waitingFunctions has the functions of an agent that wait for their context: how to set one, and the end of the run.
var waitingFunctions = map[string]struct {
	set    func(a *catalog.Agent, wait func(context.Context) error)
	status statev1.RunStatus
	detail string
}{
	"Prompt": {
		func(a *catalog.Agent, wait func(context.Context) error) {
			a.Prompt = func(ctx context.Context, _ *agent.RunView) (string, error) { return "", wait(ctx) }
		},
		failed, `the Prompt function of the agent "demo" has given no answer: it did not return within 10s`,
	},
	"StopWhen": {
		func(a *catalog.Agent, wait func(context.Context) error) {
			a.StopWhen = func(ctx context.Context, _ *agent.Progress) (bool, error) { return true, wait(ctx) }
		},
		completed, "",
	},
	"ApproveWhen": {
		func(a *catalog.Agent, wait func(context.Context) error) {
			a.Tools[0].ApproveWhen = func(ctx context.Context, _ *agent.Call) (bool, error) { return false, wait(ctx) }
		},
		statev1.RunStatus_RUN_STATUS_SUSPENDED_CLIENT_TOOL, "",
	},
	"Guard": {
		func(a *catalog.Agent, wait func(context.Context) error) {
			a.Guard.OnReply = func(ctx context.Context, _ agent.Ending) (agent.Verdict, error) { return agent.Verdict{}, wait(ctx) }
		},
		failed, "the completion guard failed: the agent's guard has not answered within 1m0s",
	},
	"BeforeRun": {
		func(a *catalog.Agent, wait func(context.Context) error) {
			a.Hooks.BeforeRun = func(ctx context.Context, _ *agent.HookCall) error { return wait(ctx) }
		},
		failed, "the hook BeforeRun has failed: it did not end in time",
	},
}

// waitingSystem is a system whose agent has such a function. ended receives the causes for which its context ended.
func waitingSystem(t *testing.T, set func(a *catalog.Agent, wait func(context.Context) error)) (p *system, ended chan error) {
	t.Helper()
	p, ended = newSystem(t), make(chan error, 10)
	a := define("demo", stepReplies(callsReply("pay", `{}`), textReply("ok")), p.tool("pay", agent.RetryNever, nil))
	set(&a, func(ctx context.Context) error {
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return ctx.Err()
	})
	p.agents["demo"] = a
	return p, ended
}

func TestTheContextOfAFunctionEndsWithItsTimeLimit(t *testing.T) {
	t.Parallel()
	for name, test := range waitingFunctions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, ended := waitingSystem(t, test.set)
				p.open()
				run := p.end(p.startRun("s", "demo", "hi"))
				if run.GetStatus() != test.status || run.GetFailure().GetDetail() != test.detail {
					t.Errorf("run = %v, want it %v with %q", run, test.status, test.detail)
				}
				if cause := <-ended; strings.Contains(cause.Error(), "stopped") {
					t.Errorf("the context ended because of %v, want the limit", cause)
				}
				p.verifyReaders("s")
			})
		})
	}
}

func TestTheContextOfAFunctionEndsWithAStop(t *testing.T) {
	t.Parallel()
	for name, test := range waitingFunctions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, ended := waitingSystem(t, test.set)
				p.open()
				run := p.startRun("s", "demo", "hi")
				time.Sleep(3 * time.Second)
				begin := time.Now()
				p.stopRun(run, interrupt, "")
				if got := p.end(run); got.GetStatus() != interrupted || time.Since(begin) > 2*time.Second {
					t.Errorf("run = %v after %v, want it interrupted at once", got, time.Since(begin))
				}
				if cause := <-ended; !errors.As(cause, new(worker.Stopped)) {
					t.Errorf("the context ended because of %v, want the stop", cause)
				}
				p.verifyReaders("s")
			})
		})
	}
}

// A function answers differently each time. A new owner of the run keeps what the plan of the former one says.
func TestAFunctionThatAnswersDifferentlyAfterATakeoverChangesNoPlan(t *testing.T) {
	t.Parallel()
	hit := dieEverywhere(t, func(t *testing.T, c *death) {
		p := newSystem(t)
		var mu sync.Mutex
		asked := map[string]int{}
		alternate := func(_ context.Context, call *agent.Call) (bool, error) {
			mu.Lock()
			defer mu.Unlock()
			asked[call.ID]++
			return asked[call.ID]%2 == 1, nil // waits for a human at first
		}
		pay, note := p.tool("pay", agent.RetryNever, nil), p.tool("note", agent.RetryNever, nil)
		pay.ApproveWhen = alternate
		p.agents["demo"] = define("demo", stepReplies(callsReply("pay", `{}`, "note", `{}`), textReply("ok")), pay, note)
		p.openMortal(c)
		p.end(p.startRun("s", "demo", "hi"))
		mu.Lock()
		questions := asked["call_0"]
		mu.Unlock()
		open := len(p.openedCalls("s"))
		if planned := p.executions()["call_1"] > 0; planned && questions == 1 && open != 1 {
			t.Errorf("%d calls wait after %d questions, want the one that the plan says", open, questions)
		}
		if open == 1 {
			if p.executions()["call_0"] != 0 {
				t.Errorf("the call that waits has run")
			}
			p.answer("call_0", approval(true, ""))
		}
		if run := p.end(p.current()); run.GetStatus() != completed || p.executions()["call_0"] > 1 || p.executions()["call_1"] > 1 {
			t.Errorf("run = %v after %v executions", run, p.executions())
		}
		p.verifyOnce()
	})
	if !hit[string(worker.PointPlanRecorded)] {
		t.Errorf("deaths at %v, want one after the plan", slices.Collect(maps.Keys(hit)))
	}
}

// factsOf are the facts of a run that its functions get.
type factsOf struct {
	tenant, session, parent, run, agent, user string
	tags                                      []string
	metadata                                  map[string]string
	turn                                      int
}

func viewFacts(v *agent.RunView) factsOf {
	return factsOf{v.Tenant, v.SessionID, v.ParentSessionID, v.RunID, v.AgentType, v.UserID, v.Tags, v.Metadata, v.Turn}
}

func callFacts(c *agent.Call) factsOf {
	return factsOf{c.Tenant, c.SessionID, c.ParentSessionID, c.RunID, c.AgentType, c.UserID, c.Tags, c.Metadata, c.Turn}
}

// factLog checks the facts that functions get in the session s and in the sessions below it.
type factLog struct {
	p    *system
	mu   sync.Mutex
	seen map[string]map[string]bool // the functions called, by agent
	runs map[string]bool            // of the session s
}

func (l *factLog) see(function string, got factsOf) {
	run, err := statev1.NewRunServiceClient(l.p.stateAPI).GetRun(l.p.context(), &statev1.GetRunRequest{
		Tenant: tenant, SessionId: got.session, RunId: got.run,
	})
	if err != nil {
		l.p.t.Errorf("%s got the run %s of %s: %v", function, got.run, got.session, err)
	}
	want := factsOf{
		tenant: tenant, session: got.session, run: got.run, user: "u-17", agent: "reader", parent: "s", turn: int(run.GetRun().GetTurn()),
	}
	if got.session == "s" {
		want.parent, want.agent, want.tags, want.metadata = "", "demo", []string{"vip"}, map[string]string{"plan": "gold"}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) || got.turn == 0 {
		l.p.t.Errorf("%s got %+v, want %+v", function, got, want)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen[got.agent] == nil {
		l.seen[got.agent] = map[string]bool{}
	}
	l.seen[got.agent][function] = true
	if got.session == "s" {
		l.runs[got.run] = true
	}
}

// watch gives the agent all functions, which accept everything except the first call of a tool.
func (l *factLog) watch(a *catalog.Agent, asks bool) {
	a.Prompt = func(_ context.Context, run *agent.RunView) (string, error) {
		l.see("Prompt", viewFacts(run))
		return "Be brief.", nil
	}
	a.StopWhen = func(_ context.Context, p *agent.Progress) (bool, error) {
		l.see("StopWhen", viewFacts(&p.RunView))
		return false, nil
	}
	a.Guard.OnReply = func(_ context.Context, end agent.Ending) (agent.Verdict, error) {
		l.see("Guard", viewFacts(&end.RunView))
		return agent.Verdict{}, nil
	}
	a.Hooks.BeforeModel = func(_ context.Context, h *agent.HookCall, _ agent.ModelCall) {
		l.see("BeforeModel", factsOf{h.Tenant, h.SessionID, h.ParentSessionID, h.RunID, h.AgentType, h.UserID, h.Tags, h.Metadata, h.Turn})
	}
	a.Context = agent.ContextPolicy{
		MaxTokens: 55, KeepTokens: 10, Compaction: agent.CompactSummary, Count: func(agent.Message) int { return 10 },
		Compact: func(_ context.Context, run *agent.RunView, _ []agent.Message) (string, error) {
			l.see("Compact", viewFacts(run))
			return "in short", nil
		},
	}
	a.Tools[0].ApproveWhen = func(_ context.Context, call *agent.Call) (bool, error) {
		l.see("ApproveWhen", callFacts(call))
		return asks, nil
	}
}

func TestFunctionsKnowTheUserInSubAgentsAfterDaysAndAfterATakeover(t *testing.T) {
	t.Parallel()
	for _, c := range []death{{}, {point: worker.PointReplied, n: 1}, {point: worker.PointCallsEnded, n: 1}, {point: worker.PointCommitBegins, n: 1}} {
		t.Run(fmt.Sprint(c.point), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := newSystem(t)
				p.config.HeartbeatInterval = 5 * time.Minute // days pass
				p.environ = []string{
					"HOLDFAST_STATE_SILENT_AFTER=20m", "HOLDFAST_STATE_BROKEN_AFTER=10m", "HOLDFAST_STATE_SWEEP_EVERY=10m", "HOLDFAST_STATE_CLAIM_POLL=1h",
					"HOLDFAST_STATE_STOP_POLL=1h", "HOLDFAST_STATE_EXPIRE_EVERY=1h",
				}
				log := &factLog{p: p, seen: map[string]map[string]bool{}, runs: map[string]bool{}}
				calls := func(pairs ...string) modelFunc {
					return func(_ context.Context, r model.Request, say func(model.Event) bool) error {
						if endsWithResults(r) {
							sendText(say, "done")
						} else {
							sendCalls(say, pairs...)
						}
						return nil
					}
				}
				tool := func(name string) agent.Tool {
					return p.tool(name, agent.RetrySafe, func(_ context.Context, call *agent.Call) (any, error) {
						log.see("Execute", callFacts(call))
						return "done", nil
					})
				}
				demo := define("demo", calls("pay", `{}`, "subagent__reader", `{"message":"Read."}`), tool("pay"), agent.SubAgent[agent.Task]("reader", "Reads."))
				reader := define("reader", calls("look", `{}`), tool("look"))
				log.watch(&demo, true)
				log.watch(&reader, false)
				p.agents["demo"], p.agents["reader"] = demo, reader
				p.openMortal(&c)
				for turn := range 2 {
					first := p.post(&statev1.StartRunRequest{
						SessionId: "s", AgentType: "demo", Messages: userMessages("hi"), UserId: "u-17", Tags: []string{"vip"},
						Metadata: map[string]string{"plan": "gold"},
					})
					p.end(first)
					if turn == 0 {
						time.Sleep(48 * time.Hour)
					}
					calls := slices.DeleteFunc(p.openedCalls("s"), func(call *statev1.Call) bool { return call.GetApprovalId() == "" })
					if len(calls) != turn+1 {
						t.Fatalf("turn %d: the calls %v were to be approved, want one in each turn", turn, calls)
					}
					p.answer(calls[turn].GetToolCallId(), approval(true, ""))
					if s := p.settle().GetSession(); s.GetStatus() != statev1.SessionStatus_SESSION_STATUS_COMPLETED {
						t.Fatalf("session = %v, want it completed", s)
					}
				}
				want := "ApproveWhen BeforeModel Compact Execute Guard Prompt StopWhen"
				for _, name := range []string{"demo", "reader"} {
					if got := strings.Join(slices.Sorted(maps.Keys(log.seen[name])), " "); strings.Replace(got, "Compact ", "", 1) != strings.Replace(want, "Compact ", "", 1) {
						t.Errorf("the functions of %s that were called: %s, want %s", name, got, want)
					}
				}
				if !log.seen["demo"]["Compact"] || len(log.runs) < 4 {
					t.Errorf("functions were called in %d runs, %v; want Compact, and two turns with their continuations", len(log.runs), log.seen)
				}
				if c.n > 0 && !p.died() {
					t.Error("no executor has died")
				}
				p.verifyReaders("s")
			})
		})
	}
}
