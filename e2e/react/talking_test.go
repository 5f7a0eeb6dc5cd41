package react_test

import (
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

const tellStory = "tell me a story"

// talking tests conversations without tools of the page and approvals.
var talking = map[string]func(*testing.T, *chat){
	"a message is sent and its answer shown": func(_ *testing.T, c *chat) {
		tab := c.open("")
		tab.say("hello")
		tab.checkStored(user("hello"), agent(text("You said: hello")))
		tab.say("again")
		tab.checkStored(user("hello"), agent(text("You said: hello")), user("again"), agent(text("You said: hello, again")))
		c.checkPosts(said, said)
	},

	"a page of another origin talks to the gateway": func(_ *testing.T, c *chat) {
		tab := c.open("", "gateway="+c.crossing)
		tab.say(tellStory)
		tab.awaitGrowingText(60)
		tab.reload()
		tab.checkStored(user(tellStory), agent(text(story())))
		tab.say("where am I")
		tab.checkStored(user(tellStory), agent(text(story())), user("where am I"), agent(whereText, located, inRome))
		c.checkPosts(said, said, continued)
	},

	"a tool of the server is a card": func(_ *testing.T, c *chat) {
		tab := c.open("")
		tab.say("work it out")
		tab.checkStored(user("work it out"), agent(
			`reasoning "A sum."`, text("Let me see. "),
			call("calculate", `{"expression":"6 * 7"}`, "output-available", `{"value":42}`),
			text("That makes 42.")))
		c.checkPosts(said)
		c.checkRuns("")
	},

	"a reload in the middle of an answer ends with all of it once": func(t *testing.T, c *chat) {
		tab := c.open("")
		tab.say(tellStory)
		tab.awaitGrowingText(60)
		tab.reload()
		if shown := tab.awaitGrowingText(1); !strings.HasPrefix(story(), shown) {
			t.Errorf("behind the reload the answer goes on as %q", shown)
		}
		tab.checkStored(user(tellStory), agent(text(story())))
		c.checkPosts(said)
	},

	"reloads again and again end with all of the answer once": func(_ *testing.T, c *chat) {
		tab := c.open("")
		tab.say(tellStory)
		tab.awaitGrowingText(60)
		tab.reload()
		for range 3 { // on a busy machine the later reloads may come after the end
			tab.until("an answer again", func(l look) bool { return len(lastText(l.Messages)) >= 60 })
			tab.reload()
		}
		tab.checkStored(user(tellStory), agent(text(story())))
		c.checkPosts(said)
	},

	"React's strict mode changes nothing": func(_ *testing.T, c *chat) {
		tab := c.open("", "strict=yes")
		tab.say(tellStory)
		tab.awaitGrowingText(60)
		tab.reload()
		tab.checkStored(user(tellStory), agent(text(story())))
		tab.say("where am I")
		tab.checkStored(user(tellStory), agent(text(story())), user("where am I"), agent(whereText, located, inRome))
		c.checkPosts(said, said, continued)
	},

	"a message of one tab is in the other behind its reload": func(_ *testing.T, c *chat) {
		a, b := c.open(""), c.open("")
		a.say(tellStory)
		a.awaitGrowingText(60)
		second := c.open("")
		second.awaitGrowingText(61)
		conversation := []string{user(tellStory), agent(text(story()))}
		a.checkStored(conversation...)
		second.checkStored(conversation...)
		second.say("hello")
		conversation = append(conversation, user("hello"), agent(text("You said: tell me a story, hello")))
		second.checkStored(conversation...)
		a.reload()
		a.checkStored(conversation...)
		b.expectConversation() // it was opened before the conversation and has not been notified
		c.checkPosts(said, said)
	},

	"a stop ends the answer for everybody": func(t *testing.T, c *chat) {
		tab := c.open("")
		tab.say(tellStory)
		written := tab.awaitGrowingText(60)
		tab.press("Stop")
		l := tab.until("the end of the answer", func(l look) bool { return l.Status == "ready" })
		got := lastText(l.Messages)
		if !strings.HasPrefix(got, written) || got == story() || !strings.HasPrefix(story(), got) {
			t.Errorf("stopped behind %q the answer is %q, want a part of the story that is not shorter", written, got)
		}
		tab.checkStored(user(tellStory), agent(text(got)))
		tab.reload()
		tab.checkStored(user(tellStory), agent(text(got)))
		tab.say("hello")
		tab.checkStored(user(tellStory), agent(text(got)), user("hello"), agent(text("You said: tell me a story, hello")))
		c.checkPosts(said, said)
	},

	"a message is retyped behind a stop of its answer": func(_ *testing.T, c *chat) {
		tab := c.open("")
		tab.say("hello")
		tab.checkStored(user("hello"), agent(text("You said: hello")))
		tab.say(tellStory)
		tab.awaitGrowingText(60)
		tab.press("Stop")
		tab.press("Retype")
		tab.say("bye")
		tab.checkStored(user("hello"), agent(text("You said: hello")), user("bye"), agent(text("You said: hello, bye")))
		tab.reload()
		tab.checkStored(user("hello"), agent(text("You said: hello")), user("bye"), agent(text("You said: hello, bye")))
		c.checkPosts(said, said, said)
	},

	"another answer takes the place of the last one": func(_ *testing.T, c *chat) {
		tab := c.open("")
		tab.say("hello")
		first := tab.checkStored(user("hello"), agent(text("You said: hello")))
		tab.press("Again")
		tab.until("another answer", func(l look) bool { return len(l.Messages) == 2 && l.Messages[1].ID != first.Messages[1].ID })
		tab.checkStored(user("hello"), agent(text("You said: hello")))
		tab.say("more")
		tab.checkStored(user("hello"), agent(text("You said: hello")), user("more"), agent(text("You said: hello, more")))
		tab.reload()
		tab.checkStored(user("hello"), agent(text("You said: hello")), user("more"), agent(text("You said: hello, more")))
		c.checkPosts(said, again, said)
	},

	"an edited message takes back what came behind it": func(_ *testing.T, c *chat) {
		tab := c.open("")
		tab.say("one")
		tab.checkStored(user("one"), agent(text("You said: one")))
		tab.say("two")
		tab.checkStored(user("one"), agent(text("You said: one")), user("two"), agent(text("You said: one, two")))
		tab.press("Edit")
		tab.say("1")
		tab.checkStored(user("1"), agent(text("You said: 1")))
		tab.reload()
		tab.checkStored(user("1"), agent(text("You said: 1")))
		tab.say("2")
		tab.checkStored(user("1"), agent(text("You said: 1")), user("2"), agent(text("You said: 1, 2")))
		c.checkPosts(said, said, edited, said)
	},

	"an answer goes on behind a cut of the network": func(t *testing.T, c *chat) {
		c.lost = true
		proxy := harness.StartProxy(t, c.app.url[len("http://"):])
		tab := c.open(proxy.URL)
		tab.say(tellStory)
		tab.awaitGrowingText(60)
		proxy.CutAll()
		tab.checkStored(user(tellStory), agent(text(story())))
		if proxy.Cuts() == 0 {
			t.Error("the proxy has cut nothing")
		}
		c.checkPosts(said)
	},
}
