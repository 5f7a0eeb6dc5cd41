package page_test

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

var (
	askedToWrite = []string{"May note be called?", "Reason, if there is one", "Approve", "Deny"}
	askedForMore = []string{"What is the result of ask_user?", "Result, as JSON or text", "Send result", "Send as failure"}
)

// noteRow is the input of a note call on its card.
func noteRow(what string) string { return fmt.Sprintf(`Input: {"text":%q}`, what) }

func TestACallThatNeedsAYesIsApproved(t *testing.T) {
	t.Parallel()
	d := harness.StartDev(t, agents())
	r := run(t, "answers", options{Gateway: d.URL, Texts: []string{"write it"}, Steps: []step{{Press: "Approve"}, {Reload: true}}}, nil)
	r.checkReachable(t)
	r.Looks[0].checkMessages(t, "You: write it", "Agent calls note, waits for you", noteRow("it"))
	r.Looks[0].checkAsks(t, askedToWrite)
	r.Looks[1].checkMessages(t, written...)
	r.last().checkMessages(t, "You: write it", "Agent: It is written.", "Agent calls note, done")
}

func TestACallThatNeedsAYesIsDeniedByKeyboardWithAReason(t *testing.T) {
	t.Parallel()
	d := harness.StartDev(t, agents())
	o := options{Gateway: d.URL, Texts: []string{"write it"}, Width: 360, Height: 640, Steps: []step{
		{Fill: "Reason, if there is one", Text: "not today"},
		{Press: "Deny", Keyboard: true},
		{Reload: true},
	}}
	r := run(t, "answers", o, nil)
	r.checkReachable(t)
	r.Looks[2].checkMessages(t, "You: write it", "Agent: It stays unwritten.", "Agent calls note, refused", noteRow("it"), "Reason: not today")
	r.last().checkMessages(t, "You: write it", "Agent: It stays unwritten.", "Agent calls note, refused")
}

func TestTheUserGivesTheResultOfATool(t *testing.T) {
	t.Parallel()
	d := harness.StartDev(t, agents())
	for said, heard := range map[string]string{`{"city":"Rome"}`: `{"city":"Rome"}`, "in Rome": `"in Rome"`} {
		o := options{Gateway: d.URL, Texts: []string{"ask me"}, Steps: []step{
			{Fill: "Result, as JSON or text", Text: said, Press: "Send result"}, {Reload: true},
		}}
		r := run(t, "answers", o, nil)
		r.checkReachable(t)
		r.Looks[0].checkMessages(t, "You: ask me", "Agent: A question.", "Agent calls ask_user, waits for you", `Input: {"question":"Where are you?"}`)
		r.Looks[0].checkAsks(t, askedForMore)
		r.last().checkMessages(t, "You: ask me", "Agent: A question.", "Agent: You answered "+heard+".", "Agent calls ask_user, done")
	}
}

func TestTheUserSaysThatAToolHasFailed(t *testing.T) {
	t.Parallel()
	d := harness.StartDev(t, agents())
	o := options{Gateway: d.URL, Texts: []string{"ask me"}, Steps: []step{
		{Fill: "Result, as JSON or text", Text: "nobody is here", Press: "Send as failure"},
	}}
	r := run(t, "answers", o, nil)
	r.checkReachable(t)
	r.last().checkMessages(t, "You: ask me", "Agent: A question.", `Agent: You answered {"error":"nobody is here"}.`,
		"Agent calls ask_user, failed", `Input: {"question":"Where are you?"}`, "Error: nobody is here")
}

func TestAPageThatIsLoadedAnewAsksAgain(t *testing.T) {
	t.Parallel()
	d := harness.StartDev(t, agents())
	o := options{Gateway: d.URL, Texts: []string{"write both"}, Steps: []step{
		{Reload: true}, {Press: "Approve"}, {Reload: true}, {Press: "Deny"},
	}}
	r := run(t, "answers", o, nil)
	r.checkReachable(t)
	waits := []string{"You: write both", "Agent calls note, waits for you", noteRow("left"), "Agent calls note, waits for you", noteRow("right")}
	r.Looks[0].checkMessages(t, waits...)
	r.Looks[1].checkMessages(t, waits...)
	r.Looks[1].checkAsks(t, slices.Concat(askedToWrite, askedToWrite))
	r.Looks[2].checkAsks(t, askedToWrite)
	r.Looks[3].checkAsks(t, askedToWrite)
	tools := r.last().Messages[1].Tools
	if len(tools) != 2 || tools[0].State != "done" || tools[1].State != "refused" {
		t.Errorf("the cards show %+v, want the first call done and the second refused", tools)
	}
	r.last().checkAsks(t, nil)
}

func TestAMessageTakesThePlaceOfAnAnswer(t *testing.T) {
	t.Parallel()
	d := harness.StartDev(t, agents())
	o := options{Gateway: d.URL, Texts: []string{"write it"}, Steps: []step{{Say: "hello"}, {Reload: true}}}
	r := run(t, "answers", o, nil)
	r.checkReachable(t)
	for _, l := range r.Looks[1:] {
		l.checkAsks(t, nil)
		if got := l.Messages[1].Tools[0].State; got != "failed" {
			t.Errorf("the call that was given up is shown as %q, want failed", got)
		}
		if got, want := l.Messages[3].Texts, []string{"You said: write it · hello"}; !slices.Equal(got, want) {
			t.Errorf("the answer is %q, want %q", got, want)
		}
	}
}

func TestAnApprovalGivenToAServerThatIsAwayCountsOnce(t *testing.T) {
	t.Parallel()
	d := harness.StartDev(t, agents())
	o := options{Gateway: d.URL, Texts: []string{"write it"}, Steps: []step{{Until: "gone", Press: "Approve", Notice: "lost"}}}
	r := run(t, "answers", o, func(moment string) {
		if moment == "lost" {
			d.Start()
		} else {
			d.Kill()
		}
	})
	r.last().checkMessages(t, written...)
}

func TestAnAnswerThatComesTooLateShowsWhatHasBecomeOfTheCall(t *testing.T) {
	t.Parallel()
	d := harness.StartDev(t, agents())
	o := options{Gateway: d.URL, Texts: []string{"write it"}, Steps: []step{{Until: "completed", Press: "Deny"}}}
	r := run(t, "answers", o, func(session string) { approve(t, d.Client, session) })
	r.checkReachable(t)
	r.last().checkMessages(t, written...)
}

func TestAnAnswerToACallThatWasGivenUpShowsTheConversationAsItIs(t *testing.T) {
	t.Parallel()
	d := harness.StartDev(t, agents())
	o := options{Gateway: d.URL, Texts: []string{"write it"}, Steps: []step{{Until: "completed", Press: "Approve"}}, Refused: true}
	r := run(t, "answers", o, func(session string) {
		d.Chat(t, session, "demo", "hello").ReadAll()
	})
	last := r.last()
	last.checkAsks(t, nil)
	if n := len(last.Messages); n != 4 || !slices.Equal(last.Messages[n-1].Texts, []string{"You said: write it · hello"}) {
		t.Errorf("the page shows\n%s\nwant what somebody else has said, and its answer", last.transcript())
	}
	if last.Notice == "" {
		t.Error("the page does not say that the answer came too late")
	}
}

// written is the conversation after the approval of "write it".
var written = []string{"You: write it", "Agent: It is written.", "Agent calls note, done", noteRow("it"), `Output: {"written":true}`}

// approve answers the pending call from outside the page.
func approve(t *testing.T, c harness.Client, session string) {
	t.Helper()
	for _, m := range c.Messages(t, session) {
		for _, p := range m.Parts {
			if p.Approval == nil {
				continue
			}
			body := fmt.Sprintf(`{"kind":"approval-response","toolCallId":%q,"approvalId":%q,"approved":true}`, p.ToolCallID, p.Approval.ID)
			a := c.Do(t, http.MethodPost, "/chat/"+url.PathEscape(session)+"/submit-tool-result", []byte(body))
			if a.Code != http.StatusOK {
				t.Errorf("the approval was not taken: %d %s", a.Code, a.Body)
			}
		}
	}
}

func TestTheDemoAsksAndGoesOn(t *testing.T) {
	t.Parallel()
	demo, err := os.ReadFile("../../internal/demo/scripted.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d := harness.StartDev(t, string(demo))
	o := options{Gateway: d.URL, Texts: []string{"What is 1234 * 5678?"}, Dark: true, Steps: []step{
		{Press: "Approve"},
		{Say: "What is 1234 * 5678?"},
		{Press: "Deny"},
		{Say: "ask me something"},
		{Fill: "Result, as JSON or text", Text: "green", Press: "Send result"},
		{Say: "ask me something else"},
		{Say: "hello"},
	}}
	r := run(t, "answers", o, nil)
	r.checkReachable(t)
	for i, want := range map[int]string{
		1: "That makes 7006652.",
		3: "Then I leave that sum alone.",
		5: `You said "green". I would have waited for that for a day, and needed no memory meanwhile.`,
		7: "You said “hello”. I only follow a script; say help to hear what it holds.",
	} {
		messages := r.Looks[i].Messages
		texts := messages[len(messages)-1].Texts
		if len(texts) == 0 || texts[len(texts)-1] != want {
			t.Errorf("look %d ends with %q, want %q", i, texts, want)
		}
	}
}

// checkAsks compares the questions on all cards.
func (l look) checkAsks(t *testing.T, want []string) {
	t.Helper()
	var got []string
	for _, m := range l.Messages {
		for _, tool := range m.Tools {
			got = append(got, tool.Asks...)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the user is asked %q, want %q", got, want)
	}
}
