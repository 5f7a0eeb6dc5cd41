package session

import (
	"errors"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// viewWithPlan returns a live run with a plan of the calls and the results of the ended ones.
func viewWithPlan(calls []string, ended ...string) *View {
	v := runningView()
	v.Journal = &Journal{Step: 4, Plan: []byte("plan"), CallIDs: calls}
	for _, id := range ended {
		v.Journal.Results = append(v.Journal.Results, Result{CallID: id})
	}
	return v
}

func TestAnAnswerToAnUnknownCallGetsTheReason(t *testing.T) {
	t.Parallel()
	failed := stoppedView(Failed)
	opened := suspendedView()
	opened.NamedCalls = []Call{{CallID: "c", SessionID: "below"}}
	elsewhere := suspendedView().withChild("k", Active)
	elsewhere.Children[0].Location = Remote
	for name, c := range map[string]struct {
		view   *View
		kind   fault.Kind
		reason string
	}{
		"there is no session":               {&View{}, fault.NotFound, "UNKNOWN_TOOL_CALL"},
		"it waits for others":               {suspendedView(), fault.NotFound, "UNKNOWN_TOOL_CALL"},
		"it is completed":                   {stoppedView(Completed), fault.NotFound, "UNKNOWN_TOOL_CALL"},
		"it was interrupted":                {stoppedView(Interrupted), fault.NotFound, "UNKNOWN_TOOL_CALL"},
		"it has failed":                     {failed, fault.Conflict, "OWNER_NOT_CONTINUABLE"},
		"the live run may ask it":           {runningView(), fault.Unavailable, "CALL_NOT_OPEN"},
		"the live run has planned it":       {viewWithPlan([]string{"a", "c"}, "a"), fault.Unavailable, "CALL_NOT_OPEN"},
		"the live run has planned others":   {viewWithPlan([]string{"a", "b"}), fault.NotFound, "UNKNOWN_TOOL_CALL"},
		"the live run has ended it":         {viewWithPlan([]string{"a", "c"}, "c"), fault.NotFound, "UNKNOWN_TOOL_CALL"},
		"a sub-session runs":                {suspendedView().withChild("k", Active), fault.Unavailable, "CALL_NOT_OPEN"},
		"one may run below a sub-session":   {suspendedView().withChild("k", SuspendedAwaitingChildren), fault.Unavailable, "CALL_NOT_OPEN"},
		"a sub-session waits":               {suspendedView().withChild("k", SuspendedClientTool), fault.NotFound, "UNKNOWN_TOOL_CALL"},
		"a session of another service runs": {elsewhere, fault.NotFound, "UNKNOWN_TOOL_CALL"},
		"it was opened meanwhile":           {opened, fault.Unavailable, "CALL_NOT_OPEN"},
	} {
		change, _, err := ExplainMissingCall{Key: sessionKey, CallID: "c"}.Decide(c.view)
		if f, ok := fault.From(err); !ok || f.Kind != c.kind || f.Reason != c.reason || change != nil {
			t.Errorf("%s: got %v, want %v (%s)", name, err, c.kind, c.reason)
		}
	}
}

func TestAMessageWithTheAnswerToAPlannedCallDoesNotWait(t *testing.T) {
	t.Parallel()
	c := Send{RunRequest: RunRequest{Key: sessionKey, RunID: "next", Messages: []Message{{ID: "new"}}, Now: 50, Abandon: abandonAnswer, OnBusy: BusyEnqueue, Answers: submitAll("server", "c").Answers, Limits: Limits{Waiting: 9}}}
	v := viewWithPlan([]string{"server", "c"}, "server")
	blind := *v
	blind.Live, blind.Journal = nil, nil
	_, _, err := c.Decide(&blind)
	wider, ok := errors.AsType[*IncompleteViewError](err)
	if !ok || len(wider.Targets) != 1 || wider.Targets[0].Key != sessionKey || !wider.Targets[0].Need.Journal || !wider.Targets[0].Need.Live {
		t.Fatalf("got %v, want it to ask for the run's plan", err)
	}
	change, _, err := c.Decide(v)
	refused(t, err, fault.Unavailable, "CALL_NOT_OPEN")
	if change != nil {
		t.Errorf("got %+v written", change)
	}
	for name, v := range map[string]*View{
		"the call is opened": func() *View {
			v := viewWithPlan([]string{"server", "c"}, "server")
			v.NamedCalls = []Call{call("c")}
			return v
		}(),
		"both have ended":     viewWithPlan([]string{"server", "c"}, "server", "c"),
		"others are planned":  viewWithPlan([]string{"a"}),
		"nothing is recorded": runningView(),
	} {
		if _, started, err := c.Decide(v); err != nil || !started.Waiting {
			t.Errorf("%s: got %+v, %v; want it to wait", name, started, err)
		}
	}
	for _, policy := range []BusyPolicy{BusyInterrupt, BusyRollback} { // a stopped run opens no call
		c.OnBusy = policy
		if _, started, err := c.Decide(v); err != nil || !started.Waiting {
			t.Errorf("%s: got %+v, %v; want it to wait", policy, started, err)
		}
	}
}
