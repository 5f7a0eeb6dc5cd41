package react_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

var mayI = text("May I? ")

// approvals test calls that wait for the user's approval.
var approvals = map[string]func(*testing.T, *chat){
	"an approved call is made once": func(_ *testing.T, c *chat) {
		tab := c.open("")
		tab.say("write approved")
		tab.checkStored(user("write approved"), agent(mayI, asked("approved")))
		c.checkNotes("approved", 0)
		tab.press("Approve")
		done := []string{user("write approved"), agent(mayI, written("approved"), text("It is done."))}
		tab.checkStored(done...)
		tab.reload()
		tab.checkStored(done...)
		c.checkNotes("approved", 1)
		c.checkPosts(said, continued)
	},

	"a denied call is not made, and the reason is kept": func(_ *testing.T, c *chat) {
		tab := c.open("")
		tab.say("write denied")
		tab.checkStored(user("write denied"), agent(mayI, asked("denied")))
		tab.fill("Reason", "not today")
		tab.press("Deny")
		done := []string{user("write denied"), agent(mayI, denied("denied"), text("It stays unwritten."))}
		for range 2 {
			tab.checkStored(done...)
			tab.until("the reason of the denial", func(l look) bool {
				calls := callsOf(l.Messages, "note")
				return len(calls) == 1 && calls[0].Approval != nil && calls[0].Approval.Reason == "not today"
			})
			tab.reload()
		}
		c.checkNotes("denied", 0)
		c.checkPosts(said, continued)
	},

	"an approval waits through a reload": func(_ *testing.T, c *chat) {
		tab := c.open("")
		tab.say("write tomorrow")
		waits := []string{user("write tomorrow"), agent(mayI, asked("tomorrow"))}
		tab.checkStored(waits...)
		for range 2 {
			tab.reload()
			tab.checkStored(waits...)
		}
		tab.press("Approve")
		tab.checkStored(user("write tomorrow"), agent(mayI, written("tomorrow"), text("It is done.")))
		c.checkNotes("tomorrow", 1)
		c.checkPosts(said, continued)
	},

	"a reload in the middle of what follows an approval ends with all of it once": func(t *testing.T, c *chat) {
		const say = "write tale and tell me a story"
		uncut := c.another("uncut")
		tab := uncut.open("")
		tab.say(say)
		tab.expectConversation(user(say), agent(mayI, asked("tale")))
		tab.press("Approve")
		tab.checkStored(user(say), agent(mayI, written("tale"), text(story())))

		tab = c.open("")
		tab.say(say)
		tab.expectConversation(user(say), agent(mayI, asked("tale")))
		tab.press("Approve")
		tab.awaitGrowingText(60)
		tab.reload()
		tab.awaitGrowingText(1)
		tab.checkStored(user(say), agent(mayI, written("tale"), text(story())))
		got, want := c.Messages(t, c.session), c.Messages(t, uncut.session)
		if got, want := harness.Transcript(got), harness.Transcript(want); got != want {
			t.Errorf("GET /messages tells\n%s\nand of the conversation without a reload\n%s", got, want)
		}
		c.checkNotes("tale", 2)
		c.checkPosts(said, continued)
	},

	"two calls go on when both are answered": func(_ *testing.T, c *chat) {
		tab := c.open("")
		tab.say("write both please")
		tab.checkStored(user("write both please"), agent(asked("left"), asked("right")))
		tab.press("Approve")
		responded := call("note", `{"text":"left"}`, "approval-responded", "")
		tab.expectConversation(user("write both please"), agent(responded, asked("right")))
		tab.press("Deny")
		tab.checkStored(user("write both please"), agent(written("left"), denied("right"), text("It stays unwritten.")))
		c.checkNotes("left", 1)
		c.checkNotes("right", 0)
		c.checkPosts(said, continued)
	},

	"a step of all kinds of calls goes on when everything is answered": func(_ *testing.T, c *chat) {
		const say = "write where I am"
		sum := call("calculate", `{"expression":"6 * 7"}`, "output-available", `{"value":42}`)
		tab := c.open("")
		tab.say(say)
		tab.expectConversation(user(say), agent(located, asked("place"), sum))
		tab.press("Approve")
		tab.checkStored(user(say), agent(located, written("place"), sum, text("It is done.")))
		tab.reload()
		tab.checkStored(user(say), agent(located, written("place"), sum, text("It is done.")))
		c.checkNotes("place", 1)
		c.checkRuns("locate")
		c.checkPosts(said, continued)
	},

	"what one tab approves the other one sees": func(_ *testing.T, c *chat) {
		a := c.open("")
		a.say("write shared")
		waits := []string{user("write shared"), agent(mayI, asked("shared"))}
		a.checkStored(waits...)
		b := c.open("")
		b.checkStored(waits...)
		a.press("Approve")
		done := []string{user("write shared"), agent(mayI, written("shared"), text("It is done."))}
		a.checkStored(done...)
		b.reload()
		b.checkStored(done...)
		c.checkNotes("shared", 1)
		c.checkPosts(said, continued)
	},

	"a tab that approves late shows what has become of the call": func(_ *testing.T, c *chat) {
		a := c.open("")
		a.say("write late")
		a.checkStored(user("write late"), agent(mayI, asked("late")))
		b := c.open("")
		b.checkStored(user("write late"), agent(mayI, asked("late")))
		a.press("Deny")
		done := []string{user("write late"), agent(mayI, denied("late"), text("It stays unwritten."))}
		a.checkStored(done...)
		b.press("Approve")
		b.checkStored(done...)
		c.checkNotes("late", 0)
		c.checkPosts(said, continued, continued)
	},

	"of an approval and a denial at once one counts, and both tabs show it": func(_ *testing.T, c *chat) {
		for round := range 4 {
			c.another(fmt.Sprint(round)).dispute(fmt.Sprintf("disputed%d", round))
		}
	},

	"a message instead of an answer gives the call up": func(t *testing.T, c *chat) {
		tab := c.open("")
		tab.say("write instead")
		tab.checkStored(user("write instead"), agent(mayI, asked("instead")))
		tab.say("hello")
		answered := []string{user("hello"), agent(text("You said: write instead, hello"))}
		tab.expectConversation(slices.Concat([]string{user("write instead"), agent(mayI, asked("instead"))}, answered)...)
		tab.reload()
		l := tab.until("the conversation", func(l look) bool { return l.Status == "ready" && len(l.Messages) == 4 })
		given := callOf(t, l.Messages, "note")
		if given.State != "output-error" || given.ErrorText == "" {
			t.Errorf("the call that was given up is shown as %s with %q, want output-error with a text", given.State, given.ErrorText)
		}
		tab.checkStored(slices.Concat([]string{user("write instead"), agent(mayI, call("note", `{"text":"instead"}`, given.State, given.ErrorText))}, answered)...)
		c.checkNotes("instead", 0)
		c.checkPosts(said, said)
	},

	"a network that is away while the user approves costs nothing": func(t *testing.T, c *chat) {
		c.lost = true
		tab := c.open("")
		tab.say("write bravely")
		waits := []string{user("write bravely"), agent(mayI, asked("bravely"))}
		tab.checkStored(waits...)
		c.browser.do(t, command{Do: "offline", Tab: tab.name, Off: true}, nil)
		tab.press("Approve")
		tab.until("the loss", func(l look) bool { return l.Alert != "" })
		c.checkNotes("bravely", 0)
		c.browser.do(t, command{Do: "offline", Tab: tab.name}, nil)
		tab.checkStored(waits...) // the server never received the answer
		tab.press("Approve")
		tab.checkStored(user("write bravely"), agent(mayI, written("bravely"), text("It is done.")))
		c.checkNotes("bravely", 1)
		c.checkPosts(said, continued)
	},

	"an answer to an approval goes on behind a cut of the network": func(t *testing.T, c *chat) {
		const say = "write cut and tell me a story"
		c.lost = true
		proxy := harness.StartProxy(t, strings.TrimPrefix(c.app.url, "http://"))
		tab := c.open(proxy.URL)
		tab.say(say)
		tab.checkStored(user(say), agent(mayI, asked("cut")))
		tab.press("Approve")
		tab.awaitGrowingText(60)
		proxy.CutAll()
		tab.checkStored(user(say), agent(mayI, written("cut"), text(story())))
		c.checkNotes("cut", 1)
		c.checkPosts(said, continued)
	},
}

// A call of note in its possible states.
func asked(what string) string {
	return call("note", fmt.Sprintf(`{"text":%q}`, what), "approval-requested", "")
}

func written(what string) string {
	return call("note", fmt.Sprintf(`{"text":%q}`, what), "output-available", `{"written":true}`)
}

func denied(what string) string {
	return call("note", fmt.Sprintf(`{"text":%q}`, what), "output-denied", "")
}

// checkNotes counts the notes actually written. Their random keys may contain any short word.
func (c *chat) checkNotes(what string, want int) {
	c.t.Helper()
	if got := c.Effects.Lines(fmt.Sprintf(`"text":%q`, what)); len(got) != want {
		c.t.Errorf("it was written %d times, want %d: %q", len(got), want, got)
	}
}

// another starts another conversation of the test.
func (c *chat) another(name string) *chat {
	other := *c
	other.session, other.tabs = c.session+" "+name, 0
	return &other
}

// dispute approves a call in one tab and denies it in another at the same time.
func (c *chat) dispute(what string) {
	c.t.Helper()
	a := c.open("")
	a.say("write " + what)
	waits := []string{user("write " + what), agent(mayI, asked(what))}
	a.checkStored(waits...)
	b := c.open("")
	b.checkStored(waits...)
	pressed := make(chan error, 1)
	go func() { pressed <- c.browser.ask(command{Do: "press", Tab: b.name, Button: "Deny"}, nil) }()
	a.press("Approve")
	if err := <-pressed; err != nil {
		c.t.Fatal(err)
	}
	yes := []string{user("write " + what), agent(mayI, written(what), text("It is done."))}
	no := []string{user("write " + what), agent(mayI, denied(what), text("It stays unwritten."))}
	l := a.until("an end", func(l look) bool {
		seen := harness.Transcript(l.Messages)
		return l.Status == "ready" && (seen == strings.Join(yes, "") || seen == strings.Join(no, ""))
	})
	want, notes := yes, 1
	if callOf(c.t, l.Messages, "note").State == "output-denied" {
		want, notes = no, 0
	}
	for _, tab := range []*tab{a, b} {
		tab.checkStored(want...)
		tab.reload()
		tab.checkStored(want...)
	}
	c.checkNotes(what, notes)
	c.checkPosts(said, continued, continued)
}

// callsOf returns the calls of a tool in the messages.
func callsOf(messages []harness.UIMessage, tool string) (found []harness.UIPart) {
	for _, m := range messages {
		for _, p := range m.Parts {
			if p.Tool() == tool {
				found = append(found, p)
			}
		}
	}
	return found
}

// callOf returns the only call of a tool in the messages of one look.
func callOf(t *testing.T, messages []harness.UIMessage, tool string) harness.UIPart {
	t.Helper()
	found := callsOf(messages, tool)
	if len(found) != 1 {
		t.Fatalf("%d calls of %s are shown, want 1:\n%s", len(found), tool, harness.Transcript(messages))
	}
	return found[0]
}
