// Command support-go is a support agent with everything that it needs in one program: the database, the live log, the chat and
// the console. It looks up orders and refunds them, and asks a human before a large refund.
package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/process"
	"github.com/holdfast-run/holdfast/services/executor"
)

// largeRefund is the amount above which a human approves a refund.
const largeRefund = 100

// desk is the custom state of a conversation.
type desk struct {
	Refunds int `json:"refunds"`
}

type order struct {
	Order string `json:"order" jsonschema:"the number of the order, such as o-1"`
}

type status struct {
	Status string `json:"status"`
}

func orderStatus(_ context.Context, _ *agent.Call, in order) (status, error) {
	if in.Order == "o-1" {
		return status{"on its way"}, nil
	}
	return status{"unknown"}, nil
}

type refundRequest struct {
	Order  string  `json:"order" jsonschema:"the number of the order, such as o-1"`
	Amount float64 `json:"amount" jsonschema:"in dollars"`
}

type refunded struct {
	Text string `json:"text"`
}

// refund runs again after a crash, with the same call.IdempotencyKey: the payment provider recognizes a repeated call by it.
func refund(_ context.Context, call *agent.Call, in refundRequest) (refunded, error) {
	var now desk
	err := agent.UpdateState(call, func(d *desk) error {
		d.Refunds++
		now = *d
		return nil
	})
	return refunded{fmt.Sprintf("$%.2f for %s, refund %d of this conversation.", in.Amount, in.Order, now.Refunds)}, err
}

var support = agent.Agent{
	Name: "support", Description: "Looks up orders and refunds them.",
	SystemPrompt: "You help the customers of a shop. Look up an order before you speak of it.",
	StateSchema:  []byte(`{"type": "object", "properties": {"refunds": {"type": "integer", "default": 0}}}`),
	Tools: []agent.Tool{
		agent.NewTool("order_status", "Tells where an order is.", orderStatus, agent.ReadOnly()),
		agent.NewTool("refund", "Refunds an order.", refund, agent.Safe(),
			agent.ApproveWhen(func(_ context.Context, _ *agent.Call, in refundRequest) (bool, error) {
				return in.Amount > largeRefund, nil
			})),
	},
}

//go:embed support.script.yaml
var script string

// options are a runtime with the agent. Its model is Claude if there is a key, and otherwise follows the script.
func options(environ []string, key string) (holdfast.Options, error) {
	a := support
	a.Model = "anthropic/claude-sonnet-4-5"
	o := holdfast.Options{Env: environ}
	if key == "" {
		model, err := executor.OpenModel(executor.ModelConfig{Provider: "scripted", Script: script})
		if err != nil {
			return o, err
		}
		a.Model = "scripted/support"
		o.Models = map[string]executor.Model{"scripted": model}
	}
	o.Agents = []agent.Agent{a}
	o.Ready = func(r *holdfast.Runtime) error {
		_, err := fmt.Printf("chat: %[1]s   console: %[1]s/console/\n", r.URL())
		return err
	}
	return o, nil
}

func main() {
	process.Main(func(ctx context.Context) error {
		o, err := options(os.Environ(), os.Getenv("ANTHROPIC_API_KEY"))
		if err != nil {
			return err
		}
		return holdfast.Run(ctx, o)
	})
}
