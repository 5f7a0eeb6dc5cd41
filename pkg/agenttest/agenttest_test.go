package agenttest_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/agenttest"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
	"github.com/holdfast-run/holdfast/services/executor"
)

type bill struct {
	Amount int `json:"amount"`
}

// bank counts payments by their idempotency keys.
type bank struct {
	mu   sync.Mutex
	paid map[string]int
}

func (b *bank) pay(_ context.Context, call *agent.Call, in bill) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.paid == nil {
		b.paid = map[string]int{}
	}
	b.paid[call.IdempotencyKey] = in.Amount
	return "done", nil
}

func (b *bank) sum() (sum int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, amount := range b.paid {
		sum += amount
	}
	return sum
}

// treasurer pays, and asks before it pays 100 or more.
func treasurer(b *bank) agent.Agent {
	pay := agent.NewTool("pay", "Pays.", b.pay, agent.Safe(), agent.ApproveWhen(
		func(_ context.Context, _ *agent.Call, in bill) (bool, error) { return in.Amount >= 100, nil }))
	pay.AnswerWithin = 48 * time.Hour
	return agent.Agent{Name: "treasurer", Model: "openai/gpt-5-mini", SystemPrompt: "You pay bills.", Tools: []agent.Tool{
		pay,
		{Name: "ask", InputSchema: json.RawMessage(`{"type":"object"}`), Client: true},
	}}
}

func treasury(b *bank, replies ...agenttest.Reply) agenttest.Config {
	return agenttest.Config{Agents: []agent.Agent{treasurer(b)}, Models: map[string]agenttest.Model{"treasurer": agenttest.Replies(replies...)}}
}

func TestACallWaitsForItsApprovalForDays(t *testing.T) {
	t.Parallel()
	b := &bank{}
	agenttest.Run(t, treasury(b, agenttest.Call("pay", `{"amount": 500}`), agenttest.Text("Paid.")), func(s *agenttest.System) {
		c := s.Chat("treasurer")
		c.Say("Pay the bill.")
		c.WantPending("pay")
		s.Advance(36 * time.Hour)
		c.Approve("pay")
		c.WantPending()
		c.Want("user: Pay the bill.", `call: pay {"amount":500}`, `result: pay "done"`, "agent: Paid.")
		if c.Output() != `"Paid."` || b.sum() != 500 {
			t.Errorf("output %s, %d paid", c.Output(), b.sum())
		}
	})
}

func TestFunctionsKnowTheUserOfTheRequest(t *testing.T) {
	t.Parallel()
	b := &bank{}
	a := treasurer(b)
	var asked atomic.Int64
	a.SystemPrompt = ""
	a.Prompt = func(_ context.Context, run *agent.RunView) (string, error) {
		return "You pay for " + run.UserID + ".", nil
	}
	a.Tools[0].ApproveWhen = func(_ context.Context, call *agent.Call) (bool, error) {
		asked.Add(1)
		return call.UserID != "ann" || call.Metadata["plan"] != "gold", nil
	}
	var prompt atomic.Value
	replies := agenttest.Replies(agenttest.Call("pay", `{"amount": 500}`), agenttest.Text("Paid."))
	model := func(r executor.ModelRequest) (agenttest.Reply, error) { prompt.Store(r.System); return replies(r) }
	config := agenttest.Config{Agents: []agent.Agent{a}, Models: map[string]agenttest.Model{"treasurer": model}}
	agenttest.Run(t, config, func(s *agenttest.System) {
		c := s.Chat("treasurer")
		c.SayWith(&agentv1.StartRequest{Message: "Pay the bill.", UserId: "ann", Metadata: map[string]string{"plan": "gold"}})
		c.Want("user: Pay the bill.", `call: pay {"amount":500}`, `result: pay "done"`, "agent: Paid.")
		if prompt.Load() != "You pay for ann." || asked.Load() != 1 {
			t.Errorf("prompt %v, and %d questions about the approval; want one for ann", prompt.Load(), asked.Load())
		}
	})
}

func TestACallWithoutAnAnswerTimesOut(t *testing.T) {
	t.Parallel()
	b := &bank{}
	agenttest.Run(t, treasury(b, agenttest.Call("pay", `{"amount": 500}`), agenttest.Text("Nobody agreed.")), func(s *agenttest.System) {
		c := s.Chat("treasurer")
		c.Say("Pay the bill.")
		s.Advance(49 * time.Hour)
		c.Wait()
		c.Want("user: Pay the bill.", `call: pay {"amount":500}`, "failed: pay …", "agent: Nobody agreed.")
		if b.sum() != 0 {
			t.Errorf("%d paid, want 0", b.sum())
		}
	})
}

func TestAnswersOfClientsAndDenialsReachTheModel(t *testing.T) {
	t.Parallel()
	b := &bank{}
	replies := []agenttest.Reply{agenttest.Call("ask", "").And("pay", `{"amount": 200}`), agenttest.Text("Well.")}
	agenttest.Run(t, treasury(b, replies...), func(s *agenttest.System) {
		c := s.Chat("treasurer")
		c.Say("Pay.")
		c.WantPending("ask", "pay")
		c.Answer("ask", map[string]string{"iban": "DE1"})
		c.WantPending("pay")
		c.Deny("pay", "too much")
		c.Want("user: Pay.", `call: ask {}`, `call: pay {"amount":200}`, `result: ask {"iban":"DE1"}`, "failed: pay …", "agent: Well.")
	})
}

func TestAFailureOfTheModelIsRetriedAndARunThatFailsShows(t *testing.T) {
	t.Parallel()
	b := &bank{}
	replies := []agenttest.Reply{agenttest.Fail(executor.CodeOverloaded), agenttest.Text("Hello."), agenttest.Fail(executor.CodeDenied), agenttest.Text("Again.")}
	agenttest.Run(t, treasury(b, replies...), func(s *agenttest.System) {
		c := s.Chat("treasurer")
		c.Say("Hi.")
		c.Want("user: Hi.", "agent: Hello.")
		c.Say("And now?")
		if got := c.Transcript(); !strings.HasPrefix(got[len(got)-1], "run failed: provider_denied") {
			t.Errorf("got %q, want the failure at the end", got)
		}
	})
}

func TestEveryCrashLeavesTheSameConversation(t *testing.T) {
	t.Parallel()
	agenttest.RunWithCrashes(t, treasury(&bank{}, agenttest.Call("pay", `{"amount": 7}`), agenttest.Call("pay", `{"amount": 500}`), agenttest.Text("Paid.")), func(s *agenttest.System) {
		c := s.Chat("treasurer")
		c.Say("Pay the bills.")
		c.Approve("pay")
		c.Want("user: Pay the bills.", `call: pay {"amount":7}`, `result: pay "done"`, `call: pay {"amount":500}`, `result: pay "done"`, "agent: Paid.")
	})
}

func TestACrashInAToolThatIsNotSafeTellsTheModelThatTheOutcomeIsUnknown(t *testing.T) {
	t.Parallel()
	var system *agenttest.System
	begun := 0
	push := agent.NewTool("push", "Pushes.", func(ctx context.Context, _ *agent.Call, _ struct{}) (string, error) {
		begun++
		system.Crash()
		<-ctx.Done()
		return "", ctx.Err()
	})
	c := agenttest.Config{
		Agents: []agent.Agent{{Name: "pusher", Model: "x/y", Tools: []agent.Tool{push}}},
		Models: map[string]agenttest.Model{"pusher": agenttest.Replies(agenttest.Call("push", ""), agenttest.Text("I do not know."))},
	}
	agenttest.Run(t, c, func(s *agenttest.System) {
		system = s
		chat := s.Chat("pusher")
		chat.Say("Push.")
		chat.Want("user: Push.", "call: push {}", "failed: push …", "agent: I do not know.")
	})
	if begun != 1 {
		t.Errorf("the tool began %d times, want once", begun)
	}
}

func TestAgentsInFilesRunWithReplacedTools(t *testing.T) {
	t.Parallel()
	c := agenttest.Config{
		Files:  "testdata/agents.yaml",
		Env:    map[string]string{"HOLDFAST_EXECUTOR_TOOL_HOSTS": "api.example.com"},
		Models: map[string]agenttest.Model{"reporter": agenttest.Replies(agenttest.Call("forecast", `{"city":"Rome"}`), agenttest.Text("Sunny."))},
		Tools: map[string]func(context.Context, *agent.Call) (any, error){
			"forecast": func(_ context.Context, call *agent.Call) (any, error) {
				return map[string]string{"sky": "sun over " + string(call.Input)}, nil
			},
		},
	}
	agenttest.Run(t, c, func(s *agenttest.System) {
		chat := s.Chat("reporter")
		chat.SayWith(&agentv1.StartRequest{Message: "How is Rome?", State: `{"name":"Mia"}`})
		chat.Want("user: How is Rome?", `call: forecast {"city":"Rome"}`, `result: forecast {"sky":"sun over {\"city\":\"Rome\"}"}`, "agent: Sunny.")
		if chat.State() != `{"name":"Mia"}` {
			t.Errorf("the state is %s", chat.State())
		}
	})
}

func TestTheModelSeesThePromptAndTheTools(t *testing.T) {
	t.Parallel()
	seen := errors.New("not asked")
	c := treasury(&bank{})
	c.Models["treasurer"] = func(r executor.ModelRequest) (agenttest.Reply, error) {
		seen = nil
		if r.System != "You pay bills." || !slices.ContainsFunc(r.Tools, func(t executor.ModelTool) bool { return t.Name == "pay" }) {
			seen = errors.New("the prompt or the tool is missing")
		}
		return agenttest.Text("Hm."), nil
	}
	agenttest.Run(t, c, func(s *agenttest.System) { s.Chat("treasurer").Say("Hi.") })
	if seen != nil {
		t.Error(seen)
	}
}
