// Package agenttest tests agents without a network, a model or a key: the whole runtime runs in the test, with a
// scripted model and a fake clock.
//
//	func TestTheTreasurerAsksBeforeItPays(t *testing.T) {
//		agenttest.Run(t, agenttest.Config{
//			Agents: []agent.Agent{treasurer()},
//			Models: map[string]agenttest.Model{"treasurer": agenttest.Replies(
//				agenttest.Call("pay", `{"amount": 500}`),
//				agenttest.Text("Paid."),
//			)},
//		}, func(s *agenttest.System) {
//			c := s.Chat("treasurer")
//			c.Say("Pay the bill.")
//			s.Advance(36 * time.Hour) // takes no time
//			c.Approve("pay")
//			c.Want(
//				"user: Pay the bill.",
//				`call: pay {"amount":500}`,
//				`result: pay "done"`,
//				"agent: Paid.",
//			)
//		})
//	}
//
// # Crashes
//
// RunWithCrashes runs the same scenario again and again, and each time ends the executor at another moment: after
// the claim, between two steps, between a call and the record of its result. Another executor takes the run over.
// An agent whose tools are read-only or safe to repeat passes with the same conversation. A call of another tool
// that was in progress fails, and the model reads that its outcome is unknown.
//
// # Time
//
// The scenario runs in a bubble of testing/synctest. Its clock starts in the year 2000 and advances only while
// everything waits, so days pass at once. A tool that waits for a real network, a process or a channel from outside of
// the scenario stops the clock. Replace such tools with Config.Tools.
//
// Package pkg/agent/tooltest tests a single tool.
package agenttest
