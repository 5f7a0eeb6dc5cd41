package session

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

func submitAll(ids ...string) SubmitAll {
	c := SubmitAll{Key: sessionKey, NewRunID: "next", Now: 50}
	for _, id := range ids {
		c.Answers = append(c.Answers, Answer{CallID: id, Kind: ClientTool, Response: []byte("real")})
	}
	return c
}

func TestAnswersInOneRequestContinueTheSessionOnce(t *testing.T) {
	t.Parallel()
	foreign := call("theirs")
	foreign.SessionID = "other"
	v := suspendedView(call("c1"), call("c2"), call("done").answeredBy(AnswerClient))
	v.NamedCalls = append(slices.Clone(v.NamedCalls), foreign)
	c := submitAll("c2", "nobody", "c1", "theirs", "c2", "done")
	if got := c.Need().CallIDs; !slices.Equal(got, []string{"c1", "c2", "done", "nobody", "theirs"}) {
		t.Errorf("got %v, want each call asked for once", got)
	}
	change, got, err := c.Decide(v)
	must(t, err)
	want := []SubmitStatus{Accepted, UnknownCall, Accepted, UnknownCall, AlreadyCompleted, AlreadyCompleted}
	for i, one := range got {
		if one.Status != want[i] || one.Continuation != ContinueNewRun || one.RunID != "next" {
			t.Errorf("answer %d: got %+v, want %s", i, one, want[i])
		}
	}
	if len(change.Calls) != 2 || change.NewRun.RunID != "next" || change.Session.Turn != 3 || change.Session.Version != 8 || change.Calls[0].Revision != 1 || change.Calls[1].Revision != 1 {
		t.Errorf("got %+v", change)
	}
}

func TestOneAnswerOfTheWrongKindRefusesAll(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]*View{
		"open": suspendedView(call("c1"), call("c2")), "open again": stoppedView(Interrupted, call("c1"), call("c2")),
	} {
		c := submitAll("c1", "c2")
		c.Answers[1].Kind = Approval
		change, _, err := c.Decide(v)
		if refused(t, err, fault.Invalid, "KIND_MISMATCH"); change != nil {
			t.Errorf("%s: got %+v", name, change)
		}
	}
	consumed := call("c2").answeredBy(AnswerTimeout).asConsumed()
	for name, call := range map[string]Call{"answered": call("c2").answeredBy(AnswerClient), "timed out": call("c2").answeredBy(AnswerTimeout), "consumed": consumed} {
		c := submitAll("c2")
		c.Answers[0].Kind = Approval
		change, got, err := c.Decide(suspendedView(call))
		must(t, err)
		if change != nil || got[0].Status != AlreadyCompleted {
			t.Errorf("%s: got %+v with %+v", name, got, change)
		}
	}
	_, got, err := submitAll("c1").Decide(stoppedView(Failed, call("c1")))
	if err != nil || got[0].Status != NotContinuable {
		t.Errorf("got %+v, %v", got, err)
	}
	_, _, err = submitAll("c1").Decide(&View{})
	refused(t, err, fault.NotFound, "SESSION_NOT_FOUND")
}

func TestASendAppliesItsAnswersBeforeItAbandonsTheRest(t *testing.T) {
	t.Parallel()
	c := Send{RunRequest: RunRequest{Key: sessionKey, RunID: "next", Messages: []Message{{ID: "new"}}, Now: 50, Abandon: abandonAnswer, Answers: submitAll("given", "given", "done", "nobody").Answers}}
	c.Answers[1].Response = []byte("another")
	for name, v := range map[string]*View{
		"suspended":   suspendedView(call("given"), call("left"), call("done").answeredBy(AnswerTimeout)),
		"interrupted": stoppedView(Interrupted, call("given"), call("left"), call("done").answeredBy(AnswerTimeout)),
	} {
		change, started, err := c.Decide(v)
		must(t, err)
		if len(change.Calls) != 3 || string(change.Calls[0].Response) != "real" || change.Calls[0].Answer != AnswerClient ||
			change.Calls[1].Answer != AnswerClient || change.Calls[1].Revision != 2 || change.Calls[2].Answer != AnswerAbandoned {
			t.Errorf("%s: got %+v", name, change.Calls)
		}
		if !slices.Equal(started.Abandoned, []string{"left"}) || change.NewRun.Entry != EntryStart {
			t.Errorf("%s: got %+v", name, started)
		}
	}
}

func TestAMessageIsSentEvenIfItsAnswersAreInvalid(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*Send, *View){
		"of the wrong kind": func(c *Send, _ *View) { c.Answers[0].Kind = Approval },
		"refused":           func(c *Send, _ *View) { c.Answers[0].Refusal = fault.New(fault.TooLarge, "RESULT_TOO_LARGE", "") },
		"too much together": func(c *Send, v *View) {
			unread := call("unread").withAnswer(AnswerClient, make([]byte, 100), 2)
			v.Calls, v.NamedCalls = append(v.Calls, unread), append(v.NamedCalls, unread)
			c.Limits.Journal = 100 + len("real") + len("real") - 1
		},
	} {
		v := suspendedView(call("c1"), call("c2"))
		c := Send{RunRequest: RunRequest{Key: sessionKey, RunID: "next", Messages: []Message{{ID: "new"}}, Now: 50, Abandon: abandonAnswer, Answers: submitAll("c1", "c2").Answers}}
		left, taken := 0, 1
		if name == "too much together" {
			left, taken = 1, 0
		}
		spoil(&c, v)
		change, started, err := c.Decide(v)
		must(t, err)
		calls := map[string]Call{}
		for _, call := range change.Calls {
			calls[call.CallID] = call
		}
		ids := []string{"c1", "c2"}
		if a, b := calls[ids[taken]], calls[ids[left]]; a.Answer != AnswerClient || b.Answer != AnswerAbandoned || b.Revision != 1 {
			t.Errorf("%s: got %+v, want the one taken and the other one abandoned", name, change.Calls)
		}
		if !slices.Equal(started.Abandoned, []string{ids[left]}) || len(change.Messages) != 1 {
			t.Errorf("%s: got %+v", name, started)
		}
	}
}

func TestOnlyUnreadAnswersAreCounted(t *testing.T) {
	t.Parallel()
	late := call("late").answeredBy(AnswerTimeout).asConsumed() // the timeout was read
	late.Late, late.LateAt = []byte("late"), 9
	told, dropped := late, call("dropped").answeredBy(AnswerClient)
	told.CallID, told.LateReported = "told", true
	dropped.Step = 9
	v := suspendedView(call("open"), call("given").answeredBy(AnswerClient), late, told, dropped)
	change := &Change{Calls: []Call{call("open").withAnswer(AnswerClient, []byte("new"), 5)}, Rewind: &Rewind{CallsFrom: 9}}
	if got, want := change.UnreadBytes(v), len("new")+len("answer")+len("late"); got != want {
		t.Errorf("got %d bytes, want %d", got, want)
	}
}

func TestAnswersForOneSessionNameTheOwnersOfTheOthers(t *testing.T) {
	t.Parallel()
	theirs := call("theirs")
	theirs.SessionID = "other"
	v := suspendedView(call("c1"))
	v.NamedCalls = append(slices.Clone(v.NamedCalls), theirs)
	c := submitAll("c1", "theirs", "nobody")
	c.OwnOnly = true
	change, _, err := c.Decide(v)
	other, ok := errors.AsType[*OtherOwnersError](err)
	if !ok || change != nil || !maps.Equal(other.Owners, map[string]string{"c1": sessionKey.SessionID, "theirs": "other"}) {
		t.Errorf("got %+v, %v; want the owners of both calls", change, err)
	}
	v.NamedCalls = v.NamedCalls[:1]
	change, _, err = c.Decide(v)
	if must(t, err); change == nil || change.NewRun == nil {
		t.Errorf("got %+v, want the session to continue", change)
	}
}

func TestAnswersAfterAnotherMessageAreStale(t *testing.T) {
	t.Parallel()
	v := suspendedView(call("c1"))
	c := submitAll("c1")
	c.SeenRunID = "seen"
	if c.Need().RunID != "seen" {
		t.Errorf("got %+v, want the run asked for", c.Need())
	}
	_, _, err := c.Decide(v)
	refused(t, err, fault.Conflict, "RUN_STALE")
	seen := *v.Current
	seen.RunID, seen.MessageID = "seen", "another"
	v.Run = &seen
	_, _, err = c.Decide(v)
	refused(t, err, fault.Conflict, "RUN_STALE")
	seen.MessageID = v.Current.MessageID
	change, _, err := c.Decide(v)
	if must(t, err); change == nil || change.NewRun == nil {
		t.Errorf("got %+v, want the session to continue", change)
	}
}
