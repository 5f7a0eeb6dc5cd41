package session

import (
	"reflect"
	"testing"
)

// startedSession returns a Send that creates a session, with its view and its change.
func startedSession(t *testing.T) (HandOver, *View, *Change) {
	t.Helper()
	start := Send{RunRequest: RunRequest{Key: sessionKey, AgentType: "a", RunID: "r", Now: 5, Messages: []Message{{ID: "m1", RunID: "r", Body: []byte("one")}, {ID: "m2", RunID: "r", Body: []byte("two")}}}, NewSession: Create{State: `{"n":1}`}}
	v := &View{Agent: &Agent{}, ExecutorRegistered: true}
	change, _, err := start.Decide(v)
	must(t, err)
	return HandOver{Claim: Claim{ExecutorID: "e", Now: 7}, Tail: Tail{MaxMessages: 10, MaxBytes: 100}, MaxBytes: 100}, v, change
}

func TestAHandedOverRunIsClaimed(t *testing.T) {
	t.Parallel()
	c, v, change := startedSession(t)
	queued := *change.NewRun
	shown, claim, err := c.Decide(v, change)
	must(t, err)
	if claim == nil {
		t.Fatal("got no claim")
	}
	want, err := c.Claim.Decide(&View{Session: shown.Session, Run: &queued})
	must(t, err)
	if !reflect.DeepEqual(claim, want) {
		t.Errorf("got %+v, want what a claim writes: %+v", claim, want)
	}
	if !reflect.DeepEqual(change.NewRun, &want.Runs[0]) || !reflect.DeepEqual(change.Session, want.Session) || len(change.Runs) > 0 {
		t.Errorf("got %+v to write, want the session and the new run claimed", change)
	}
	if shown.Run.Status != RunQueued || shown.Session.Epoch != 0 || len(shown.Tail) != 2 {
		t.Errorf("got %+v shown, want what there was before the claim", shown)
	}
}

func TestOnlyAPlainNewRunIsHandedOver(t *testing.T) {
	t.Parallel()
	for name, alter := range map[string]func(c *HandOver, v *View, change *Change){
		"an executor that is not registered": func(_ *HandOver, v *View, _ *Change) { v.ExecutorRegistered = false },
		"another run that is live":           func(_ *HandOver, v *View, _ *Change) { v.Live = &Run{Status: RunRunning} },
		"a step in flight":                   func(_ *HandOver, v *View, _ *Change) { v.Journal = &Journal{Step: 1} },
		"a run that waits":                   func(_ *HandOver, _ *View, change *Change) { change.NewRun.Status = RunWaiting },
		"a run that is to wait for its time": func(_ *HandOver, _ *View, change *Change) { change.NewRun.DueAt = 8 },
		"a run that has waited":              func(_ *HandOver, _ *View, change *Change) { change.Dequeued, change.NewRun = change.NewRun, nil },
		"another run that changes":           func(_ *HandOver, _ *View, change *Change) { change.Runs = []Run{{RunID: "x"}} },
		"messages that go away":              func(_ *HandOver, _ *View, change *Change) { change.Rewind = &Rewind{} },
		"messages of another session":        func(_ *HandOver, _ *View, change *Change) { change.Copy = &Copy{} },
		"a new call":                         func(_ *HandOver, _ *View, change *Change) { change.NewCalls = []Call{call("c")} },
		"a run that is not the newest":       func(_ *HandOver, _ *View, change *Change) { change.Session.CurrentRunID = "x" },
		"a session that goes away":           func(_ *HandOver, _ *View, change *Change) { change.Delete = true },
		"a claim that is too large":          func(c *HandOver, _ *View, _ *Change) { c.MaxBytes = 12 },
	} {
		c, v, change := startedSession(t)
		alter(&c, v, change)
		before := *change
		if _, claim, err := c.Decide(v, change); err != nil || claim != nil || !reflect.DeepEqual(*change, before) {
			t.Errorf("%s: got %+v, %v, want the change left as it is", name, claim, err)
		}
	}
	c, v, _ := startedSession(t)
	if _, claim, err := c.Decide(v, nil); err != nil || claim != nil {
		t.Errorf("nothing: got %+v, %v", claim, err)
	}
}

func TestAHandedOverClaimCarriesTheCallsAfterTheChange(t *testing.T) {
	t.Parallel()
	told, late := call("told").asConsumed(), call("late").asConsumed()
	told.LateAt, told.LateReported, late.LateAt = 4, true, 4
	gone := call("gone")
	older := call("z")
	older.CreatedAt = 0
	v := &View{Calls: []Call{older, call("a"), call("b"), gone}}
	change := &Change{Calls: []Call{call("b").answeredBy(AnswerClient), late, told, call("a").asConsumed()}, DropCalls: []string{"gone"}}
	got := change.carriedCalls(v)
	if want := []Call{older, call("b").answeredBy(AnswerClient), late}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestAnExtendedTailHasTheLastMessages(t *testing.T) {
	t.Parallel()
	list := func(ids ...string) (messages []Message) {
		for _, id := range ids {
			messages = append(messages, Message{ID: id, Body: []byte("four")})
		}
		return messages
	}
	for _, c := range []struct {
		tail        Tail
		shown, more []string
		want        []string
	}{
		{Tail{3, 100}, []string{"a", "b"}, []string{"c"}, []string{"a", "b", "c"}},
		{Tail{2, 100}, []string{"a", "b"}, []string{"c"}, []string{"b", "c"}},
		{Tail{3, 8}, []string{"a", "b"}, []string{"c"}, []string{"b", "c"}},
		{Tail{3, 1}, []string{"a"}, []string{"b"}, []string{"b"}},
		{Tail{3, 100}, []string{"a"}, nil, []string{"a"}},
		{Tail{3, 100}, nil, nil, nil},
	} {
		if got := c.tail.extend(list(c.shown...), list(c.more...)); !reflect.DeepEqual(messageIDs(got), messageIDs(list(c.want...))) {
			t.Errorf("%+v: got %v", c, messageIDs(got))
		}
	}
}
