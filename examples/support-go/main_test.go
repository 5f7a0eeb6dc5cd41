package main

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/agenttest"
	"github.com/holdfast-run/holdfast/pkg/client"
	agentv1 "github.com/holdfast-run/holdfast/proto/holdfast/agent/v1"
)

func TestALargeRefundWaitsForAHumanAndIsMadeOnce(t *testing.T) {
	t.Parallel()
	agenttest.RunWithCrashes(t, agenttest.Config{
		Agents: []agent.Agent{support},
		Models: map[string]agenttest.Model{"support": agenttest.Replies(
			agenttest.Call("refund", `{"order":"o-1","amount":250}`),
			agenttest.Text("Done."),
		)},
	}, func(s *agenttest.System) {
		c := s.Chat("support")
		c.Say("Refund 250 for o-1.")
		c.WantPending("refund")
		c.Approve("refund")
		c.Want(
			"user: Refund 250 for o-1.",
			`call: refund {"order":"o-1","amount":250}`,
			`result: refund {"text":"$250.00 for o-1, refund 1 of this conversation."}`,
			"agent: Done.",
		)
	})
}

func TestTheProgramServesTheAgentWithoutAKey(t *testing.T) {
	t.Parallel()
	o, err := options(nil, "")
	if err != nil {
		t.Fatal(err)
	}
	o.InMemory, o.Listen, o.LogOutput = true, "127.0.0.1:0", t.Output()
	r, err := holdfast.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	c := client.New(client.Config{URL: r.URL()})
	say := func(text string) *client.Answer {
		t.Helper()
		answer, err := c.Ask(ctx, &agentv1.StartRequest{SessionId: "s", Message: text})
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	if got := say("Where is o-1?").Text; got != "Your order is on its way." {
		t.Errorf("got %q", got)
	}
	if got := say("Refund 20 for o-1").Text; got != "Done: $20.00 for o-1, refund 1 of this conversation." {
		t.Errorf("got %q", got)
	}
	large := say("Refund 250 for o-1")
	if len(large.Calls) != 1 {
		t.Fatalf("a large refund does not wait for a human: %+v", large)
	}
	if _, err := c.Approve(ctx, large.Calls[0], "fine"); err != nil {
		t.Fatal(err)
	}
	answer, err := c.Wait(ctx, "s", "")
	if err != nil {
		t.Fatal(err)
	}
	if answer.Text != "Done: $250.00 for o-1, refund 2 of this conversation." {
		t.Errorf("got %q", answer.Text)
	}
}
