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
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/worker"
)

// addReaders adds the agent demo, whose first reply has calls of two readers, and the readers' agent, which looks
// something up.
func (p *system) addReaders(options ...agent.ToolOption) {
	p.agents["demo"] = define("demo", stepReplies(
		callsReply("subagent__reader", `{"message":"Page 1"}`, "charge", `{}`, "subagent__reader", `{"message":"Page 2"}`),
		textReply("Both are read."),
	), agent.SubAgent[agent.Task]("reader", "Reads a page.", options...), p.tool("charge", agent.RetryNever, nil))
	p.agents["reader"] = define("reader", stepReplies(callsReply("look", `{}`), textReply("It is short.")), p.tool("look", agent.RetrySafe, nil))
}

// settle waits until the session s has ended, whichever run ends it.
func (p *system) settle() *statev1.GetSessionResponse {
	p.t.Helper()
	var found *statev1.GetSessionResponse
	p.until("the session has ended", func() bool {
		found = p.session("s")
		status := found.GetSession().GetStatus()
		return status == statev1.SessionStatus_SESSION_STATUS_COMPLETED || status == statev1.SessionStatus_SESSION_STATUS_FAILED
	})
	synctest.Wait()
	return found
}

func TestSubAgentsAnswerTheirParentWhereverAnExecutorDies(t *testing.T) {
	t.Parallel()
	dieEverywhere(t, func(t *testing.T, c *death) {
		p := newSystem(t)
		p.addReaders()
		p.openMortal(c)
		first := p.startRun("s", "demo", "hi")
		found := p.settle()
		if found.GetSession().GetStatus() != statev1.SessionStatus_SESSION_STATUS_COMPLETED || found.GetCurrentRun().GetMessageId() != p.run(first).GetMessageId() {
			t.Fatalf("session = %v, want it completed in the same message", found)
		}
		lines := p.conversation()
		charged := "[result call_1 done]"
		if slices.Contains(lines, "tool: [result call_1 unknown]") && c.hit != "" {
			charged = "[result call_1 unknown]"
		}
		equalLines(t, "messages", lines, []string{
			"user: hi", "assistant: [call_0 subagent__reader] [call_1 charge] [call_2 subagent__reader]", "tool: " + charged,
			`tool: [result call_0 "It is short."]`, `tool: [result call_2 "It is short."]`, "assistant: Both are read.",
		})
		p.verifyOnce()
		children := found.GetSubSessions()
		if len(children) != 2 || children[0].GetSessionId() == children[1].GetSessionId() {
			t.Fatalf("children = %v, want two", children)
		}
		for _, child := range children {
			s := p.session(child.GetSessionId()).GetSession()
			if s.GetStatus() != statev1.SessionStatus_SESSION_STATUS_COMPLETED || s.GetDepth() != 1 || s.GetRootSessionId() != "s" {
				t.Errorf("child = %v", s)
			}
		}
		if p.executions()["call_1"] > 1 {
			t.Errorf("charge ran %d times", p.executions()["call_1"])
		}
		stream := streamLines(p.records("s"))
		if at := slices.Index(stream, "2 step_committed"); at > 0 { // sub-agents end in any order
			slices.Sort(stream[slices.Index(stream, "1 run_resumed run 1 2")+1 : at])
		}
		equalLines(t, "stream", stream, []string{
			"0 run_started 1", "1 step_started", `1 args call_0 {"message":"Page 1"}`, "1 args call_1 {}", `1 args call_2 {"message":"Page 2"}`,
			"1 start call_0", "1 start call_1", "1 start call_2", "1 end call_1", "1 sub-agent call_0", "1 sub-agent call_2",
			"1 step_committed", "1 run_suspended awaiting_children", "END PAUSED ", "1 run_resumed run 1 2",
			"2 end call_0", "2 end call_2", "2 sub-agent ended call_0 true", "2 sub-agent ended call_2 true", "2 step_committed",
			"3 step_started", "3 text Both are read.", "3 step_committed", `3 run_completed "Both are read."`, `END "Both are read."`,
		})
	}, failBefore, failAfter, dieBefore, dieAfter)
}

func TestTheUsageOfSubAgentsIsThatOfTheTree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		p.addReaders()
		p.open()
		p.startRun("s", "demo", "hi")
		p.settle()
		answer, err := statev1.NewUsageServiceClient(p.stateAPI).GetUsageRollup(p.context(), &statev1.GetUsageRollupRequest{Tenant: tenant, SessionId: "s"})
		must(t, err)
		u := answer.GetRollup()
		readers := u.GetSubAgentsByType()["reader"]
		if readers.GetTotalCalls() != 2 || readers.GetSuccessfulCalls() != 2 || u.GetTokens().GetTotalTokens() != 30 || u.GetTokensIncludingSubAgents().GetTotalTokens() != 90 {
			t.Errorf("usage = %v, want two readers and the tokens of six replies", u)
		}
	})
}

func TestAFailedSubAgentIsAFailedResult(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		p.addReaders()
		reader := p.agents["reader"]
		reader.MaxSteps = 1
		p.agents["reader"] = reader
		p.open()
		p.startRun("s", "demo", "hi")
		found := p.settle()
		if found.GetSession().GetStatus() != statev1.SessionStatus_SESSION_STATUS_COMPLETED {
			t.Fatalf("session = %v, want it completed", found)
		}
		for _, r := range p.results() {
			if failed := strings.Contains(r.GetError(), "(framework_max_steps)"); failed != strings.HasPrefix(r.GetToolName(), agent.SubAgentPrefix) {
				t.Errorf("result = %v", r)
			}
		}
	})
}

func TestASubAgentThatTakesTooLongIsEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		p.addReaders(agent.Timeout(time.Minute))
		p.agents["reader"] = define("reader", stepReplies(callsReply("ask", `{}`)), agent.Tool{Name: "ask", InputSchema: anyObject, Client: true})
		p.open()
		p.follow("s")
		p.startRun("s", "demo", "hi")
		begin := time.Now()
		found := p.settle()
		if took := time.Since(begin); took < time.Minute || took > 2*time.Minute {
			t.Errorf("it took %v, want a minute", took)
		}
		for _, child := range found.GetSubSessions() {
			if child.GetStatus() != statev1.SessionStatus_SESSION_STATUS_FAILED {
				t.Errorf("child = %v, want it failed", child)
			}
		}
		for kind, frames := range map[string][]frame{"live": p.records("s"), "stored": p.stored("s")} {
			ended := map[string]bool{}
			for _, f := range frames {
				if end := f.GetChunk().GetSubagentEnd(); end != nil && !end.GetSuccess() {
					ended[end.GetSubSessionId()] = true
				}
			}
			for _, child := range found.GetSubSessions() {
				if !ended[child.GetSessionId()] {
					t.Errorf("%s: the ends name the sessions %v, want %s among them", kind, ended, child.GetSessionId())
				}
			}
		}
	})
}

func TestSubAgentsHaveADepth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		p.config.MaxDepth = 3
		p.agents["demo"] = define("demo", stepReplies(callsReply("subagent__demo", `{"message":"Do it."}`), textReply("Done.")),
			agent.SubAgent[agent.Task]("demo", "Does the same."))
		p.open()
		p.startRun("s", "demo", "hi")
		p.settle()
		depth, id := 0, "s"
		for children := p.session(id).GetSubSessions(); len(children) > 0; children = p.session(id).GetSubSessions() {
			depth, id = depth+1, children[0].GetSessionId()
		}
		if depth != 3 {
			t.Errorf("the tree has the depth %d, want 3", depth)
		}
	})
}

func TestAWaitingParentHoldsNoSlot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		p.config.Slots = 1
		p.addReaders()
		var crowded atomic.Bool
		p.passed = func(_ context.Context, e *executor, _ worker.Point) {
			if len(e.worker.LiveRunIDs()) > 1 {
				crowded.Store(true)
			}
		}
		p.open()
		p.startRun("s", "demo", "hi")
		p.settle()
		if crowded.Load() {
			t.Error("the executor held more than one run at once")
		}
	})
}

func TestATreeThatOutgrowsItsLimitFails(t *testing.T) {
	t.Parallel()
	for most, want := range map[string]string{"3": "", "2": "framework_tree_too_large"} {
		synctest.Test(t, func(t *testing.T) {
			p := newSystem(t)
			p.environ = append(p.environ, "HOLDFAST_STATE_MAX_TREE="+most)
			p.addReaders()
			p.open()
			p.startRun("s", "demo", "hi")
			if got := p.settle().GetSession().GetFailure().GetCode(); got != want {
				t.Errorf("with %s sessions, the failure is %q, want %q", most, got, want)
			}
		})
	}
}

// A sub-agent whose caller has ended is ended by the state service. Its executor learns of it at once, and its model
// does not work for nothing.
func TestTheEndOfAParentCutsTheModelsOfItsSubAgents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cut := make(chan time.Time, 2)
		p := newSystem(t)
		p.addReaders()
		p.agents["reader"] = define("reader", modelFunc(func(ctx context.Context, _ model.Request, _ func(model.Event) bool) error {
			<-ctx.Done()
			cut <- time.Now()
			return ctx.Err()
		}))
		p.open()
		p.startRun("s", "demo", "hi")
		time.Sleep(10 * time.Second)
		begin := time.Now()
		p.stopRun("", abort, "enough")
		for range 2 {
			if took := (<-cut).Sub(begin); took > 50*time.Millisecond {
				t.Errorf("a model worked on for %v", took)
			}
		}
	})
}

func TestHooksAreCalledAroundSubAgents(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		p.addReaders()
		var log hookLog
		demo := p.agents["demo"]
		demo.Hooks = agent.Hooks{
			BeforeSubAgent: func(_ context.Context, h *agent.HookCall, call agent.SubAgentCall) {
				log.add("before %s %s in step %d", call.ID, call.AgentType, h.Step)
				if call.SessionID == "" || call.SessionID == h.SessionID || string(call.Arguments) == "" {
					t.Errorf("the call is %+v", call)
				}
				if err := h.Update(func(draft agent.State) error { draft[call.ID] = "asked"; return nil }); err != nil {
					t.Error(err)
				}
			},
			AfterSubAgent: func(_ context.Context, _ *agent.HookCall, call agent.SubAgentCall, result agent.ToolResult) {
				log.add("after %s %s %s", call.ID, call.AgentType, result.Result)
				if call.Name != "subagent__reader" || call.SessionID == "" {
					t.Errorf("the call is %+v", call)
				}
			},
		}
		p.agents["demo"] = demo
		p.open()
		p.startRun("s", "demo", "hi")
		state := p.settle().GetSession().GetCustomState()
		want := []string{
			"before call_0 reader in step 1", "before call_2 reader in step 1",
			`after call_0 reader "It is short."`, `after call_2 reader "It is short."`,
		}
		slices.Sort(log.lines)
		slices.Sort(want)
		equalLines(t, "hooks", log.lines, want)
		if state != `{"call_0":"asked","call_2":"asked"}` {
			t.Errorf("the state is %s, want the writes of the hooks", state)
		}
	})
}

// A leads B, which leads C. The hooks of A are for its children, and those of B are not.
func TestHooksForChildrenAreCalledInAllRunsBelow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		var log hookLog
		hooks := func(owner string, children bool) agent.Hooks {
			return agent.Hooks{
				Children: children,
				OnStart:  func(_ context.Context, h *agent.HookCall) { log.add("%s at %s", owner, h.AgentType) },
			}
		}
		lead := func(name, below string) {
			a := define(name, stepReplies(callsReply("subagent__"+below, `{"message":"Do it."}`), textReply("Done.")),
				agent.SubAgent[agent.Task](below, "Does a part."))
			a.Hooks = hooks(name, name == "demo")
			p.agents[name] = a
		}
		lead("demo", "other")
		lead("other", "reader")
		reader := define("reader", stepReplies(textReply("It is short.")))
		reader.Hooks = hooks("reader", false)
		p.agents["reader"] = reader
		p.open()
		p.startRun("s", "demo", "hi")
		p.settle()
		equalLines(t, "hooks", log.lines, []string{"demo at demo", "demo at other", "other at other", "demo at reader", "reader at reader"})
	})
}
