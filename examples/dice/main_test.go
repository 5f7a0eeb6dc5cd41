package main

import (
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/agenttest"
)

func TestTheDieIsRolledOnceThePlayerMay(t *testing.T) {
	t.Parallel()
	agenttest.RunWithCrashes(t, config(agenttest.Text("It shows 1.")), func(s *agenttest.System) {
		c := s.Chat("player")
		c.Say("Roll!")
		c.WantPending("roll")
		c.Approve("roll")
		c.Want("user: Roll!", `call: roll {"sides":1}`, `result: roll {"eyes":1}`, "agent: It shows 1.")
	})
}

func TestADeniedDieIsNotRolled(t *testing.T) {
	t.Parallel()
	agenttest.Run(t, config(agenttest.Text("I keep my die.")), func(s *agenttest.System) {
		c := s.Chat("player")
		c.Say("Roll!")
		c.Deny("roll", "no dice here")
		c.Want("user: Roll!", `call: roll {"sides":1}`, "failed: roll a human has refused this call, so it was not made: no dice here", "agent: I keep my die.")
	})
}

// config has a player whose die has one side, and whose model ends with the reply.
func config(last agenttest.Reply) agenttest.Config {
	return agenttest.Config{
		Agents: []agent.Agent{player},
		Models: map[string]agenttest.Model{"player": agenttest.Replies(agenttest.Call("roll", `{"sides":1}`), last)},
	}
}
