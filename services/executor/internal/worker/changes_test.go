package worker_test

import (
	"context"
	"encoding/json"
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

// shelf is a catalog that changes.
type shelf struct {
	mu      sync.Mutex
	agents  catalog.Static
	changed chan struct{}
}

func (s *shelf) put(agents ...catalog.Agent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.agents = agents
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *shelf) Types() []catalog.Type {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.agents.Types()
}

func (s *shelf) Resolve(ctx context.Context, f catalog.For) (catalog.Agent, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.agents.Resolve(ctx, f)
}

func (s *shelf) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

func TestAgentsThatChangeAreAnnouncedAgainWhileRunsGoOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		s := &shelf{changed: make(chan struct{})}
		p.catalog = s
		p.open()
		time.Sleep(time.Minute)
		if len(p.announced()) != 0 {
			t.Fatalf("announced = %v without an agent", p.announced())
		}
		slow := definition("slow", mind(func(ctx context.Context, r model.Request, say func(model.Event) bool) error {
			pause(ctx, 10*time.Second)
			if answered(r) {
				speak(say, "done")
				return nil
			}
			request(say, "nothing", `{}`)
			return nil
		}))
		s.put(slow)
		run := p.startRun("s", "slow", "hi")
		time.Sleep(5 * time.Second)
		waiting := definition("new", replies(text("new")))
		waiting.OnBusy = agent.BusyEnqueue
		s.put(slow, waiting)
		if ended := p.end(run); ended.GetStatus() != completed || ended.GetAttempt() != 1 || len(p.released(run)) != 0 {
			t.Errorf("run = %v, want it completed by its first claim", ended)
		}
		again := p.announced()[len(p.announced())-1]
		var names []string
		for _, a := range again.GetAgents() {
			names = append(names, a.GetAgentType()+" "+a.GetOnBusy().String())
		}
		if want := []string{"new BUSY_POLICY_ENQUEUE", "slow BUSY_POLICY_UNSPECIFIED"}; !slices.Equal(names, want) || !slices.Equal(again.GetHeldRunIds(), []string{run}) {
			t.Errorf("announced %v holding %v, want %v", names, again.GetHeldRunIds(), want)
		}
	})
}

func TestARunOfSeveralStepsGoesOnWhenItsClaimStreamBreaks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t, definition("demo", mind(func(ctx context.Context, r model.Request, say func(model.Event) bool) error {
			pause(ctx, 10*time.Second)
			if answered(r) {
				speak(say, "done")
				return nil
			}
			request(say, "nothing", `{}`)
			return nil
		})))
		e := p.open()
		run := p.startRun("s", "demo", "hi")
		time.Sleep(5 * time.Second)
		e.connection.cutStreams()
		if ended := p.end(run); ended.GetAttempt() != 1 || len(p.released(run)) != 0 {
			t.Errorf("run = %v, released %d times; want it never given back", ended, len(p.released(run)))
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
		p.agents["demo"] = definition("demo", replies(ask("charge", `{}`, "lookup", `{}`), text("done")),
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
		equalLines(t, "messages", p.dialogue(), []string{
			"user: hi", "assistant: [call_0 charge] [call_1 lookup]", "tool: [result call_0 unknown]", "tool: [result call_1 done]", "assistant: done",
		})
		if p.executions()["call_0"] != 1 || p.executions()["call_1"] != 2 {
			t.Errorf("executions = %v, want the safe one twice", p.executions())
		}
	})
}

func TestASuspendedOrStoppedRunIsNotGivenBackAtShutdown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		p.agents["demo"] = definition("demo", replies(ask("locate", `{}`), text("ok")), agent.Tool{Name: "locate", InputSchema: anyObject, Client: true})
		p.passed = func(_ context.Context, e *executor, point worker.Point) {
			if point == worker.PointCommitted {
				e.stop()
			}
		}
		e := p.open()
		run := p.startRun("s", "demo", "hi")
		<-e.ended
		if r := p.run(run); len(p.released(run)) != 0 || r.GetStatus() != statev1.RunStatus_RUN_STATUS_SUSPENDED_CLIENT_TOOL {
			t.Errorf("run = %v, released %d times; want it suspended and not given back", r, len(p.released(run)))
		}
	})
}

func TestTheTextOfANativeCompletionIsNotToldToReaders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		a := definition("demo", mind(func(_ context.Context, r model.Request, say func(model.Event) bool) error {
			if r.Output != nil {
				speak(say, `{"completion":{"tool":"`+agent.FinishTool+`",`, `"input":{"n":1}}}`)
				return nil
			}
			speak(say, "thinking aloud")
			return nil
		}))
		a.OutputSchema = json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`)
		a.Completion = agent.CompletionNative
		p.agents["demo"] = a
		p.open()
		run := p.end(p.startRun("s", "demo", "hi"))
		if run.GetOutput() != `{"n":1}` {
			t.Errorf("run = %v, want its output", run)
		}
		if got := texts(p.records("s")); strings.Contains(got, "completion") {
			t.Errorf("text = %q, want no form in it", got)
		}
	})
}

func TestASummaryIsMadeOnceAndItsTokensCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		a := definition("demo", mind(func(_ context.Context, r model.Request, say func(model.Event) bool) error {
			switch {
			case r.Choice == model.ChoiceNone:
				speak(say, "in short")
			case answered(r):
				speak(say, "done")
			default:
				request(say, "count", `{}`)
			}
			return nil
		}), p.tool("count", agent.RetrySafe, nil))
		a.Context = agent.ContextPolicy{MaxTokens: 25, KeepTokens: 10, Compaction: agent.CompactSummary, Count: func(agent.Message) int { return 10 }}
		p.agents["demo"] = a
		p.open()
		for _, words := range []string{"one", "two", "three"} {
			if run := p.end(p.startRun("s", "demo", words)); run.GetStatus() != completed {
				t.Fatalf("run = %v", run)
			}
		}
		var summaries int
		for _, line := range p.dialogue() {
			if strings.HasPrefix(line, "context:") && strings.HasSuffix(line, "in short") {
				summaries++
			}
		}
		if summaries == 0 || strings.Contains(texts(p.records("s")), "in short") {
			t.Errorf("%d summaries in %q, told %q; want some, and none told", summaries, p.dialogue(), texts(p.records("s")))
		}
	})
}

func TestASummaryThatItsProviderHasEndedWithAnErrorIsNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newSystem(t)
		a := definition("demo", mind(func(_ context.Context, r model.Request, say func(model.Event) bool) error {
			switch {
			case r.Choice == model.ChoiceNone:
				say(model.TextDelta{Text: "in sh"})
				say(model.Finish{Reason: model.FinishError})
			case answered(r):
				speak(say, "done")
			default:
				request(say, "count", `{}`)
			}
			return nil
		}), p.tool("count", agent.RetrySafe, nil))
		a.Context = agent.ContextPolicy{MaxTokens: 25, KeepTokens: 10, Compaction: agent.CompactSummary, Count: func(agent.Message) int { return 10 }}
		p.agents["demo"] = a
		p.open()
		for _, words := range []string{"one", "two"} {
			if run := p.end(p.startRun("s", "demo", words)); run.GetStatus() != completed {
				t.Fatalf("run = %v", run)
			}
		}
		if slices.ContainsFunc(p.dialogue(), func(line string) bool { return strings.HasPrefix(line, "context:") }) {
			t.Errorf("the conversation is %q, want no summary in it", p.dialogue())
		}
	})
}
