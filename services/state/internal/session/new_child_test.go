package session

import (
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// delegation commits step 4 of session "s" with a call to each new child.
func delegation(children ...string) Commit {
	c := Commit{
		ClaimRef: ref, Step: 4, Outcome: &Outcome{Status: RunSuspendedAwaitingChildren}, ExpireAfter: 50, Limits: Limits{State: 100}, Now: 100,
	}
	for _, id := range children {
		c.Calls = append(c.Calls, childCall(id))
		c.NewChildren = append(c.NewChildren, NewChild{
			SessionID: id, AgentType: "b", CallID: "call-" + id, Mode: Ephemeral, RunID: "run of " + id, MessageID: "m-" + id,
			Messages: []Message{{ID: "q-" + id, Role: "user"}}, State: "{}",
		})
	}
	return c
}

func (c Commit) decideAlone(views ...*View) (*Change, error) {
	change, _, err := c.Decide(views[0])
	return change, err
}

func TestAStepBeginsItsChildrenAndWaitsForThem(t *testing.T) {
	t.Parallel()
	parent := runningView()
	parent.Session.RootID, parent.Session.Depth, parent.Session.UserID = "root", 2, "u"
	got := newFamily(parent).run(t, "s", delegation("k", "l").decideAlone)
	p := got["s"]
	if p.Session.Status != SuspendedAwaitingChildren || p.Session.Children != 2 || p.Session.ExpiresAt != 0 || p.NewRun != nil || len(p.NewCalls) != 2 {
		t.Errorf("got parent %+v", p.Session)
	}
	for i, id := range []string{"k", "l"} {
		k := got[id]
		if s := k.Session; !k.Created || s.Status != Active || s.ParentID != "s" || s.RootID != "root" || s.Depth != 3 || s.UserID != "u" || s.MessageCount != 1 || s.Turn != 1 {
			t.Errorf("got child %+v", s)
		}
		if r := k.NewRun; r.RunID != "run of "+id || r.Status != RunQueued || r.Traceparent != "tp" || r.Turn != 1 || k.Messages[0].ID != "q-"+id {
			t.Errorf("got run %+v with %+v", r, k.Messages)
		}
		if row := p.Children[i]; row.SessionID != id || row.Status != Active || row.CallID != "call-"+id || row.Location != Local {
			t.Errorf("got record %+v", row)
		}
	}
}

func TestACallOfASubAgentNeedsAChild(t *testing.T) {
	t.Parallel()
	c := delegation("k")
	c.NewChildren = nil
	_, err := c.decideAlone(runningView())
	refused(t, err, fault.Conflict, "CHILD_UNKNOWN")
	_, err = delegation("k").decideAlone(runningView().withChild("k", Completed))
	refused(t, err, fault.Conflict, "SESSION_EXISTS")
}

func TestACallToAChildThatHasEndedIsAnsweredAtOnce(t *testing.T) {
	t.Parallel()
	parent, k := runningView().withChild("k", Completed), childView("k", "s")
	parent.Children[0].Mode, k.Session.Status, k.Session.Output, k.Live = Persistent, Completed, "42", nil
	c := delegation("k")
	c.NewChildren, c.Children = nil, []Child{{SessionID: "k", CallID: "call-k"}}
	p := newFamily(parent, k).run(t, "s", c.decideAlone)["s"]
	if p.NewRun == nil || p.NewRun.Entry != EntryContinuation || p.NewCalls[0].Answer != AnswerChild || string(p.NewCalls[0].Response) != "k completed 42" {
		t.Errorf("got %+v with %+v", p.NewRun, p.NewCalls)
	}
}

func TestACompanionAnswersAllCallsThatWaitForIt(t *testing.T) {
	t.Parallel()
	parent, k := runningView().withChild("k", Active), childView("k", "s")
	parent.Children[0].Mode = Persistent
	c := delegation("k")
	c.NewChildren, c.Calls = nil, append(c.Calls, childCall("again"), childCall("never"))
	c.Children = []Child{{SessionID: "k", CallID: "call-k"}, {SessionID: "k", CallID: "call-again"}}
	_, err := c.decideAlone(parent)
	refused(t, err, fault.Conflict, "CHILD_UNKNOWN")

	c.Calls = c.Calls[:2]
	opened := newFamily(parent, k).run(t, "s", c.decideAlone)["s"].NewCalls
	if opened[0].ChildID != "k" || opened[1].ChildID != "k" {
		t.Errorf("got %+v, want calls for k", opened)
	}
	waiting := suspendedView(opened...).withChild("k", Active)
	waiting.Children[0].Mode, waiting.Children[0].CallID = Persistent, "call-again"
	got := newFamily(waiting, k).run(t, "k", finishAs("k", RunCompleted))["s"]
	if got.NewRun == nil || len(got.Calls) != 2 || got.Calls[0].Answer != AnswerChild || got.Calls[1].Answer != AnswerChild {
		t.Errorf("got %+v with %+v, want both calls answered", got.NewRun, got.Calls)
	}
}

func TestAStopDuringTheStepReachesItsChildren(t *testing.T) {
	t.Parallel()
	parent := runningView()
	parent.Run.Stop = &Stop{Kind: StopInterrupt, Reason: "why"}
	got := newFamily(parent).run(t, "s", delegation("k").decideAlone)
	if r := got["k"].NewRun; got["s"].Session.Status != Interrupted || r.Stop == nil || r.Stop.Reason != "why" || r.Status != RunQueued {
		t.Errorf("got parent %+v, run %+v", got["s"].Session, r)
	}
	parent.Run.Stop.Kind = StopAbort
	if got := newFamily(parent).run(t, "s", delegation("k").decideAlone); len(got) != 1 || got["s"].Session.Children != 0 {
		t.Errorf("aborted: got %+v", got)
	}
}

func TestAStopDuringTheStepBeginsNoChildrenIfAMessageWaits(t *testing.T) {
	t.Parallel()
	for _, policy := range []BusyPolicy{BusyInterrupt, BusyRollback} {
		for _, existing := range []bool{false, true} {
			parent := runningView().withWaitingRuns(policy)
			parent.Run.Stop = &Stop{Kind: StopInterrupt, Undo: policy == BusyRollback}
			views, c := []*View{parent}, delegation("k")
			if existing { // a child that began before its call
				parent.withChild("k", Active)
				views = append(views, childView("k", "s"))
				c.NewChildren, c.Children = nil, []Child{{SessionID: "k", CallID: "call-k"}}
			}
			got := newFamily(views...).run(t, "s", c.decideAlone)
			s := got["s"]
			if s.Dequeued == nil {
				t.Errorf("%s: got %+v", policy, got)
			}
			if existing && (got["k"] == nil || got["k"].Session.Status != Failed) {
				t.Errorf("%s: got child %+v, want it ended", policy, got["k"])
			}
			if !existing && (len(got) != 1 || s.Session.Children != 0 || len(s.Children) != 0) {
				t.Errorf("%s: got %v, parent %+v with %+v, want no child", policy, got, s.Session, s.Children)
			}
			if abandoned := len(s.NewCalls) == 1 && s.NewCalls[0].Answer == AnswerAbandoned; abandoned == (policy == BusyRollback) || !abandoned && len(s.NewCalls) > 0 {
				t.Errorf("%s: got the calls %+v, want an abandoned one, or none after a rollback", policy, s.NewCalls)
			}
		}
	}
}

func TestAnInterruptTravelsDownAndAResumeFollowsIt(t *testing.T) {
	t.Parallel()
	top := suspendedView().withAwaitedChildren(map[string]Status{"k": Active, "l": SuspendedAwaitingChildren, "done": Completed})
	k := childView("k", "s")
	l := suspendedView().withAwaitedChildren(map[string]Status{"ll": Active})
	l.Session.SessionID, l.Session.ParentID, l.Session.Status = "l", "s", SuspendedAwaitingChildren
	ll := childView("ll", "l")
	f := newFamily(top, k, l, ll)
	got := f.run(t, "s", deciding(stop(StopInterrupt, "").Decide))
	if got["s"].Session.Status != Interrupted || got["l"].Session.Status != Interrupted || got["done"] != nil {
		t.Errorf("got %+v and %+v", got["s"].Session, got["l"])
	}
	for _, id := range []string{"k", "ll"} {
		if s := got[id].Runs[0].Stop; s == nil || s.Kind != StopInterrupt || s.Reason != "why" || got[id].Session != nil {
			t.Errorf("%s: got %+v", id, got[id])
		}
	}
	if row, _ := childOf(got["s"].Children, "l"); row.Status != Interrupted {
		t.Errorf("got record %+v", row)
	}

	for _, v := range []*View{top, l} {
		v.Session.Status, v.Session.Suspension, v.Session.Interruption = Interrupted, nil, &Interruption{}
	}
	ll.Session.Status, ll.Live, k.Session.Status, k.Live = Interrupted, nil, Interrupted, nil
	for i := range top.Children {
		if top.Children[i].Status != Completed {
			top.Children[i].Status = Interrupted
		}
	}
	l.Children[0].Status = Interrupted
	resume := Resume{RunRequest: RunRequest{Key: sessionKey, RunID: "next", Now: 100}}
	got = f.run(t, "s", func(views ...*View) (*Change, error) {
		change, _, err := resume.Decide(views...)
		return change, err
	})
	for _, id := range []string{"s", "k", "l", "ll"} {
		if c := got[id]; c == nil || c.NewRun == nil || c.NewRun.Entry != EntryResume || c.NewRun.MessageID != "m" && id != "s" || c.Session.Status != Active {
			t.Errorf("%s: got %+v", id, c)
		}
	}
}

func TestACallThatAnotherAnswerClosesEndsItsChild(t *testing.T) {
	t.Parallel()
	top := suspendedView().withAwaitedChildren(map[string]Status{"k": Active})
	top.Calls[0].DeadlineAt = 90
	late := TimeoutCalls{Key: sessionKey, Response: func(Call) []byte { return []byte("late") }, NewRunID: "next", Now: 100}
	got := newFamily(top, childView("k", "s")).run(t, "s", deciding(late.Decide))
	if s := got["k"].Session; s.Status != Failed || s.Failure.Reason != ParentFailed || got["s"].NewRun == nil || len(got["s"].Calls) != 1 || got["s"].Calls[0].Answer != AnswerTimeout {
		t.Errorf("got child %+v, parent %+v", s, got["s"])
	}
	k := childView("k", "s")
	k.Session.Status, k.Live, k.Calls = SuspendedClientTool, nil, []Call{call("of k")}
	top.Children[0].Status = SuspendedClientTool
	abandon := Send{RunRequest: RunRequest{Key: sessionKey, RunID: "next", Abandon: abandonAnswer, Now: 100}}
	got = newFamily(top, k).run(t, "s", func(views ...*View) (*Change, error) {
		change, _, err := abandon.Decide(views...)
		return change, err
	})
	if s := got["k"].Session; s.Status != Failed || got["s"].NewRun.RunID != "next" {
		t.Errorf("got child %+v, parent %+v", s, got["s"].Session)
	}
}

func TestOnlyItsChildAnswersTheCallOfASubAgent(t *testing.T) {
	t.Parallel()
	v := suspendedView().withAwaitedChildren(map[string]Status{"k": Active})
	for _, kind := range []CallKind{ClientTool, Approval, SubAgent, ""} {
		_, _, err := Submit{Key: sessionKey, CallID: "call-k", Kind: kind, NewRunID: "next"}.Decide(v)
		refused(t, err, fault.Invalid, "KIND_MISMATCH")
	}
}

func TestTheEndOfAChildFitsIntoTheRoomForAnswers(t *testing.T) {
	t.Parallel()
	parent := suspendedView().withAwaitedChildren(map[string]Status{"k": Active, "l": Completed})
	parent.Calls[1].Response = make([]byte, 990)
	end := Finish{ClaimRef: ClaimRef{Key{"t", "k"}, "r", 4}, Outcome: Outcome{Status: RunCompleted, Output: "\"a long output\""}, Now: 100}
	got := newFamily(parent, childView("k", "s")).run(t, "k", deciding(end.Decide))["s"]
	if got.NewRun == nil || string(got.Calls[0].Response) != "k completed \"a long ou" {
		t.Errorf("got %+v with the answer %q", got.NewRun, got.Calls[0].Response)
	}
}

func TestACompanionThatWaitsForAClientAnswersItsParent(t *testing.T) {
	t.Parallel()
	for mode, answers := range map[ChildMode]bool{Ephemeral: false, Persistent: true} {
		parent := suspendedView().withAwaitedChildren(map[string]Status{"k": Active})
		parent.Children[0].Mode = mode
		asks := Commit{
			ClaimRef: ClaimRef{Key{"t", "k"}, "r", 4}, Step: 4, Outcome: &Outcome{Status: RunSuspendedClientTool}, Calls: []Call{{CallID: "c", Kind: ClientTool}},
			Limits: Limits{State: 100}, Now: 100,
		}
		got := newFamily(parent, childView("k", "s")).run(t, "k", asks.decideAlone)["s"]
		if (got.NewRun != nil) != answers || (len(got.Calls) == 1) != answers {
			t.Errorf("%s: got %+v, answers %+v", mode, got.NewRun, got.Calls)
		}
		delegates := delegation("l")
		delegates.Key.SessionID, delegates.Calls[0].CallID, delegates.NewChildren[0].CallID = "k", "call-l", "call-l"
		if got := newFamily(parent, childView("k", "s")).run(t, "k", delegates.decideAlone)["s"]; got.NewRun != nil || len(got.Calls) != 0 {
			t.Errorf("%s that waits for a child: got %+v, answers %+v", mode, got.NewRun, got.Calls)
		}
	}
}

func TestATreeMayNotOutgrowItsLimit(t *testing.T) {
	t.Parallel()
	for below, fits := range map[int]bool{0: true, 1: true, 2: false} {
		c, parent := delegation("k", "l"), runningView()
		c.Limits.Tree, parent.LiveBelow = 4, below
		if got := c.Need().LiveBelow; got != 4 {
			t.Fatalf("the step asks for %d sessions, want 4", got)
		}
		if _, err := c.decideAlone(parent); fits && err != nil {
			t.Errorf("beside %d sub-sessions: %v", below, err)
		} else if !fits {
			refused(t, err, fault.Conflict, "TREE_TOO_LARGE")
		}
	}
	if got := (Commit{Limits: Limits{Tree: 4}}).Need().LiveBelow; got != 0 {
		t.Errorf("a step without children asks for %d sessions", got)
	}
}

func TestTheLargestBoundOfATreeIsRead(t *testing.T) {
	t.Parallel()
	had := []Target{{Key: sessionKey, Need: Need{Children: true}}}
	for _, bound := range []int{3, 2} {
		had = (&IncompleteViewError{[]Target{{Key: sessionKey, Need: Need{LiveBelow: bound}}}}).Extend(had)
	}
	if len(had) != 1 || had[0].Need.LiveBelow != 3 || !had[0].Need.Children {
		t.Errorf("got %+v", had)
	}
}
