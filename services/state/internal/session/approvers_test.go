package session

import (
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// ofOthers returns an open approval that others than alice give.
func ofOthers(id string) Call {
	c := call(id)
	c.Kind, c.ApprovalID, c.Approvers, c.StartedBy = Approval, "a", ApproversOthers, "user:alice"
	return c
}

func approve(id, actor string) Submit {
	return Submit{Key: sessionKey, By: Caller{Actor: actor}, CallID: id, Kind: Approval, ApprovalID: "a", Approves: true, Response: []byte("yes"), NewRunID: "next", Now: 50}
}

func TestOnlyAnotherIdentifiedActorApprovesACallOfOthers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		actor, starter string
		approvers      Approvers
		denied         bool
	}{
		{"user:bob", "user:alice", ApproversOthers, false},
		{"key:web", "user:alice", ApproversOthers, false},
		{"user:alice", "key:alice", ApproversOthers, false},
		{"user:alice", "user:alice", ApproversOthers, true},
		{"key:web", "key:web", ApproversOthers, true},
		{"local", "user:alice", ApproversOthers, true},
		{"", "user:alice", ApproversOthers, true},
		{"user:bob", "local", ApproversOthers, true},
		{"user:bob", "", ApproversOthers, true},
		{"local", "local", ApproversOthers, true},
		{"user:alice", "user:alice", ApproversAny, false},
		{"", "", ApproversAny, false},
	} {
		c := ofOthers("c1")
		c.Approvers, c.StartedBy = tt.approvers, tt.starter
		change, _, err := approve("c1", tt.actor).Decide(suspendedView(c))
		if tt.denied {
			refused(t, err, fault.Denied, "APPROVER_REFUSED")
			continue
		}
		if err != nil || change.Calls[0].AnsweredBy != tt.actor || change.Calls[0].Answer != AnswerClient {
			t.Errorf("%+v: got %+v, %v", tt, change, err)
		}
	}
}

func TestTheUserAndTheAuthorOfAMessageCountAsStarters(t *testing.T) {
	t.Parallel()
	for actor, denied := range map[string]bool{
		"user:mia": true, // the user of the session, for whom a key started the run
		"user:ann": true, // who wrote the message
		"key:web":  true, // which started the run anew
		"local":    true,
		"user:leo": false,
		"key:mia":  false,
		"user:":    false,
	} {
		c := ofOthers("c1")
		c.StartedBy, c.Author = "key:web", "user:ann"
		v := suspendedView(c)
		v.Session.UserID = "mia"
		_, _, err := approve("c1", actor).Decide(v)
		if denied {
			refused(t, err, fault.Denied, "APPROVER_REFUSED")
		} else if err != nil {
			t.Errorf("%s: %v", actor, err)
		}
	}
	first := &Run{StartedBy: "user:ann"}
	second := &Run{StartedBy: "key:web"}
	second.inheritAuthor(first)
	third := &Run{StartedBy: "key:other"}
	third.inheritAuthor(second)
	again := &Run{StartedBy: "user:ann"}
	again.inheritAuthor(third)
	if second.Author != "user:ann" || third.Author != "user:ann" || again.Author != "" {
		t.Errorf("got the authors %q, %q and %q", second.Author, third.Author, again.Author)
	}
}

func TestWhoStartedACallMayDenyIt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]Submit{
		"no decision": {Kind: "", Response: []byte("failed")},
		"a denial":    {Kind: Approval, ApprovalID: "a", Response: []byte("no")},
	} {
		c.Key, c.CallID, c.By = sessionKey, "c1", Caller{Actor: "user:alice"}
		change, got, err := c.Decide(suspendedView(ofOthers("c1")))
		if err != nil || got.Status != Accepted || change.Calls[0].AnsweredBy != "user:alice" {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
}

func TestARefusedApproverLearnsWhatTheFirstAnswerWas(t *testing.T) {
	t.Parallel()
	answered := ofOthers("c1").withAnswer(AnswerClient, []byte("no"), 40)
	if change, got, err := approve("c1", "user:alice").Decide(suspendedView(answered)); err != nil || change != nil || got.Status != AlreadyCompleted {
		t.Errorf("got %+v, %+v, %v", change, got, err)
	}
}

func TestATimeoutIsNotReplacedByTheStartersApproval(t *testing.T) {
	t.Parallel()
	unread := ofOthers("c1").withAnswer(AnswerTimeout, []byte("late"), 40)
	read := unread
	read.ConsumedAt = 45
	for _, c := range []Call{unread, read} {
		_, _, err := approve("c1", "user:alice").Decide(suspendedView(c))
		refused(t, err, fault.Denied, "APPROVER_REFUSED")
		change, _, err := approve("c1", "user:bob").Decide(suspendedView(c))
		if err != nil || change.Calls[0].AnsweredBy != "user:bob" {
			t.Errorf("got %+v, %v", change, err)
		}
	}
}

func TestEveryRequestWithAnswersKeepsTheStarterFromApproving(t *testing.T) {
	t.Parallel()
	answers := []Answer{{CallID: "c1", Kind: Approval, ApprovalID: "a", Approves: true, Response: []byte("yes")}}
	abandon := func(Call) []byte { return []byte("gone") }
	view := func(status Status) *View {
		v := suspendedView(ofOthers("c1"))
		v.NamedCalls = v.Calls
		v.Session.Status = status
		return v
	}
	request := func(actor string) RunRequest {
		return RunRequest{Key: sessionKey, By: Caller{Actor: actor}, RunID: "new", Now: 50, Answers: answers, Abandon: abandon, Bodies: testBodies}
	}
	for name, decide := range map[string]func(actor string) (*Change, error){
		"submit all": func(actor string) (*Change, error) {
			change, _, err := SubmitAll{Key: sessionKey, By: Caller{Actor: actor}, Answers: answers, NewRunID: "new", Now: 50}.Decide(view(SuspendedClientTool))
			return change, err
		},
		"send": func(actor string) (*Change, error) {
			change, _, err := Send{RunRequest: request(actor)}.Decide(view(SuspendedClientTool))
			return change, err
		},
		"resume": func(actor string) (*Change, error) {
			change, _, err := Resume{RunRequest: request(actor)}.Decide(view(Interrupted))
			return change, err
		},
	} {
		_, err := decide("user:alice")
		if f, ok := fault.From(err); !ok || f.Reason != "APPROVER_REFUSED" {
			t.Errorf("%s of the starter: got %v", name, err)
		}
		change, err := decide("user:bob")
		if err != nil || len(change.Calls) != 1 || change.Calls[0].AnsweredBy != "user:bob" || change.Calls[0].Answer != AnswerClient {
			t.Errorf("%s of another: got %+v, %v", name, change, err)
		}
	}
}

func TestACallOfOthersIsOpenToWhoMayApproveItAndNoOneElse(t *testing.T) {
	t.Parallel()
	bob := Caller{Actor: "user:bob", Owner: "bob"}
	orphan, answered, again := ofOthers("c1"), ofOthers("c1").withAnswer(AnswerClient, nil, 40), ofOthers("c1").withAnswer(AnswerClient, nil, 40)
	orphan.RunID, again.AnsweredBy = "", bob.Actor
	plain := call("c1")
	plain.StartedBy = "user:alice"
	for name, tt := range map[string]struct {
		by   Caller
		call Call
		open bool
	}{
		"an approval of others":          {bob, ofOthers("c1"), true},
		"answered by the caller before":  {bob, again, true},
		"answered by somebody":           {bob, answered, false},
		"of a failed run":                {bob, orphan, false},
		"of anybody":                     {bob, plain, false},
		"another call":                   {bob, ofOthers("c2"), false},
		"of the caller as a starter":     {Caller{Actor: "user:alice", Owner: "new alice"}, ofOthers("c1"), false},
		"of a caller without credential": {Caller{Actor: "local", Owner: "bob"}, ofOthers("c1"), false},
	} {
		v := suspendedView(tt.call)
		v.NamedCalls, v.Session.UserID = v.Calls, "alice"
		c := approve("c1", tt.by.Actor)
		c.By = tt.by
		_, _, err := c.Decide(v)
		if tt.open && err != nil {
			t.Errorf("%s: got %v", name, err)
		}
		if !tt.open {
			refused(t, err, fault.NotFound, "SESSION_NOT_FOUND")
		}
	}
}

func TestARunKnowsWhoStartedIt(t *testing.T) {
	t.Parallel()
	by := Caller{Actor: "user:bob"}
	v := suspendedView(call("c1"))
	v.NamedCalls, v.Current.StartedBy = v.Calls, "user:alice"
	change, _, err := Submit{Key: sessionKey, By: by, CallID: "c1", Kind: ClientTool, NewRunID: "next", Now: 50}.Decide(v)
	if err != nil || change.NewRun.StartedBy != "user:alice" {
		t.Errorf("continuation: got %+v, %v", change, err)
	}
	stopped := stoppedView(Interrupted, call("c1"))
	stopped.NamedCalls, stopped.Current.StartedBy = stopped.Calls, "user:alice"
	stopped.Session.CurrentRunID = stopped.Calls[0].RunID
	change, _, err = SubmitAll{Key: sessionKey, By: by, Answers: []Answer{{CallID: "c1", Kind: ClientTool}}, NewRunID: "next", Resume: ResumeAllCalls, Now: 50}.Decide(stopped)
	if err != nil || change.NewRun == nil || change.NewRun.StartedBy != "user:alice" {
		t.Errorf("resumed by an answer: got %+v, %v", change, err)
	}
	change, _, err = Resume{RunRequest: RunRequest{Key: sessionKey, By: by, RunID: "next", Now: 50, Bodies: testBodies}}.Decide(stoppedView(Interrupted, call("c1")))
	if err != nil || change.NewRun.StartedBy != "user:bob" {
		t.Errorf("resumed: got %+v, %v", change, err)
	}
	child := NewChild{SessionID: "k", RunID: "below"}.begin(v.Session, v.Current, nil, 50)
	if child.NewRun.StartedBy != "user:alice" {
		t.Errorf("child: got %+v", child.NewRun)
	}
}
