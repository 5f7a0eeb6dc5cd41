package react_test

import (
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// tabs test one tab while something happens in another.
var tabs = map[string]func(*testing.T, *chat){
	"a tab that was cut has the end that another one has seen": func(t *testing.T, c *chat) {
		const tellStory = "tell me a slow story" // a second tab opens in the middle, on a busy machine too
		c.lost = true
		proxy := harness.StartProxy(t, c.app.url[len("http://"):])
		lost := c.open(proxy.URL)
		lost.say(tellStory)
		lost.awaitGrowingText(60)
		stays := c.open("")
		stays.awaitGrowingText(61)
		proxy.Switch(harness.FreeAddress(t)) // nothing listens there
		proxy.CutAll()
		conversation := []string{user(tellStory), agent(text(story()))}
		stays.checkStored(conversation...)
		if seen := lastText(lost.look().Messages); seen == story() {
			t.Error("the tab had the whole story before the network was back")
		}
		proxy.Switch(c.app.url[len("http://"):])
		lost.checkStored(conversation...)
		c.checkPosts(said)
	},
}
