package react_test

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// shownLimit is how long anything may take to appear.
const shownLimit = 3 * time.Minute

// world is shared by the tests: the system, the app's server and a browser.
type world struct {
	*harness.System
	app      *app
	browser  *browser
	crossing string // a gateway at another, allowed origin
}

// chat is the conversation of one test.
type chat struct {
	*world
	t       *testing.T
	session string
	agent   string
	tabs    int
	lost    bool // the network or the server is unavailable at times
}

// tab is a browser tab with the conversation.
type tab struct {
	*chat
	name string
}

// look is the visible content of a tab.
type look struct {
	Status     string              `json:"status"`
	Alert      string              `json:"alert"`
	Buttons    []string            `json:"buttons"`
	Messages   []harness.UIMessage `json:"messages"`
	Complaints []string            `json:"complaints"`
}

// newChat returns a new conversation of the test.
func (w *world) newChat(t *testing.T) *chat {
	t.Helper()
	name := t.Name()[strings.LastIndex(t.Name(), "/")+1:]
	return &chat{world: w, t: t, session: name, agent: "demo"}
}

// open opens the page in a tab of the test's browser profile, and waits until the page has asked for a running answer:
// a later answer would be sent to it twice. server is the address of the app if it is not the usual one; extra is added
// to the query.
func (c *chat) open(server string, extra ...string) *tab {
	c.t.Helper()
	c.tabs++
	b := &tab{chat: c, name: fmt.Sprintf("%s, tab %d", c.session, c.tabs)}
	query := url.Values{"session": {c.session}, "agent": {c.agent}, "key": {c.Key}}
	for _, more := range extra {
		name, value, _ := strings.Cut(more, "=")
		query.Set(name, value)
	}
	address := cmp.Or(server, c.app.url) + "/?" + query.Encode()
	if c.app.posts(c.session) != "" {
		address += "#begun"
	}
	before := c.app.resumes(c.session)
	c.browser.do(c.t, command{Do: "open", Tab: b.name, Profile: c.session, URL: address}, nil)
	c.t.Cleanup(func() { b.close() })
	if !query.Has("gateway") { // the app does not see those requests
		harness.WaitFor(c.t, shownLimit, b.name+" to ask for a running answer", func() (bool, string) {
			return c.app.resumes(c.session) > before, c.app.traffic(c.session)
		})
	}
	return b
}

// close performs the common checks of every tab and closes it.
func (b *tab) close() {
	b.t.Helper()
	last := b.look()
	networkFailed := func(complaint string) bool {
		return b.lost && strings.HasPrefix(complaint, "Failed to load resource: net::ERR_")
	}
	if complaints := slices.DeleteFunc(last.Complaints, networkFailed); len(complaints) > 0 {
		b.t.Errorf("%s complains: %q", b.name, complaints)
	}
	if b.t.Failed() {
		b.t.Logf("%s shows at the end, %s, with %q:\n%s\nwhat was said:\n%s", b.name, last.Status, last.Alert,
			harness.Transcript(last.Messages), b.app.traffic(b.session))
	}
	b.browser.do(b.t, command{Do: "close", Tab: b.name}, nil)
}

func (b *tab) look() look {
	b.t.Helper()
	var l look
	b.browser.do(b.t, command{Do: "look", Tab: b.name}, &l)
	return l
}

func (b *tab) say(text string) {
	b.t.Helper()
	b.fill("Message", text)
	b.press("Send")
}

// fill replaces the content of a field.
func (b *tab) fill(label, text string) {
	b.t.Helper()
	b.browser.do(b.t, command{Do: "type", Tab: b.name, Label: label, Text: text}, nil)
}

// press clicks the first button of this name.
func (b *tab) press(button string) {
	b.t.Helper()
	b.browser.do(b.t, command{Do: "press", Tab: b.name, Button: button}, nil)
}

func (b *tab) reload() {
	b.t.Helper()
	b.browser.do(b.t, command{Do: "reload", Tab: b.name}, nil)
}

// until polls the tab until wanted reports true.
func (b *tab) until(what string, wanted func(look) bool) look {
	b.t.Helper()
	var l look
	harness.WaitFor(b.t, shownLimit, b.name+" to show "+what, func() (bool, string) {
		l = b.look()
		seen := fmt.Sprintf("%s with %q:\n%s", l.Status, l.Alert, harness.Transcript(l.Messages))
		if l.Status == "error" && !b.lost {
			b.t.Fatalf("waited for %s to show %s; it shows an error: %s", b.name, what, seen)
		}
		return wanted(l), seen
	})
	return l
}

// awaitGrowingText waits until the newest text has this many bytes and is still growing, and returns it.
func (b *tab) awaitGrowingText(length int) string {
	b.t.Helper()
	var text string
	b.until(fmt.Sprintf("%d bytes of an answer", length), func(l look) bool {
		text = lastText(l.Messages)
		return l.Status == "streaming" && len(text) >= length
	})
	if len(text) >= len(story()) {
		b.t.Fatalf("the whole story was there before anything could happen in the middle of it")
	}
	return text
}

func lastText(messages []harness.UIMessage) string {
	if len(messages) == 0 || messages[len(messages)-1].Role != "assistant" {
		return ""
	}
	parts := messages[len(messages)-1].Parts
	for i := len(parts) - 1; i >= 0; i-- {
		if parts[i].Type == "text" {
			return parts[i].Text
		}
	}
	return ""
}

// expectConversation waits until the tab is idle and shows exactly this conversation, in the form of harness.Transcript.
// It returns what the tab shows then. A later look may differ: after a reload, the page shows the stored messages and
// then replays the last answer from its start.
func (b *tab) expectConversation(conversation ...string) look {
	b.t.Helper()
	want := strings.Join(conversation, "")
	return b.until("\n"+want, func(l look) bool {
		return l.Status == "ready" && l.Alert == "" && harness.Transcript(l.Messages) == want
	})
}

// checkStored checks that GET /messages returns the same conversation and ids as the tab. It returns what the tab
// showed then.
func (b *tab) checkStored(conversation ...string) look {
	b.t.Helper()
	shown := b.expectConversation(conversation...)
	stored := b.Messages(b.t, b.session)
	if got, want := harness.Transcript(stored), strings.Join(conversation, ""); got != want {
		b.t.Errorf("GET /messages tells\n%swant\n%s", got, want)
	}
	if got, want := ids(shown.Messages), ids(stored); !slices.Equal(got, want) {
		b.t.Errorf("the page shows messages with the ids %q, GET /messages has %q", got, want)
	}
	return shown
}

func ids(messages []harness.UIMessage) (ids []string) {
	for _, m := range messages {
		ids = append(ids, m.ID)
	}
	return ids
}

// checkPosts compares the requests to /chat.
func (c *chat) checkPosts(want ...string) {
	c.t.Helper()
	if got, want := c.app.posts(c.session), strings.Join(want, "\n"); got != want {
		c.t.Errorf("the pages have posted\n%s\nwant\n%s", got, want)
	}
}

// Requests of pages.
const (
	said      = "submit-message behind user"
	continued = "submit-message behind assistant of a message"
	again     = "regenerate-message behind user"
	edited    = "submit-message behind user of a message"
)

// awaitRuns waits until the pages have run the tools.
func (c *chat) awaitRuns(want string) {
	c.t.Helper()
	harness.WaitFor(c.t, shownLimit, "the pages to run "+want, func() (bool, string) {
		got := c.app.runs(c.session)
		return got == want, got
	})
}

// checkRuns compares the tools executed by the pages.
func (c *chat) checkRuns(want string) {
	c.t.Helper()
	if got := c.app.runs(c.session); got != want {
		c.t.Errorf("the pages have run %q, want %q", got, want)
	}
}

// user and agent describe messages in the form of harness.Transcript.
func user(text string) string { return fmt.Sprintf("user:\n  text %q\n", text) }

func agent(parts ...string) string {
	m := "assistant:\n"
	for _, p := range parts {
		m += "  " + p + "\n"
	}
	return m
}

func text(text string) string { return fmt.Sprintf("text %q", text) }

// call describes a tool call and its outcome.
func call(tool, input, state, outcome string) string {
	return fmt.Sprintf("%s%s %s %s", tool, input, state, outcome)
}
