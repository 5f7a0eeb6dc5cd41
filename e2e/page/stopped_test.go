package page_test

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

func TestAPageThatAsksIsToldThatTheConversationWasStopped(t *testing.T) {
	t.Parallel()
	d := harness.StartDev(t, agents())
	o := options{Gateway: d.URL, Texts: []string{"write it"}, Steps: []step{
		{Until: "failed", AsksNobody: true}, {Reload: true}, {Say: "hello"},
	}}
	r := run(t, "answers", o, func(session string) {
		stop(t, d.URL, session)
	})
	r.checkReachable(t)
	r.Looks[0].checkAsks(t, askedToWrite)
	for _, l := range r.Looks[1:] {
		l.checkAsks(t, nil)
		if got := l.Messages[1].Tools[0].State; got != "failed" {
			t.Errorf("the call that nobody will answer is shown as %q, want failed", got)
		}
	}
}

// stop aborts the session. It may have ended before.
func stop(t *testing.T, gateway, session string) {
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, gateway+"/chat/"+url.PathEscape(session)+"/abort", nil)
	if err != nil {
		t.Error(err)
		return
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Error(err)
		return
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusAccepted {
		t.Errorf("the stop was answered with %s", response.Status)
	}
}

func TestAPageThatAsksGoesOnWhenSomebodyElseHasAnswered(t *testing.T) {
	t.Parallel()
	d := harness.StartDev(t, agents())
	o := options{Gateway: d.URL, Texts: []string{"write it"}, Steps: []step{{Until: "completed", AsksNobody: true}}}
	r := run(t, "answers", o, func(session string) { approve(t, d.Client, session) })
	r.checkReachable(t)
	r.last().checkMessages(t, "You: write it", "Agent: It is written.", "Agent calls note, done")
}

func TestAPageSaysWhyAnAnswerHasNotBegun(t *testing.T) {
	t.Parallel()
	const before = 20 // stories in the only slot, longer than a browser takes to start
	d := harness.StartDev(t, agents(), "HOLDFAST_EXECUTOR_SLOTS=1")
	for i := range before {
		d.Chat(t, fmt.Sprint("story-", i), "demo", "Tell me a story")
	}
	r := run(t, "waitForSlot", options{Gateway: d.URL, Texts: []string{"hello"}}, func(string) {
		for i := range before {
			stop(t, d.URL, fmt.Sprint("story-", i))
		}
	})
	r.checkReachable(t)
	r.last().checkMessages(t, "You: hello", "Agent: You said: hello")
}
