package session

import (
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

func TestTheStatusOfASessionDecidesWhetherARunMayStart(t *testing.T) {
	t.Parallel()
	for status, reason := range map[Status]string{
		Completed: "", Failed: "", Interrupted: "", Paused: "",
		Active:                    "SESSION_BUSY",
		SuspendedClientTool:       "SESSION_SUSPENDED",
		SuspendedAwaitingChildren: "SESSION_SUSPENDED",
		SuspendedStepPartial:      "SESSION_SUSPENDED",
	} {
		before := Session{Status: status, AgentType: "a", Turn: 3, Version: 7, Position: 40, Output: "1", Failure: &Failure{Error: "e"}}
		change, started, err := Send{RunRequest: RunRequest{RunID: "r"}}.Decide(&View{Session: &before, OwnAgent: &Agent{OnBusy: BusyReject}})
		if fault.ReasonOf(err) != reason {
			t.Errorf("%s: got %v, want %q", status, err, reason)
		}
		if reason != "" {
			continue
		}
		s := change.Session
		if s.Status != Active || s.Turn != 4 || s.Version != 8 || s.CurrentRunID != "r" || s.Output != "" || s.Failure != nil || change.NewState {
			t.Errorf("%s: got session %+v", status, s)
		}
		if started.Run.StartPosition != 40 || started.Run.Turn != 4 {
			t.Errorf("%s: got run %+v", status, started.Run)
		}
		if before.Status != status || before.Turn != 3 {
			t.Errorf("%s: the command changed what it was shown", status)
		}
	}
}

func TestANewSessionGetsTheAgentOfItsViewIfTheRequestNamesNone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		named, byDefault string
		seen             *Agent
		want, reason     string
	}{
		"none":                       {reason: "AGENT_REQUIRED"},
		"the view has one":           {seen: &Agent{Type: "support"}, want: "support"},
		"the request names one":      {named: "sales", byDefault: "support", seen: &Agent{Type: "sales"}, want: "sales"},
		"a default":                  {byDefault: "sales", seen: &Agent{Type: "sales"}, want: "sales"},
		"a default without executor": {byDefault: "sales", reason: "AGENT_NOT_FOUND"},
	} {
		send := Send{RunRequest: RunRequest{Key: sessionKey, RunID: "r", AgentType: c.named, DefaultAgent: c.byDefault}}
		send.NewSession.State = "{}"
		change, _, err := send.Decide(&View{Agent: c.seen})
		if fault.ReasonOf(err) != c.reason {
			t.Errorf("%s: got %v, want %q", name, err, c.reason)
			continue
		}
		if c.reason == "" && (change.Session.AgentType != c.want || change.NewRun.AgentType != c.want) {
			t.Errorf("%s: got a session of %q and a run of %q, want %q", name, change.Session.AgentType, change.NewRun.AgentType, c.want)
		}
	}
}

func TestARequestExpectsTheSessionAsItsCallerHasReadIt(t *testing.T) {
	t.Parallel()
	run, other := "r", ""
	for name, c := range map[string]struct {
		expect Expect
		met    bool
	}{
		"nothing":         {Expect{}, true},
		"the status":      {Expect{Statuses: []Status{Failed, Paused}}, true},
		"another status":  {Expect{Statuses: []Status{Failed}}, false},
		"the version":     {Expect{Version: 7}, true},
		"another version": {Expect{Version: 8}, false},
		"the run":         {Expect{RunID: &run}, true},
		"no run":          {Expect{RunID: &other}, false},
	} {
		v := runningView()
		v.Session.Status, v.Live = Paused, nil
		_, _, err := Send{RunRequest: RunRequest{Key: sessionKey, RunID: "next", Expect: c.expect}}.Decide(v)
		if c.met {
			must(t, err)
			continue
		}
		f := refused(t, err, fault.Conflict, "SESSION_CHANGED")
		if f.Meta["currentStatus"] != "paused" || f.Meta["currentVersion"] != "7" || f.Meta["currentRunId"] != "r" {
			t.Errorf("%s: got %v", name, f.Meta)
		}
		_, _, err = Send{RunRequest: RunRequest{Key: sessionKey, AgentType: "a", Expect: c.expect}}.Decide(&View{Agent: &Agent{}})
		refused(t, err, fault.NotFound, "SESSION_NOT_FOUND")
	}
}

func TestAStoppedSessionCanBeResumed(t *testing.T) {
	t.Parallel()
	for status, reason := range map[Status]string{
		Failed: "", Interrupted: "", Paused: "",
		Active: "SESSION_BUSY", Completed: "SESSION_COMPLETED",
		SuspendedClientTool: "SESSION_SUSPENDED", SuspendedAwaitingChildren: "SESSION_SUSPENDED", SuspendedStepPartial: "SESSION_SUSPENDED",
	} {
		v := suspendedView(call("c"), call("d"), call("answered").answeredBy(AnswerClient))
		v.Session.Status, v.Session.Interruption = status, &Interruption{RunID: "r"}
		change, started, err := Resume{RunRequest: RunRequest{Key: sessionKey, RunID: "next"}}.Decide(v)
		if fault.ReasonOf(err) != reason {
			t.Errorf("%s: got %v, want %q", status, err, reason)
		}
		if err != nil {
			continue
		}
		s := change.Session
		if started.Run.Entry != EntryResume || s.ResumeCount != 1 || s.Status != Active || s.Interruption != nil || s.Suspension != nil || s.ExpiresAt != 0 || len(change.Messages) != 0 {
			t.Errorf("%s: got run %+v, session %+v", status, started.Run, s)
		}
	}
	_, _, err := Resume{RunRequest: RunRequest{Key: sessionKey, AgentType: "a"}}.Decide(&View{Agent: &Agent{}})
	refused(t, err, fault.NotFound, "SESSION_NOT_FOUND")
}

func TestASuspendedSessionIsResumedOnlyWhenNoCallIsOpen(t *testing.T) {
	t.Parallel()
	_, _, err := Resume{RunRequest: RunRequest{Key: sessionKey}}.Decide(suspendedView(call("c"), call("d")))
	if f := refused(t, err, fault.Conflict, "SESSION_SUSPENDED"); !strings.Contains(f.Detail, "2 calls") {
		t.Errorf("got %q", f.Detail)
	}
	_, _, err = Resume{RunRequest: RunRequest{Key: sessionKey}}.Decide(suspendedView(call("c").answeredBy(AnswerClient)))
	must(t, err)
}

func TestANewMessageAbandonsTheOpenCallsInTheSameWrite(t *testing.T) {
	t.Parallel()
	c := Send{RunRequest: RunRequest{Key: sessionKey, RunID: "next", Messages: []Message{{ID: "new"}}, Now: 50, Abandon: func(c Call) []byte { return []byte("gone " + c.CallID) }}}
	change, _, err := c.Decide(suspendedView(call("c"), call("answered").answeredBy(AnswerClient)))
	must(t, err)
	if len(change.Calls) != 1 || change.NewRun == nil || len(change.Messages) != 1 {
		t.Fatalf("got %+v", change)
	}
	got := change.Calls[0]
	if got.Answer != AnswerAbandoned || string(got.Response) != "gone c" || got.AnsweredAt != 50 || got.Revision != 1 || got.ConsumedAt != 0 {
		t.Errorf("got %+v", got)
	}
	if s := change.Session; s.Status != Active || s.Suspension != nil || s.ExpiresAt != 0 || s.ResumeCount != 0 {
		t.Errorf("got %+v", s)
	}
}

func TestARequestKeyStartsOneRun(t *testing.T) {
	t.Parallel()
	v := runningView()
	v.KeyedRun = &Run{RunID: "r", AgentType: "a", RequestHash: []byte("h"), Entry: EntryResume}
	change, started, err := Resume{RunRequest: RunRequest{Key: sessionKey, RequestKey: "k", RequestHash: []byte("h"), Expect: Expect{Version: 1}}}.Decide(v)
	if err != nil || change != nil || !started.Repeated || started.Run.RunID != "r" {
		t.Errorf("got %+v, %v", started, err)
	}
	_, _, err = Send{RunRequest: RunRequest{Key: sessionKey, RequestKey: "k", RequestHash: []byte("h")}}.Decide(v)
	refused(t, err, fault.Conflict, "REQUEST_KEY_REUSED")
}

func TestAResumedRunWithAnswersContinuesTheMessageOfItsCalls(t *testing.T) {
	t.Parallel()
	resume := Resume{RunRequest: RunRequest{Key: sessionKey, RunID: "next", MessageID: "another", Now: 60}}
	stopped := func(calls ...Call) *View {
		v := suspendedView(calls...)
		v.Session.Status, v.Session.Suspension = Interrupted, nil
		return v
	}
	asked := call("c1")
	asked.RunID = "r"
	for name, c := range map[string]struct {
		resume Resume
		view   *View
		want   string
	}{
		"an answer to take":         {resume, stopped(asked.answeredBy(AnswerClient)), "m"},
		"a call that is open":       {resume, stopped(asked), "m"},
		"nothing to take":           {resume, stopped(), "another"},
		"a late answer to tell of":  {resume, stopped(asked.answeredBy(AnswerTimeout).asConsumed()), "another"},
		"a message behind the call": {func() Resume { s := resume; s.Messages = []Message{{ID: "u"}}; return s }(), stopped(asked), "another"},
	} {
		change, _, err := c.resume.Decide(c.view)
		must(t, err)
		if got := change.NewRun.MessageID; got != c.want || change.NewRun.Entry != EntryResume {
			t.Errorf("%s: got message %q of a %s, want %q", name, got, change.NewRun.Entry, c.want)
		}
	}
}

func TestEveryRequestReadsTheEarlierMessages(t *testing.T) {
	t.Parallel()
	request := RunRequest{Key: sessionKey, EarlierIDs: []string{"u1", "u2"}, Messages: []Message{{ID: "new"}}}
	for name, need := range map[string]Need{
		"Send": Send{RunRequest: request}.Need(), "Resume": Resume{RunRequest: request}.Need(), "Retry": Retry{RunRequest: request}.Need(),
		"Branch": BranchAndStart{RunRequest: request}.Targets()[1].Need,
	} {
		if want := []string{"new", "u1", "u2"}; !slices.Equal(need.MessageIDs, want) {
			t.Errorf("%s reads %v, want %v", name, need.MessageIDs, want)
		}
	}
}

func TestABranchCountsTheEarlierMessagesThatItLacks(t *testing.T) {
	t.Parallel()
	v := restingView()
	v.TakenIDs, v.TakenOrdinals = []string{"copied", "behind"}, []int64{2, 3}
	c := BranchAndStart{RunRequest: RunRequest{EarlierIDs: []string{"copied", "behind", "unknown"}}, CheckpointID: "cp"}
	if got := c.Unknown(&View{}, v); got != 2 {
		t.Errorf("got %d unknown messages, want 2", got)
	}
}

func TestEveryConflictSaysHowTheSessionStands(t *testing.T) {
	t.Parallel()
	for reason, change := range map[string]func(*Send, *View){
		"REQUEST_KEY_REUSED": func(c *Send, v *View) { c.RequestHash, v.KeyedRun = []byte("x"), &Run{RunID: "first"} },
		"RUN_STALE":          func(c *Send, _ *View) { c.LastSeenRunID = "old" },
		"MESSAGE_EXISTS":     func(_ *Send, v *View) { v.TakenIDs = []string{"m1"} },
	} {
		v := restingView()
		c := Send{RunRequest: RunRequest{Key: sessionKey, RunID: "next", Messages: []Message{{ID: "m1"}, {ID: "m2"}}}}
		change(&c, v)
		_, _, err := c.Decide(v)
		f, ok := fault.From(err)
		if !ok || f.Reason != reason || f.Meta["currentStatus"] != string(v.Session.Status) || f.Meta["currentRunId"] != v.Session.CurrentRunID {
			t.Errorf("%s: got %v with %v, want the status and the run of the session", reason, err, f)
		}
	}
}
