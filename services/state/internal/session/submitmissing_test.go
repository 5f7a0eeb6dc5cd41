package session

import (
	"errors"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// planned shows a session whose live run has recorded a plan with the calls, and of those
// the results of some.
func planned(calls []string, ended ...string) *View {
	v := owned()
	v.Journal = &Journal{Step: 4, Plan: []byte("plan"), CallIDs: calls}
	for _, id := range ended {
		v.Journal.Results = append(v.Journal.Results, Result{CallID: id})
	}
	return v
}

func TestAnAnswerToACallThatIsNotThereIsToldWhy(t *testing.T) {
	t.Parallel()
	failed := stoppedWith(Failed)
	opened := suspended()
	opened.Named = []Call{{CallID: "c", SessionID: "below"}}
	elsewhere := suspended().knows("k", Active)
	elsewhere.Children[0].Location = Remote
	for name, c := range map[string]struct {
		view   *View
		kind   fault.Kind
		reason string
	}{
		"there is no session":               {&View{}, fault.NotFound, "UNKNOWN_TOOL_CALL"},
		"it waits for others":               {suspended(), fault.NotFound, "UNKNOWN_TOOL_CALL"},
		"it is completed":                   {stoppedWith(Completed), fault.NotFound, "UNKNOWN_TOOL_CALL"},
		"it was interrupted":                {stoppedWith(Interrupted), fault.NotFound, "UNKNOWN_TOOL_CALL"},
		"it has failed":                     {failed, fault.Conflict, "OWNER_NOT_CONTINUABLE"},
		"the live run may ask it":           {owned(), fault.Unavailable, "CALL_NOT_OPEN"},
		"the live run has planned it":       {planned([]string{"a", "c"}, "a"), fault.Unavailable, "CALL_NOT_OPEN"},
		"the live run has planned others":   {planned([]string{"a", "b"}), fault.NotFound, "UNKNOWN_TOOL_CALL"},
		"the live run has ended it":         {planned([]string{"a", "c"}, "c"), fault.NotFound, "UNKNOWN_TOOL_CALL"},
		"a sub-session runs":                {suspended().knows("k", Active), fault.Unavailable, "CALL_NOT_OPEN"},
		"one may run below a sub-session":   {suspended().knows("k", SuspendedAwaitingChildren), fault.Unavailable, "CALL_NOT_OPEN"},
		"a sub-session waits":               {suspended().knows("k", SuspendedClientTool), fault.NotFound, "UNKNOWN_TOOL_CALL"},
		"a session of another service runs": {elsewhere, fault.NotFound, "UNKNOWN_TOOL_CALL"},
		"it was opened meanwhile":           {opened, fault.Unavailable, "CALL_NOT_OPEN"},
	} {
		change, _, err := Missing{Key: ours, CallID: "c"}.Decide(c.view)
		if f, ok := fault.From(err); !ok || f.Kind != c.kind || f.Reason != c.reason || change != nil {
			t.Errorf("%s: got %v, want %v (%s)", name, err, c.kind, c.reason)
		}
	}
}

func TestAMessageWithTheAnswerToAPlannedCallDoesNotWait(t *testing.T) {
	t.Parallel()
	c := Send{Post: Post{Key: ours, RunID: "next", Messages: []Message{{ID: "new"}}, Now: 50, Abandon: gone, OnBusy: BusyEnqueue, Answers: submitAll("server", "c").Answers, Limits: Limits{Waiting: 9}}}
	v := planned([]string{"server", "c"}, "server")
	blind := *v
	blind.Live, blind.Journal = nil, nil
	_, _, err := c.Decide(&blind)
	wider, ok := errors.AsType[*Wider](err)
	if !ok || len(wider.Targets) != 1 || wider.Targets[0].Key != ours || !wider.Targets[0].Need.Journal || !wider.Targets[0].Need.Open {
		t.Fatalf("got %v, want it to ask for the run's plan", err)
	}
	change, _, err := c.Decide(v)
	refused(t, err, fault.Unavailable, "CALL_NOT_OPEN")
	if change != nil {
		t.Errorf("got %+v written", change)
	}
	for name, v := range map[string]*View{
		"the call is opened": func() *View {
			v := planned([]string{"server", "c"}, "server")
			v.Named = []Call{call("c")}
			return v
		}(),
		"both have ended":     planned([]string{"server", "c"}, "server", "c"),
		"others are planned":  planned([]string{"a"}),
		"nothing is recorded": owned(),
	} {
		if _, started, err := c.Decide(v); err != nil || !started.Waiting {
			t.Errorf("%s: got %+v, %v; want it to wait", name, started, err)
		}
	}
	for _, policy := range []BusyPolicy{BusyInterrupt, BusyRollback} { // what is stopped needs no answer
		c.OnBusy = policy
		if _, started, err := c.Decide(v); err != nil || !started.Waiting {
			t.Errorf("%s: got %+v, %v; want it to wait", policy, started, err)
		}
	}
}
