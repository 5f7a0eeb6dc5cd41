package session

import (
	"slices"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// tree describes a suspended session and what it waits for.
type tree struct {
	client   bool            // an open call of a client
	children map[string]tree // suspended children
	active   []string        // children with a live run
	stopped  []string        // interrupted children
}

// views returns the session and those below it.
func (d tree) views(id, parent string) []*View {
	statuses := map[string]Status{}
	var views []*View
	for name, child := range d.children {
		statuses[name] = SuspendedAwaitingChildren
		if len(child.children)+len(child.active)+len(child.stopped) == 0 {
			statuses[name] = SuspendedClientTool
		}
		views = append(views, child.views(name, id)...)
	}
	for _, name := range d.active {
		statuses[name] = Active
		views = append(views, childView(name, id))
	}
	for _, name := range d.stopped {
		statuses[name] = Interrupted
		child := childView(name, id)
		child.Session.Status, child.Live = Interrupted, nil
		views = append(views, child)
	}
	v := suspendedView()
	if d.client {
		v = suspendedView(call("client of " + id))
	}
	v.withAwaitedChildren(statuses)
	v.Session.SessionID, v.Session.ParentID = id, parent
	v.OwnAgent = &Agent{}
	for i := range v.Calls {
		v.Calls[i].SessionID = id
	}
	return append([]*View{v}, views...)
}

func sending(policy BusyPolicy) Send {
	return Send{RunRequest: RunRequest{
		Key: sessionKey, RunID: "next", OnBusy: policy, Abandon: abandonAnswer, Now: 100, Limits: Limits{Waiting: 5},
		Messages: []Message{{ID: "new", Role: "user"}},
	}}
}

func (c Send) decide(views ...*View) (*Change, error) {
	change, _, err := c.Decide(views...)
	return change, err
}

func TestASessionThatWaitsForWorkIsBusy(t *testing.T) {
	t.Parallel()
	people := tree{client: true}
	for name, c := range map[string]struct {
		waits tree
		busy  bool
	}{
		"a client":                                   {people, false},
		"a child at work":                            {tree{active: []string{"k"}}, true},
		"a child at work, and a client":              {tree{client: true, active: []string{"k"}}, true},
		"a child that waits for a client":            {tree{children: map[string]tree{"k": people}}, false},
		"two children, one at work":                  {tree{active: []string{"k"}, children: map[string]tree{"l": people}}, true},
		"a grandchild at work":                       {tree{children: map[string]tree{"k": {active: []string{"kk"}}}}, true},
		"a grandchild at work, and a client":         {tree{children: map[string]tree{"k": {client: true, active: []string{"kk"}}}}, true},
		"a grandchild that waits for a client":       {tree{children: map[string]tree{"k": {children: map[string]tree{"kk": people}}}}, false},
		"a stopped child, and a client":              {tree{client: true, stopped: []string{"k"}}, false},
		"a stopped child, and a grandchild at work":  {tree{stopped: []string{"k"}, children: map[string]tree{"l": {active: []string{"ll"}}}}, true},
		"a grandchild far below, and others stopped": {tree{children: map[string]tree{"k": {stopped: []string{"k1"}, children: map[string]tree{"kk": {active: []string{"kkk"}}}}}}, true},
	} {
		f := newFamily(c.waits.views("s", "")...)
		refusal := f.refusal(t, "s", sending(BusyReject).decide)
		if (fault.ReasonOf(refusal) == "SESSION_BUSY") != c.busy || !c.busy && refusal != nil {
			t.Errorf("a message while it waits for %s: got %v, want busy %t", name, refusal, c.busy)
		}
		silent := sending("")
		silent.Abandon = nil
		if err := f.refusal(t, "s", silent.decide); err == nil {
			t.Errorf("a message without a policy, for an agent without one, while it waits for %s: accepted", name)
		}
		resume := Resume{RunRequest: RunRequest{Key: sessionKey, RunID: "next", Now: 100}}
		want := "SESSION_SUSPENDED"
		if c.busy {
			want = "SESSION_BUSY"
		}
		if err := f.refusal(t, "s", func(views ...*View) (*Change, error) {
			change, _, err := resume.Decide(views...)
			return change, err
		}); fault.ReasonOf(err) != want {
			t.Errorf("a resume while it waits for %s: got %v, want %s", name, err, want)
		}
	}
}

// refusal returns the fault of a decision, once its view is complete.
func (f *family) refusal(t *testing.T, sessionID string, decide func(...*View) (*Change, error)) (refused error) {
	t.Helper()
	f.run(t, sessionID, func(views ...*View) (*Change, error) {
		change, err := decide(views...)
		if _, ok := fault.From(err); ok {
			refused = err
			return nil, nil //nolint:nilnil // as a command that writes nothing
		}
		return change, err
	})
	return refused
}

func TestAMessageWaitsForChildrenAtWorkAndAbandonsTheRest(t *testing.T) {
	t.Parallel()
	waits := tree{client: true, active: []string{"k"}, children: map[string]tree{"idle": {client: true}, "l": {active: []string{"ll"}, client: true}}}
	got := newFamily(waits.views("s", "")...).run(t, "s", sending(BusyEnqueue).decide)
	s := got["s"]
	if s.Session.Status != SuspendedClientTool || s.Session.Waiting != 1 || s.NewRun.Status != RunWaiting || s.Dequeued != nil {
		t.Errorf("got %+v with run %+v, want a waiting run", s.Session, s.NewRun)
	}
	var abandoned []string
	for _, call := range s.Calls {
		abandoned = append(abandoned, call.CallID+" "+string(call.Answer))
	}
	if slices.Sort(abandoned); !slices.Equal(abandoned, []string{"call-idle abandoned", "client of s abandoned"}) {
		t.Errorf("got the answers %q, want those of the calls that people answer", abandoned)
	}
	if len(got) != 2 || got["idle"].Session.Status != Failed {
		t.Errorf("got %v, want the end of the idle child alone", got)
	}
}

func TestAMessageThatEndsTheWorkBeginsWhenTheChildrenHaveStopped(t *testing.T) {
	t.Parallel()
	waits := tree{client: true, active: []string{"k"}, children: map[string]tree{"l": {active: []string{"ll"}, client: true}}}
	views := waits.views("s", "")
	withIdle := tree{active: []string{"k"}, children: map[string]tree{"idle": {client: true}}}
	silent := sending(BusyInterrupt)
	silent.Abandon = nil
	got := newFamily(withIdle.views("s", "")...).run(t, "s", silent.decide)
	if idle := got["idle"]; idle == nil || idle.Session.Status != Interrupted || got["s"].Session.Status != SuspendedClientTool {
		t.Errorf("got %+v below %+v, want it interrupted at once", idle, got["s"])
	}
	got = newFamily(views...).run(t, "s", sending(BusyInterrupt).decide)
	if s := got["s"]; s.Session.Waiting != 1 || s.NewRun.Status != RunWaiting || s.Session.Status != SuspendedClientTool || s.Runs[0].Stop == nil {
		t.Fatalf("got %+v with %+v, want a stop and a waiting run", s.Session, s.Runs)
	}
	for _, id := range []string{"k", "l", "ll"} {
		if c := got[id]; c == nil || len(c.Runs) != 1 || c.Runs[0].Stop == nil || c.Runs[0].Stop.Reason != "superseded by run next" {
			t.Errorf("%s: got %+v, want a stop", id, c)
		}
	}
	stopped := got["s"].Runs[0].Stop
	for _, v := range views {
		v.Current.Stop = stopped
	}
	find := func(id string) *View {
		return views[slices.IndexFunc(views, func(v *View) bool { return v.Session.SessionID == id })]
	}
	top, l := views[0], find("l")
	top.withWaitingRuns(BusyInterrupt)

	// k had completed before its stop came: the session waits on.
	got = newFamily(views...).run(t, "k", finishAs("k", RunCompleted))
	if s := got["s"]; s.Session.Status != SuspendedClientTool || s.Dequeued != nil {
		t.Fatalf("got %+v after the end of a child, want it to wait for the other", s.Session)
	}
	top.Children[0].Status = Completed
	top.Calls[1] = top.Calls[1].answeredBy(AnswerChild)
	got = newFamily(views...).run(t, "ll", finishAs("ll", RunInterrupted))
	if got["l"] == nil || got["l"].Session.Status != Failed && got["l"].Session.Status != Interrupted {
		t.Errorf("got %+v, want the end of l, whose child has stopped", got["l"])
	}
	if ll := got["ll"]; ll == nil || ll.Session.Status != Failed || len(ll.Runs) != 1 || ll.Runs[0].Status != RunInterrupted {
		t.Errorf("got %+v, want the end of the run as its executor has written it, in a session that its parent has ended", ll)
	}
	s := got["s"]
	if s == nil || s.Dequeued == nil || s.Dequeued.RunID != "w1" || s.Session.Status != Active {
		t.Fatalf("got %+v, want the waiting run to begin", s)
	}
	for _, call := range s.Calls {
		if call.Answer != AnswerAbandoned {
			t.Errorf("got %+v, want only abandoned calls", call)
		}
	}

	// All children had ended before their stops came: the continuation has the stop.
	top.Calls = top.Calls[1:]
	top.Children[1].Status = SuspendedAwaitingChildren
	*l = *childView("l", "s")
	got = newFamily(views...).run(t, "l", finishAs("l", RunCompleted))
	if r := got["s"].NewRun; r == nil || r.Entry != EntryContinuation || r.Stop == nil || r.Stop.Kind != StopInterrupt {
		t.Errorf("got %+v, want a continuation that stops", r)
	}
}

func TestARollbackUndoesTheRunThatWaitsForWork(t *testing.T) {
	t.Parallel()
	views := tree{active: []string{"k"}}.views("s", "")
	top, k := views[0], views[1]
	got := newFamily(views...).run(t, "s", sending(BusyRollback).decide)
	if stop := got["s"].Runs[0].Stop; stop == nil || !stop.Undo {
		t.Fatalf("got %+v, want an undo", got["s"].Runs)
	}
	top.Current.Stop = got["s"].Runs[0].Stop
	top.Current.StartMessageCount, top.Current.StepCount, top.Current.FinishStep = 2, 1, 3
	top.Session.StepCount = 3
	k.Current.Stop = got["k"].Runs[0].Stop
	top.withWaitingRuns(BusyRollback)
	top.FormerCheckpoint = &Checkpoint{ID: "before"}
	got = newFamily(views...).run(t, "k", finishAs("k", RunInterrupted))
	s := got["s"]
	if s.Dequeued == nil || s.Rewind == nil || s.Rewind.Messages != 2 || s.Rewind.RunID != "r" || s.Session.MessageCount != 3 || s.Session.CheckpointID != "before" {
		t.Errorf("got %+v with %+v, want the run undone", s.Session, s.Rewind)
	}
	if !slices.Equal(s.DropCalls, []string{"call-k"}) || len(s.Calls) != 0 {
		t.Errorf("got the calls %+v, dropped %q, want the call deleted", s.Calls, s.DropCalls)
	}
	if got["k"].Session.Status != Failed {
		t.Errorf("got child %+v, want it ended", got["k"].Session)
	}
}

// The last child at work ends, and so does the work of its parent, in one write. The child ends with its parent's
// call, and keeps what its executor has ended it with.
func TestAChildWhoseEndEndsTheWorkKeepsItsStep(t *testing.T) {
	t.Parallel()
	stop := &Stop{Kind: StopInterrupt, Reason: "superseded"}
	asks := delegation()
	asks.Calls, asks.Outcome = []Call{{CallID: "ask", Kind: ClientTool}}, &Outcome{Status: RunSuspendedClientTool}
	writes := delegation()
	writes.Outcome = &Outcome{Status: RunInterrupted}
	finish := Finish{ClaimRef: ClaimRef{Key{"t", "k"}, "r", 4}, Outcome: Outcome{Status: RunInterrupted}, Now: 100}
	for name, commit := range map[string]Commit{"a reply": writes, "a question": asks, "a delegation": delegation("kk"), "no step": {}} {
		for _, policy := range []BusyPolicy{BusyInterrupt, BusyRollback} {
			views := tree{active: []string{"k"}}.views("s", "")
			top, k := views[0], views[1]
			undo := *stop
			undo.Undo = policy == BusyRollback
			top.Current.Stop, k.Run.Stop = &undo, &undo
			top.withWaitingRuns(policy)
			decide, need, status := deciding(finish.Decide), finish.Need(), RunInterrupted
			if name != "no step" {
				commit.Key, commit.Messages = Key{"t", "k"}, []Message{{ID: "reply", Role: "assistant"}}
				decide, need, status = commit.decideAlone, commit.Need(), commit.Outcome.Status
			}
			f := newFamily(views...)
			f.need = &need
			got := f.run(t, "k", decide)
			if s := got["s"]; s == nil || s.Dequeued == nil {
				t.Fatalf("%s, %s: got %+v, want the waiting run to begin", name, policy, s)
			}
			child := got["k"]
			if child.Session.Status != Failed || child.Session.Failure.Reason != ParentFailed || child.Session.Suspension != nil || child.Session.Version != 8 {
				t.Errorf("%s, %s: got %+v, want it ended with its parent's call", name, policy, child.Session)
			}
			if len(child.Runs) != 1 || child.Runs[0].Status != status || child.CutOff != nil {
				t.Errorf("%s, %s: got the runs %+v, want the end by the executor, %s", name, policy, child.Runs, status)
			}
			if name != "no step" && (child.Checkpoint == nil || len(child.Messages) != 1) {
				t.Errorf("%s, %s: got %+v, want the step", name, policy, child)
			}
			if len(child.NewCalls) > 0 || len(child.Children) > 0 || len(got) != 2 {
				t.Errorf("%s, %s: got calls %+v, children %+v of %d sessions, want none", name, policy, child.NewCalls, child.Children, len(got))
			}
		}
	}
}

func TestASessionIsInterruptedWithItsLastWorkingChild(t *testing.T) {
	t.Parallel()
	views := tree{active: []string{"k"}, stopped: []string{"l"}}.views("s", "g")
	top := views[0]
	grand := suspendedView().withAwaitedChildren(map[string]Status{"s": SuspendedAwaitingChildren}).withChild("other", Active)
	grand.Session.SessionID = "g"
	got := newFamily(append(views, grand)...).run(t, "k", finishAs("k", RunInterrupted))
	if s, g := got["s"], got["g"]; s.Session.Status != Interrupted || s.Session.Suspension != nil || len(s.Calls) != 0 || g.Session.Status != Interrupted || got["other"] != nil {
		t.Errorf("got %+v below %+v, want both interrupted, with open calls", s, g)
	}
	got = newFamily(append(tree{client: true, active: []string{"k"}}.views("s", "g"), grand)...).run(t, "k", finishAs("k", RunInterrupted))
	if s := got["s"]; s.Session.Status != SuspendedClientTool {
		t.Errorf("got %+v, want it to wait for its client", s.Session)
	}

	// The answer of the client leaves nobody to wait for.
	views = tree{client: true, stopped: []string{"k"}}.views("s", "g")
	top = views[0]
	got = newFamily(append(views, grand)...).run(t, "s", deciding(Submit{Key: sessionKey, CallID: "client of s", Kind: ClientTool, Response: []byte("x"), NewRunID: "next", Now: 100}.Decide))
	if s := got["s"]; s.Session == nil || s.Session.Status != Interrupted || top.Session.Status != SuspendedClientTool {
		t.Errorf("got %+v, want it interrupted", s)
	}
}
