package agenttest_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/agenttest"
)

type stamp struct {
	Ordered int `json:"ordered,omitempty"`
}

// registry is another system: it takes orders, and answers later.
type registry struct {
	mu     sync.Mutex
	orders map[string]int // by idempotency key
	urls   []string       // of the orders, in their order
}

func (r *registry) order(_ context.Context, call *agent.Call, _ struct{}) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.orders == nil {
		r.orders = map[string]int{}
	}
	r.orders[call.IdempotencyKey]++
	r.urls = append(r.urls, call.Callback.URL)
	if err := agent.UpdateState(call, func(s *stamp) error { s.Ordered++; return nil }); err != nil {
		return "", err
	}
	return "", agent.Later
}

func (r *registry) last() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.urls[len(r.urls)-1]
}

// clerk orders, with an approval if it must.
func clerk(r *registry, options ...agent.ToolOption) agenttest.Config {
	order := agent.NewTool("order", "Orders.", r.order, append(options, agent.LaterWithin(72*time.Hour))...)
	return agenttest.Config{
		Agents: []agent.Agent{{Name: "clerk", Model: "openai/gpt-5-mini", SystemPrompt: "You order.", Tools: []agent.Tool{order}}},
		Models: map[string]agenttest.Model{"clerk": agenttest.Replies(agenttest.Call("order", "{}"), agenttest.Text("Ordered."))},
	}
}

func TestAResultThatComesDaysLaterContinuesTheRun(t *testing.T) {
	t.Parallel()
	r := &registry{}
	agenttest.Run(t, clerk(r), func(s *agenttest.System) {
		c := s.Chat("clerk")
		c.Say("Order it.")
		c.WantPending("order")
		if c.State() != `{"ordered":1}` {
			t.Errorf("the state is %s while the call waits", c.State())
		}
		s.Crash()
		s.Advance(71 * time.Hour)
		c.PostResult(r.last(), "in stock")
		c.WantPending()
		c.Want("user: Order it.", "call: order {}", `result: order "in stock"`, "agent: Ordered.")
	})
}

func TestAnApprovedCallMayAnswerLater(t *testing.T) {
	t.Parallel()
	r := &registry{}
	agenttest.Run(t, clerk(r, agent.RequireApproval()), func(s *agenttest.System) {
		c := s.Chat("clerk")
		c.Say("Order it.")
		c.Approve("order")
		c.WantPending("order")
		c.PostResult(r.last(), "in stock")
		c.Want("user: Order it.", "call: order {}", `result: order "in stock"`, "agent: Ordered.")
	})
}

func TestAResultThatDoesNotComeIsATimeout(t *testing.T) {
	t.Parallel()
	r := &registry{}
	agenttest.Run(t, clerk(r), func(s *agenttest.System) {
		c := s.Chat("clerk")
		c.Say("Order it.")
		s.Advance(73 * time.Hour)
		c.Wait()
		c.Want("user: Order it.", "call: order {}", "failed: order callback_timeout: …", "agent: Ordered.")
	})
}

// A safe tool is called again with the same key; every URL that it got answers the one call.
func TestAResultThatComesLaterSurvivesACrashAtEveryMoment(t *testing.T) {
	t.Parallel()
	r := &registry{}
	agenttest.RunWithCrashes(t, clerk(r, agent.Safe()), func(s *agenttest.System) {
		r.orders, r.urls = nil, nil
		c := s.Chat("clerk")
		c.Say("Order it.")
		c.PostResult(r.urls[0], "in stock")
		c.Want("user: Order it.", "call: order {}", `result: order "in stock"`, "agent: Ordered.")
		if len(r.orders) != 1 || c.State() != `{"ordered":1}` {
			t.Errorf("the keys %v, the state %s; want one order", r.orders, c.State())
		}
	})
}
