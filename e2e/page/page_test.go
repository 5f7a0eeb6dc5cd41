package page_test

import (
	"slices"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

// sumAndStory asks for an answer of two steps. The first step has ended when the story of the second begins.
const sumAndStory = "What is 6 * 7? Then tell me a story"

func toldSumAndStory() []string {
	return []string{"You: " + sumAndStory,
		"Agent: Let me work that out.", "Agent: " + story(), "Agent calls calculate, done"}
}

func TestAMessageIsSentByKeyboardAndItsAnswerAppearsWhole(t *testing.T) {
	t.Parallel()
	d := harness.StartDev(t, agents())
	r := run(t, "turns", options{Gateway: d.URL, Texts: []string{"one line\nand another"}}, nil)
	r.checkReachable(t)
	r.Looks[0].checkMessages(t)
	r.last().checkMessages(t, "You: one line\nand another", "Agent: You said: one line\nand another")
}

// The address of a chat may exist before the chat.
func TestTheConsoleOfAChatThatHasNotBegunIsEmpty(t *testing.T) {
	t.Parallel()
	d := harness.StartDev(t, agents())
	r := run(t, "turns", options{Gateway: d.URL + "/#new", Texts: []string{"one"}}, nil)
	r.checkReachable(t)
	r.last().checkMessages(t, "You: one", "Agent: You said: one")
}

func TestASuggestionOfTheEmptyPageIsSent(t *testing.T) {
	t.Parallel()
	d := harness.StartDev(t, agents())
	r := run(t, "choose", options{Gateway: d.URL, Texts: []string{"help"}}, nil)
	r.checkReachable(t)
	if got, want := r.Looks[0].Ideas, []string{"What is 6 * 7?", "What is 1234 * 5678?", "Tell me a story", "help"}; !slices.Equal(got, want) {
		t.Errorf("the empty page suggests %q, want %q", got, want)
	}
	if got := r.last().Ideas; len(got) > 0 {
		t.Errorf("the conversation suggests %q, want nothing", got)
	}
	r.last().checkMessages(t, "You: help", "Agent: You said: help")
}

func TestAToolCardShowsNameInputAndOutput(t *testing.T) {
	t.Parallel()
	d := harness.StartDev(t, agents())
	r := run(t, "turnsAndCards", options{Gateway: d.URL, Texts: []string{"What is 6 * 7?"}}, nil)
	r.checkReachable(t)
	r.Looks[1].checkMessages(t, "You: What is 6 * 7?",
		"Agent: Let me work that out.", "Agent: That makes 42.", "Agent calls calculate, done")
	r.Looks[2].checkMessages(t, "You: What is 6 * 7?",
		"Agent: Let me work that out.", "Agent: That makes 42.", "Agent calls calculate, done",
		`Input: {"expression":"6 * 7"}`, `Output: {"value":42}`)
}

func TestAReloadInTheMiddleOfAnAnswerEndsWithAllOfItOnce(t *testing.T) {
	t.Parallel()
	d := harness.StartDev(t, agents())
	r := run(t, "reload", options{Gateway: d.URL, Texts: []string{sumAndStory}, Half: len(story()) / 4}, nil)
	r.checkReachable(t)
	r.checkCut(t, story())
	r.last().checkMessages(t, toldSumAndStory()...)
}

func TestASecondTurnIsAddedBelowAndSurvivesAReload(t *testing.T) {
	t.Parallel()
	d := harness.StartDev(t, agents())
	r := run(t, "turnsAndReload", options{Gateway: d.URL, Texts: []string{"one", "What is 6 * 7?", "three"}}, nil)
	r.checkReachable(t)
	first := []string{"You: one", "Agent: You said: one"}
	second := []string{"You: What is 6 * 7?", "Agent: Let me work that out.", "Agent: That makes 42.", "Agent calls calculate, done"}
	third := []string{"You: three", "Agent: You said: one · What is 6 * 7? · three"}
	r.Looks[1].checkMessages(t, first...)
	r.Looks[2].checkMessages(t, slices.Concat(first, second)...)
	r.Looks[3].checkMessages(t, slices.Concat(first, second, third)...)
	r.Looks[4].checkMessages(t, slices.Concat(first, second, third)...)
}

func TestANewChatLeavesTheOldOneInTheHistory(t *testing.T) {
	t.Parallel()
	d := harness.StartDev(t, agents())
	r := run(t, "newChat", options{Gateway: d.URL, Texts: []string{"old", "new"}}, nil)
	r.checkReachable(t)
	r.Looks[1].checkMessages(t)
	r.Looks[2].checkMessages(t, "You: new", "Agent: You said: new")
	r.Looks[3].checkMessages(t, "You: old", "Agent: You said: old")
	r.Looks[4].checkMessages(t, "You: new", "Agent: You said: new")
}

func TestAnOpenPageOutlivesTheKillOfItsServer(t *testing.T) {
	t.Parallel()
	d := harness.StartDev(t, agents())
	o := options{Gateway: d.URL, Texts: []string{sumAndStory}, Half: len(story()) / 4}
	r := run(t, "outlive", o, func(moment string) {
		switch moment {
		case "half":
			d.Kill()
		case "lost":
			d.Start()
		}
	})
	r.checkCut(t, story())
	r.last().checkMessages(t, toldSumAndStory()...)
}

func TestAMessageToAServerThatIsAwayIsSentOnceWhenItComesBack(t *testing.T) {
	t.Parallel()
	d := harness.StartDev(t, agents())
	r := run(t, "sayToNobody", options{Gateway: d.URL, Texts: []string{"are you there?"}}, func(moment string) {
		switch moment {
		case "open":
			d.Kill()
		case "lost":
			d.Start()
		}
	})
	r.last().checkMessages(t, "You: are you there?", "Agent: You said: are you there?")
}

func TestAnAnswerThatEndedWhileTheNetworkWasAwayIsShownWhole(t *testing.T) {
	t.Parallel()
	d := harness.StartDev(t, agents())
	p := harness.StartProxy(t, d.Address)
	o := options{Gateway: p.URL, Direct: d.URL, Texts: []string{"Tell me a story"}, Half: len(story()) / 4}
	r := run(t, "comeLate", o, func(string) { p.CutOnceAfter(1) })
	r.checkCut(t, story())
	r.last().checkMessages(t, "You: Tell me a story", "Agent: "+story())
}

func TestADarkAndNarrowPageHoldsEverything(t *testing.T) {
	t.Parallel()
	d := harness.StartDev(t, agents())
	o := options{Gateway: d.URL, Width: 360, Height: 640, Dark: true, Texts: []string{"long", "What is 6 * 7?"}}
	r := run(t, "turnsAndCards", o, nil)
	r.checkReachable(t)
	if got := len(r.last().Messages); got != 4 {
		t.Errorf("got %d messages, want 4", got)
	}
	for _, l := range r.Looks { // every scenario checks the page for overflow
		if dark, light := brightness(t, l.Ground), brightness(t, l.Ink); dark > 64 || light < 192 {
			t.Errorf("the page is %s on %s, want light on dark", l.Ink, l.Ground)
		}
	}
}

func TestTextThatLooksLikeHTMLIsText(t *testing.T) {
	t.Parallel()
	d := harness.StartDev(t, agents())
	say := "markup " + markup
	r := run(t, "turnsAndCards", options{Gateway: d.URL, Texts: []string{say}}, nil)
	r.checkReachable(t)
	r.Looks[1].checkMessages(t, "You: "+say,
		"Agent: "+markup, "Agent: That is no sum.", "Agent calls calculate, failed")
	if rows := r.last().Messages[1].Tools[0].Rows; len(rows) == 0 || rows[0] != `Input: {"expression":"<b>1</b>"}` {
		t.Errorf("the card shows %q", rows)
	}
}
