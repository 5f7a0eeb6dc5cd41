package main

import (
	"testing"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/pkg/agenttest"
)

func TestTheForecastReachesTheUserWhateverCrashes(t *testing.T) {
	t.Parallel()
	agenttest.RunWithCrashes(t, agenttest.Config{
		Agents: []agent.Agent{weather},
		Models: map[string]agenttest.Model{"weather": agenttest.Replies(
			agenttest.Call("forecast", `{"city":"Rome"}`).And("clock", ""),
			agenttest.Text("Sunny."),
		)},
	}, func(s *agenttest.System) {
		c := s.Chat("weather")
		c.Say("How will it be in Rome?")
		c.Want(
			"user: How will it be in Rome?",
			`call: forecast {"city":"Rome"}`, "call: clock {}",
			`result: forecast "In Rome it will be sunny, at 19 degrees."`, `result: clock "Sat, 01 Jan 2000…`,
			"agent: Sunny.",
		)
	})
}
