package react_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// The parts of a tree: a boss with a manager, who has a clerk.
const subAgent = "data-subagent"

func managed(what, state, outcome string) string {
	return call("subagent__manager", fmt.Sprintf(`{"message":%q}`, what), state, outcome)
}

// trees test conversations with sub-agents.
var trees = map[string]func(*testing.T, *chat){
	"an approval two levels down is answered in the page through reloads": func(_ *testing.T, c *chat) {
		const what = "agreed"
		c.agent = "boss"
		tab := c.open("")
		tab.say(what)
		tab.until("both sub-agents at work", func(l look) bool { return len(shownSubAgents(l.Messages)) == 2 })
		tab.reload()
		tab.checkStored(user(what), agent(managed(what, "input-available", ""), subAgent, subAgent, asked(what)))
		tab.reload()
		tab.checkStored(user(what), agent(managed(what, "input-available", ""), subAgent, subAgent, asked(what)))
		c.checkNotes(what, 0)
		tab.press("Approve")
		const answer = "The clerk says: It is done."
		done := []string{user(what), agent(managed(what, "output-available", fmt.Sprintf("%q", answer)), subAgent, subAgent, text("The manager says: "+answer))}
		tab.checkStored(done...)
		live := shownSubAgents(tab.until("both sub-agents at the end", func(l look) bool { return l.Status == "ready" && len(shownSubAgents(l.Messages)) == 2 }).Messages)
		tab.reload()
		tab.checkStored(done...)
		tab.until(fmt.Sprintf("the sub-agents %q as before the reload", live), func(l look) bool { return slices.Equal(live, shownSubAgents(l.Messages)) })
		c.checkNotes(what, 1)
		c.checkPosts(said, continued)
	},

	"a denial two levels down reaches the root": func(_ *testing.T, c *chat) {
		const what = "rejected"
		c.agent = "boss"
		tab := c.open("")
		tab.say(what)
		tab.checkStored(user(what), agent(managed(what, "input-available", ""), subAgent, subAgent, asked(what)))
		tab.press("Deny")
		const answer = "The clerk says: It stays unwritten."
		tab.checkStored(user(what), agent(managed(what, "output-available", fmt.Sprintf("%q", answer)), subAgent, subAgent, text("The manager says: "+answer)))
		c.checkNotes(what, 0)
	},
}

// shownSubAgents returns the data of the sub-agents in the messages.
func shownSubAgents(messages []harness.UIMessage) []string {
	var list []string
	for _, m := range messages {
		for _, p := range m.Parts {
			if p.Type == subAgent {
				list = append(list, string(p.Data))
			}
		}
	}
	return list
}
