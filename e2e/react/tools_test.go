package react_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"testing"
)

// The answer to "where am I".
var (
	whereText = text("Let me look. ")
	located   = call("locate", `{}`, "output-available", `{"city":"Rome"}`)
	inRome    = text("You are in Rome.")
)

// tools test the tools of the page.
var tools = map[string]func(*testing.T, *chat){
	"the page runs its tool and the answer goes on": func(_ *testing.T, c *chat) {
		tab := c.open("")
		tab.say("where am I")
		tab.checkStored(user("where am I"), agent(whereText, located, inRome))
		tab.reload()
		tab.checkStored(user("where am I"), agent(whereText, located, inRome))
		c.checkPosts(said, continued)
		c.checkRuns("locate")
	},

	"the model hears that the page's tool has failed": func(_ *testing.T, c *chat) {
		tab := c.open("")
		tab.say("where am I, if I like to tell")
		tab.checkStored(user("where am I, if I like to tell"), agent(
			call("locate", `{"fail":true}`, "output-error", "the user does not want to be found"), text("Then I do not know.")))
		c.checkPosts(said, continued)
		c.checkRuns("locate")
	},

	"a reload in the middle of what follows the page's tool ends with all of it once": func(_ *testing.T, c *chat) {
		tab := c.open("")
		tab.say("where am I, and a story")
		tab.awaitGrowingText(60)
		tab.reload()
		tab.awaitGrowingText(1)
		tab.checkStored(user("where am I, and a story"), agent(whereText, located, text(story())))
		c.checkPosts(said, continued)
		c.checkRuns("locate")
	},

	"behind a reload the page runs the tool that waits": func(_ *testing.T, c *chat) {
		waits := call("locate", `{"hold":true}`, "input-available", "")
		tab := c.open("")
		tab.say("where am I, hold on")
		tab.checkStored(user("where am I, hold on"), agent(waits))
		tab.reload()
		tab.checkStored(user("where am I, hold on"), agent(waits))
		c.app.release(c.session)
		tab.checkStored(user("where am I, hold on"), agent(call("locate", `{"hold":true}`, "output-available", `{"city":"Rome"}`), inRome))
		c.checkPosts(said, continued)
		c.checkRuns("locate locate")
	},

	"behind a reload the page does not run what it has answered": func(_ *testing.T, c *chat) {
		tab := c.open("")
		tab.say("where am I, and how is it")
		waits := agent(whereText, located, call("survey", `{"hold":true}`, "input-available", ""))
		tab.checkStored(user("where am I, and how is it"), waits)
		tab.reload()
		tab.checkStored(user("where am I, and how is it"), waits)
		c.app.release(c.session)
		tab.checkStored(user("where am I, and how is it"), agent(
			whereText, located, call("survey", `{"hold":true}`, "output-available", `{"city":"Rome"}`), text("It is a nice place, Rome.")))
		c.checkPosts(said, continued, continued)
		c.checkRuns("locate survey survey")
	},

	"two tabs that run the same tool are one answer": func(_ *testing.T, c *chat) {
		waits := call("locate", `{"hold":true}`, "input-available", "")
		a := c.open("")
		a.say("where am I, hold on")
		a.checkStored(user("where am I, hold on"), agent(waits))
		b := c.open("")
		b.checkStored(user("where am I, hold on"), agent(waits))
		c.awaitRuns("locate locate") // a page shows a call before it runs its tool
		c.app.release(c.session)
		done := []string{user("where am I, hold on"), agent(call("locate", `{"hold":true}`, "output-available", `{"city":"Rome"}`), inRome)}
		a.checkStored(done...)
		b.checkStored(done...)
		b.reload()
		b.checkStored(done...)
		c.checkPosts(said, continued, continued)
		c.checkRuns("locate locate")
	},

	"a message instead of a tool's result gives the call up, and no page runs it any more": func(t *testing.T, c *chat) {
		waits := []string{user("where am I, hold on"), agent(call("locate", `{"hold":true}`, "input-available", ""))}
		tab := c.open("")
		tab.say("where am I, hold on")
		tab.checkStored(waits...)
		tab.reload() // starts the tool again, and ends with the pending tool
		tab.checkStored(waits...)
		tab.say("hello")
		answered := []string{user("hello"), agent(text("You said: where am I, hold on, hello"))}
		tab.expectConversation(slices.Concat(waits, answered)...)
		tab.reload()
		l := tab.until("the conversation", func(l look) bool { return l.Status == "ready" && len(l.Messages) == 4 })
		given := callOf(t, l.Messages, "locate")
		tab.checkStored(slices.Concat([]string{waits[0], agent(call("locate", `{"hold":true}`, "output-error", given.ErrorText))}, answered)...)
		c.app.release(c.session)
		tab.say("well")
		tab.until("the answer", func(l look) bool { return l.Status == "ready" && len(l.Messages) == 6 })
		c.checkPosts(said, said, said)
		c.checkRuns("locate locate")
	},

	"what was answered from elsewhere the page does not run": func(t *testing.T, c *chat) {
		const say = "where am I and where is home"
		me := call("locate", `{"of":"me"}`, "output-available", `{"city":"Rome"}`)
		tab := c.open("")
		tab.say(say)
		waits := tab.expectConversation(user(say), agent(me, call("survey", `{"hold":true,"of":"home"}`, "input-available", "")))
		// The page sends after both tools have run. Another client submits the first result.
		located := callOf(t, waits.Messages, "locate")
		c.submit(t, located.ToolCallID, `{"city":"Rome"}`)
		tab.reload()
		tab.expectConversation(user(say), agent(me, call("survey", `{"hold":true,"of":"home"}`, "input-available", "")))
		c.app.release(c.session)
		tab.checkStored(user(say), agent(me, call("survey", `{"hold":true,"of":"home"}`, "output-available", `{"city":"Rome"}`), text("It is a nice place, Rome.")))
		c.checkPosts(said, continued)
		c.checkRuns("locate survey survey")
	},

	"a cut of the connection behind the result of the page's tool costs nothing": func(_ *testing.T, c *chat) {
		c.lost = true
		tab := c.open("")
		tab.say("where am I, hold on")
		tab.expectConversation(user("where am I, hold on"), agent(call("locate", `{"hold":true}`, "input-available", "")))
		c.app.breakNext(c.session, begun)
		c.app.release(c.session)
		tab.checkStored(user("where am I, hold on"), agent(call("locate", `{"hold":true}`, "output-available", `{"city":"Rome"}`), inRome))
		c.checkPosts(said, continued)
		c.checkRuns("locate")
	},

	"what the browser sends once more by itself counts once": func(_ *testing.T, c *chat) {
		c.lost = true
		tab := c.open("")
		c.app.breakNext(c.session, silent)
		tab.say("where am I, hold on")
		tab.expectConversation(user("where am I, hold on"), agent(call("locate", `{"hold":true}`, "input-available", "")))
		c.app.breakNext(c.session, silent)
		c.app.release(c.session)
		tab.checkStored(user("where am I, hold on"), agent(call("locate", `{"hold":true}`, "output-available", `{"city":"Rome"}`), inRome))
		c.checkRuns("locate")
	},
}

// submit submits the result of a tool as another client.
func (c *chat) submit(t *testing.T, callID, result string) {
	t.Helper()
	body := fmt.Sprintf(`{"toolCallId":%q,"result":%s}`, callID, result)
	a := c.Do(t, http.MethodPost, "/chat/"+url.PathEscape(c.session)+"/submit-tool-result", []byte(body))
	if a.Code != http.StatusOK {
		t.Fatalf("the result was not taken: %d %s", a.Code, a.Body)
	}
}
