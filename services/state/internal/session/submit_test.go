package session

import (
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

func submit(id string) Submit {
	return Submit{Key: sessionKey, CallID: id, Kind: ClientTool, Response: []byte("real"), NewRunID: "next", Now: 50}
}

func TestTheLastAnswerContinuesTheSessionInTheSameWrite(t *testing.T) {
	t.Parallel()
	v := suspendedView(call("c1"), call("c2").answeredBy(AnswerClient))
	v.Current.TurnMessageCount, v.Current.DeadlineAt = 2, 9000
	change, got, err := submit("c1").Decide(v)
	must(t, err)
	if n := change.NewRun; n.TurnMessageCount != 2 || n.StartMessageCount != 5 || n.DeadlineAt != 9000 {
		t.Errorf("got %+v, want it in the turn of the run before, with its deadline", n)
	}
	if got.Status != Accepted || got.Continuation != ContinueNewRun || got.RunID != "next" || got.Call.Answer != AnswerClient || got.Call.Revision != 1 {
		t.Errorf("got %+v", got)
	}
	s := change.Session
	if s.Status != Active || s.Turn != 3 || s.ResumeCount != 1 || s.Version != 8 || s.CurrentRunID != "next" || s.Suspension != nil || s.ExpiresAt != 0 {
		t.Errorf("got session %+v", s)
	}
	want := Run{
		RunID: "next", AgentType: "a", Turn: 3, Status: RunQueued, Entry: EntryContinuation, MessageID: "m",
		StartPosition: 40, Traceparent: "tp", Tracestate: "ts", CreatedAt: 50,
	}
	if got := *change.NewRun; got.RunID != want.RunID || got.Turn != want.Turn || got.Entry != want.Entry || got.MessageID != want.MessageID ||
		got.StartPosition != want.StartPosition || got.Traceparent != want.Traceparent || got.Tracestate != want.Tracestate || got.Status != want.Status {
		t.Errorf("got run %+v, want %+v", got, want)
	}
}

func TestAnAnswerBeforeTheLastContinuesNothing(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]*View{
		"another call is open":                 suspendedView(call("c1"), call("c2")),
		"a child has not ended":                suspendedView(call("c1")).withAwaitedChildren(map[string]Status{"k": SuspendedClientTool, "done": Completed}),
		"another one is open of a stopped one": stoppedView(Interrupted, call("c1"), call("c2")),
		"another one is open of one on a hold": stoppedView(Paused, call("c1"), call("c2")),
	} {
		change, got, err := submit("c1").Decide(v)
		must(t, err)
		if got.Status != Accepted || got.Continuation != NoContinuation || change.Session != nil || change.NewRun != nil || len(change.Calls) != 1 {
			t.Errorf("%s: got %+v and %+v", name, got, change)
		}
	}
}

// stoppedView returns a session that was stopped while it waited for the calls.
func stoppedView(status Status, calls ...Call) *View {
	v := suspendedView(calls...)
	v.Session.Status, v.Session.Suspension = status, nil
	return v
}

func TestTheLastAnswerToAStoppedSessionNeedsAResume(t *testing.T) {
	t.Parallel()
	orphan := call("orphan")
	orphan.RunID = ""
	for name, v := range map[string]*View{
		"interrupted":                           stoppedView(Interrupted, call("c1"), call("done").answeredBy(AnswerClient)),
		"paused":                                stoppedView(Paused, call("c1")),
		"what a failed run left behind is open": stoppedView(Interrupted, call("c1"), orphan),
	} {
		change, got, err := submit("c1").Decide(v)
		must(t, err)
		if got.Status != Accepted || got.Continuation != CallerResumes || got.RunID != "" || change.Session != nil || change.NewRun != nil || len(change.Calls) != 1 {
			t.Errorf("%s: got %+v and %+v", name, got, change)
		}
	}
	change, got, err := submit("c1").Decide(stoppedView(Interrupted, call("c1").answeredBy(AnswerClient)))
	must(t, err)
	if change != nil || got.Status != AlreadyCompleted || got.Continuation != CallerResumes {
		t.Errorf("a repetition: got %+v and %+v", got, change)
	}
}

func TestAnAnswerToALiveSessionGoesToItsRun(t *testing.T) {
	t.Parallel()
	v := runningView()
	v.NamedCalls = []Call{call("c1")}
	v.Calls = v.NamedCalls
	change, got, err := submit("c1").Decide(v)
	must(t, err)
	if got.Continuation != ContinueLiveRun || got.RunID != "r" || change.NewRun != nil || change.Session != nil {
		t.Errorf("got %+v and %+v", got, change)
	}
}

func TestTheStateOfACallDecidesOnAnAnswer(t *testing.T) {
	t.Parallel()
	told := call("c").answeredBy(AnswerTimeout).asConsumed()
	told.Late, told.LateAt = []byte("first"), 20
	for name, c := range map[string]struct {
		call   Call
		status SubmitStatus
		writes bool
	}{
		"open":                                {call("c"), Accepted, true},
		"open, and overdue":                   {Call{CallID: "c", SessionID: "s", Kind: ClientTool, DeadlineAt: 10}, Accepted, true},
		"answered":                            {call("c").answeredBy(AnswerClient), AlreadyCompleted, false},
		"answered and consumed":               {call("c").answeredBy(AnswerClient).asConsumed(), AlreadyCompleted, false},
		"abandoned":                           {call("c").answeredBy(AnswerAbandoned), AlreadyCompleted, false},
		"abandoned and consumed":              {call("c").answeredBy(AnswerAbandoned).asConsumed(), AlreadyCompleted, false},
		"timed out":                           {call("c").answeredBy(AnswerTimeout), Accepted, true},
		"timed out and consumed":              {call("c").answeredBy(AnswerTimeout).asConsumed(), LateAnswer, true},
		"timed out and consumed, late before": {told, LateAnswer, false},
	} {
		v := runningView()
		v.NamedCalls = []Call{c.call}
		change, got, err := submit("c").Decide(v)
		must(t, err)
		if got.Status != c.status || (change != nil) != c.writes {
			t.Errorf("%s: got %+v and %+v, want %s, written %v", name, got, change, c.status, c.writes)
		}
	}
}

func TestARealAnswerReplacesAnUnconsumedTimeout(t *testing.T) {
	t.Parallel()
	v := runningView()
	v.NamedCalls = []Call{call("c").answeredBy(AnswerTimeout)}
	change, _, err := submit("c").Decide(v)
	must(t, err)
	if got := change.Calls[0]; got.Answer != AnswerClient || got.Revision != 2 || string(got.Response) != "real" || got.AnsweredAt != 50 {
		t.Errorf("got %+v", got)
	}
}

func TestALateAnswerIsStoredAndReportedOnce(t *testing.T) {
	t.Parallel()
	v := runningView()
	v.NamedCalls = []Call{call("c").answeredBy(AnswerTimeout).asConsumed()}
	change, _, err := submit("c").Decide(v)
	must(t, err)
	late := change.Calls[0]
	if string(late.Late) != "real" || late.LateAt != 50 || late.LateReported || string(late.Response) != "answer" || late.Revision != 1 {
		t.Errorf("got %+v", late)
	}
	v.NamedCalls = []Call{late}
	commit := Commit{ClaimRef: ref, Step: 4, LateReported: []string{"c", "c", "nobody"}}
	change, _, err = commit.Decide(v)
	must(t, err)
	if len(change.Calls) != 1 || !change.Calls[0].LateReported {
		t.Errorf("got %+v", change.Calls)
	}
	v.NamedCalls = change.Calls
	if change, _, err = commit.Decide(v); err != nil || len(change.Calls) != 0 {
		t.Errorf("reported again: got %+v, %v", change.Calls, err)
	}
}

func TestAnAnswerOfTheWrongKindIsRefused(t *testing.T) {
	t.Parallel()
	approval := call("c")
	approval.Kind, approval.ApprovalID = Approval, "ok?"
	for name, c := range map[string]struct {
		call     Call
		kind     CallKind
		approval string
		fits     bool
	}{
		"a result for a tool":                   {call("c"), ClientTool, "", true},
		"an approval for a tool":                {call("c"), Approval, "ok?", false},
		"a result for a tool with an approval":  {call("c"), ClientTool, "ok?", false},
		"a result for an approval":              {approval, ClientTool, "", false},
		"an approval":                           {approval, Approval, "ok?", true},
		"another approval":                      {approval, Approval, "what?", false},
		"an approval without its id":            {approval, Approval, "", false},
		"only an error for an approval":         {approval, "", "", true},
		"only an error for a tool":              {call("c"), "", "", true},
		"a result for an approval, and with id": {approval, ClientTool, "ok?", false},
	} {
		change, _, err := Submit{Key: sessionKey, CallID: "c", Kind: c.kind, ApprovalID: c.approval}.Decide(suspendedView(c.call))
		if c.fits {
			must(t, err)
			continue
		}
		refused(t, err, fault.Invalid, "KIND_MISMATCH")
		if change != nil {
			t.Errorf("%s: got %+v written", name, change)
		}
	}
}

func TestAnAnswerToAForeignCallIsRefused(t *testing.T) {
	t.Parallel()
	_, _, err := submit("c").Decide(&View{})
	refused(t, err, fault.NotFound, "SESSION_NOT_FOUND")
	_, _, err = submit("c").Decide(suspendedView())
	refused(t, err, fault.NotFound, "UNKNOWN_TOOL_CALL")
	foreign := call("c")
	foreign.SessionID = "cousin"
	_, _, err = submit("c").Decide(suspendedView(foreign))
	refused(t, err, fault.NotFound, "UNKNOWN_TOOL_CALL")
}

func TestAnEndedSessionTakesNoAnswers(t *testing.T) {
	t.Parallel()
	for _, status := range []Status{Completed, Failed} {
		for _, open := range []Call{call("c"), call("c").answeredBy(AnswerTimeout)} {
			v := suspendedView(open)
			v.Session.Status = status
			change, _, err := submit("c").Decide(v)
			refused(t, err, fault.Conflict, "OWNER_NOT_CONTINUABLE")
			if change != nil {
				t.Errorf("%s: got %+v written", status, change)
			}
		}
		v := suspendedView(call("c").answeredBy(AnswerClient).asConsumed())
		v.Session.Status = status
		if _, got, err := submit("c").Decide(v); err != nil || got.Status != AlreadyCompleted {
			t.Errorf("%s: a repetition got %+v, %v", status, got, err)
		}
	}
}

func TestAPassedDeadlineAnswersTheCallAndContinuesTheSession(t *testing.T) {
	t.Parallel()
	overdue, later, never := call("c1"), call("c2"), call("c3")
	overdue.DeadlineAt, later.DeadlineAt = 50, 51
	timeout := TimeoutCalls{Key: sessionKey, Response: func(c Call) []byte { return []byte("no " + c.CallID) }, NewRunID: "next", Now: 50}

	change, got, err := timeout.Decide(suspendedView(overdue, later, never))
	must(t, err)
	if len(got) != 1 || got[0].CallID != "c1" || got[0].Answer != AnswerTimeout || string(got[0].Response) != "no c1" || got[0].Revision != 1 {
		t.Errorf("got %+v", got)
	}
	if change.NewRun != nil || change.Session != nil {
		t.Errorf("two calls are open, and yet: %+v", change)
	}
	change, _, err = timeout.Decide(suspendedView(overdue))
	must(t, err)
	if change.NewRun == nil || change.NewRun.RunID != "next" || change.Session.Status != Active {
		t.Errorf("the last one: got %+v", change)
	}
	v := suspendedView(overdue)
	v.Session.Status = Failed
	if change, _, err = timeout.Decide(v); err != nil || len(change.Calls) != 1 || change.NewRun != nil {
		t.Errorf("in a failed session: got %+v, %v", change, err)
	}
	if change, _, err := timeout.Decide(suspendedView(later, overdue.answeredBy(AnswerClient))); err != nil || change != nil {
		t.Errorf("nothing overdue: got %+v, %v", change, err)
	}
}

func TestTheCallerResumesOnlyForAnUnconsumedAnswer(t *testing.T) {
	t.Parallel()
	consumed, late := call("c1").answeredBy(AnswerClient).asConsumed(), call("c1").answeredBy(AnswerTimeout).asConsumed()
	for name, one := range map[string]struct {
		call Call
		want Continuation
	}{
		"open": {call("c1"), CallerResumes}, "answered": {call("c1").answeredBy(AnswerClient), CallerResumes},
		"consumed": {consumed, NoContinuation}, "late": {late, NoContinuation},
	} {
		v := suspendedView(one.call)
		v.Session.Status, v.Session.Suspension = Interrupted, nil
		if one.call.ConsumedAt != 0 {
			v.Calls = nil
		}
		_, got, err := Submit{Key: sessionKey, CallID: "c1", Kind: ClientTool, Response: []byte("x"), NewRunID: "next", Now: 50}.Decide(v)
		must(t, err)
		if got.Continuation != one.want {
			t.Errorf("%s: got %s, want %s", name, got.Continuation, one.want)
		}
	}
}

func TestAnAnswerAfterTheExpiryComesTooLateBeforeTheSweepToo(t *testing.T) {
	t.Parallel()
	v := suspendedView(call("c1"))
	v.Session.ExpiresAt = 50 // the time of the answer
	if _, _, err := submit("c1").Decide(v); fault.ReasonOf(err) != "OWNER_NOT_CONTINUABLE" {
		t.Errorf("one answer: got %v, want OWNER_NOT_CONTINUABLE", err)
	}
	v.NamedCalls = v.Calls
	all := SubmitAll{Key: sessionKey, Answers: []Answer{{CallID: "c1", Kind: ClientTool, Response: []byte("real")}}, NewRunID: "next", Now: 50}
	_, got, err := all.Decide(v)
	must(t, err)
	if got[0].Status != NotContinuable {
		t.Errorf("several answers: got %+v", got[0])
	}
	v.Session.ExpiresAt = 51
	_, one, err := submit("c1").Decide(v)
	must(t, err)
	if one.Status != Accepted {
		t.Errorf("in time: got %+v", one)
	}
}
