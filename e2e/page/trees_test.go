package page_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/harness"
)

func TestTheApprovalOfASubAgentIsAskedForInThePage(t *testing.T) {
	t.Parallel()
	d := harness.StartDev(t, agents())
	waits := []string{"You: write it", "Agent calls subagent__clerk, running", "Agent calls note, waits for you", noteRow("write it")}
	for _, test := range []struct{ press, answer string }{{"Approve", "It is written."}, {"Deny", "It stays unwritten."}} {
		for _, reloads := range []bool{false, true} {
			var steps []step
			if reloads {
				steps = append(steps, step{Reload: true})
			}
			steps = append(steps, step{Press: test.press}, step{Reload: true})
			r := run(t, "answers", options{Gateway: d.URL, Agent: "boss", Texts: []string{"write it"}, Steps: steps}, nil)
			r.checkReachable(t)
			for _, l := range r.Looks[:len(r.Looks)-2] {
				l.checkMessages(t, waits...)
				l.checkAsks(t, askedToWrite)
			}
			for _, l := range r.Looks[len(r.Looks)-2:] {
				l.checkAsks(t, nil)
				if got, want := l.Messages[1].Texts, []string{fmt.Sprintf("The clerk says: %q", test.answer)}; !slices.Equal(got, want) {
					t.Errorf("%s: the answer is %q, want %q", test.press, got, want)
				}
			}
		}
	}
}

func TestTheApprovalsOfTwoSubAgentsAreAnsweredOneByOne(t *testing.T) {
	t.Parallel()
	d := harness.StartDev(t, agents())
	o := options{Gateway: d.URL, Agent: "boss", Texts: []string{"write both"}, Steps: []step{
		{Reload: true}, {Press: "Approve"}, {Reload: true}, {Press: "Deny"}, {Reload: true},
	}}
	r := run(t, "answers", o, nil)
	r.checkReachable(t)
	both := slices.Concat(askedToWrite, askedToWrite)
	for i, want := range [][]string{both, both, askedToWrite, askedToWrite, nil, nil} {
		r.Looks[i].checkAsks(t, want)
	}
	for _, l := range r.Looks[4:] {
		if got := l.Messages[1].Texts; len(got) != 1 {
			t.Errorf("the answer is %q, want one text", got)
		}
	}
}

func TestTheUserGivesTheResultOfAToolOfASubAgent(t *testing.T) {
	t.Parallel()
	d := harness.StartDev(t, agents())
	o := options{Gateway: d.URL, Agent: "boss", Texts: []string{"ask me"}, Steps: []step{
		{Reload: true}, {Fill: "Result, as JSON or text", Text: "Rome", Press: "Send result"}, {Reload: true},
	}}
	r := run(t, "answers", o, nil)
	r.checkReachable(t)
	for _, l := range r.Looks[:2] {
		l.checkAsks(t, askedForMore)
	}
	for _, l := range r.Looks[2:] {
		l.checkAsks(t, nil)
		if got, want := l.Messages[1].Texts, []string{`The scout says: "They are in \"Rome\"."`}; !slices.Equal(got, want) {
			t.Errorf("the answer is %q, want %q", got, want)
		}
	}
}
