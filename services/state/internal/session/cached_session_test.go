package session

import (
	"reflect"
	"slices"
	"testing"
)

// newHot caches a claimed session after a command with this need.
func newHot(t *testing.T, need Need) *CachedSession {
	t.Helper()
	v := runningView()
	v.Session.State, v.Run = `{"a":1}`, v.Live
	h := CacheSession(need, v, &Change{})
	if h == nil {
		t.Fatal("nothing is known of a claimed session that was shown")
	}
	return h
}

var needAll = Need{State: true, Journal: true}

func TestACachedSessionAnswersOnlyNeedsThatItKnows(t *testing.T) {
	t.Parallel()
	h := newHot(t, needAll)
	for _, known := range []Need{
		{}, {RunID: h.run.RunID}, {Journal: true}, {MessageIDs: []string{"m"}}, {State: true}, {StateIfWritten: true}, {CheckpointStep: h.session.StepCount + 1},
		{Current: true}, {CallsOfStep: true},
	} {
		if _, ok := h.View(known); !ok {
			t.Errorf("%+v takes a read", known)
		}
	}
	h.session.StepCount = 1
	known := reflect.ValueOf(Need{RunID: "r", MessageIDs: []string{"m"}, Journal: true, State: true, StateIfWritten: true, Current: true, CallsOfStep: true})
	for i := range known.NumField() {
		if !known.Field(i).IsZero() {
			continue
		}
		var need Need
		fill(reflect.ValueOf(&need).Elem().Field(i), int64(h.session.StepCount))
		if v, ok := h.View(need); ok {
			t.Errorf("%+v is answered without a read: %+v", need, v)
		}
	}
	for _, unknown := range []Need{{RunID: "another"}} {
		if _, ok := h.View(unknown); ok {
			t.Errorf("%+v is shown without a read", unknown)
		}
	}
}

// fill sets a field of a Need to a value other than zero.
func fill(v reflect.Value, n int64) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(n)
	case reflect.Slice:
		v.Set(reflect.ValueOf([]string{"x"}))
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	default:
		panic("a Need has a field of another kind: " + v.Kind().String())
	}
}

func TestAnUnreadStateIsNotCached(t *testing.T) {
	t.Parallel()
	h := newHot(t, Need{Journal: true})
	if _, ok := h.View(Need{State: true}); ok {
		t.Error("a state is shown without a read")
	}
	v, ok := h.View(Need{StateIfWritten: true})
	if !ok || v.Session.State != "" {
		t.Errorf("got %+v, %t; want a view without the state", v, ok)
	}
	written := h.After(&Change{Plan: &Journal{Step: 1, CallIDs: []string{"c"}}}).
		After(&Change{Result: &Result{CallID: "c", Ops: []StateOp{{Key: "k", Kind: OpDelete}}}})
	if _, ok := written.View(Need{Journal: true, StateIfWritten: true}); ok {
		t.Error("a step with writes to an unknown state is answered without it")
	}
	s := written.session
	s.State, s.StateVersion = `{}`, 7
	stated := written.After(&Change{Session: &s, NewState: true, ClearJournal: true})
	if v, ok := stated.View(Need{State: true}); !ok || v.Session.State != `{}` {
		t.Errorf("got %+v, %t; want the state that was written", v, ok)
	}
	s.State, s.Version = "", 8
	if v, ok := stated.After(&Change{Session: &s}).View(Need{State: true}); !ok || v.Session.State != `{}` {
		t.Errorf("got %+v, %t; want the state of before a write that leaves it alone", v, ok)
	}
}

func TestOnlyClaimedSessionsAreCached(t *testing.T) {
	t.Parallel()
	h := newHot(t, needAll)
	released := h.run
	released.Status, released.ExecutorID = RunQueued, ""
	ended := h.session
	ended.Status = Completed
	for name, c := range map[string]*Change{
		"released": {Runs: []Run{released}}, "ended": {Session: &ended}, "deleted": {Delete: true}, "rewound": {Rewind: &Rewind{}},
	} {
		if h.After(c) != nil {
			t.Errorf("a session that is %s is known", name)
		}
	}
	v := runningView()
	if CacheSession(Need{}, v, &Change{}) != nil {
		t.Error("a session is known whose journal was not shown")
	}
	if CacheSession(needAll, &View{}, &Change{}) != nil {
		t.Error("a session is known that does not exist")
	}
}

func TestACachedSessionIsImmutable(t *testing.T) {
	t.Parallel()
	h := newHot(t, needAll).After(&Change{Plan: &Journal{Step: 1, CallIDs: []string{"a", "b", "c"}}})
	h = h.After(&Change{Result: &Result{CallID: "a"}})
	one, two := h.After(&Change{Result: &Result{CallID: "b"}}), h.After(&Change{Result: &Result{CallID: "c"}})
	if len(h.journal.Results) != 1 || one.journal.Results[1].CallID != "b" || two.journal.Results[1].CallID != "c" {
		t.Errorf("got %+v, %+v, %+v", h.journal, one.journal, two.journal)
	}
}

// The calls of a cached session are as a read would show them, after each change of a step.
func TestACachedSessionKnowsItsCalls(t *testing.T) {
	t.Parallel()
	const step = 3
	ofStep := Need{CallIDs: []string{"new", "answered", "of another session"}, CallsOfStep: true, Calls: true, Current: true}
	if _, ok := newHot(t, needAll).View(ofStep); ok {
		t.Error("calls are shown that were not read")
	}
	v := runningView()
	v.Run = v.Live
	answered, late := call("answered").answeredBy(AnswerClient), call("late").answeredBy(AnswerTimeout).asConsumed()
	late.LateAt = 7
	v.Calls = []Call{answered, late}
	h := CacheSession(Need{Journal: true, Calls: true}, v, &Change{})
	if _, ok := h.View(Need{CallIDs: []string{"answered"}, Calls: true}); ok {
		t.Error("an answer is decided without a read, although its call may be one of another session")
	}
	shows := func(h *CachedSession, named []string, all ...string) {
		t.Helper()
		v, ok := h.View(ofStep)
		if !ok || v.Current == nil || v.Current.RunID != h.run.RunID || !slices.Equal(idsOf(v.NamedCalls), named) || !slices.Equal(idsOf(v.Calls), all) {
			t.Errorf("got %+v, %t; want the calls %q, and %q named", v, ok, all, named)
		}
	}
	shows(h, []string{"answered"}, "answered", "late")
	opened := call("new")
	opened.CreatedAt = answered.CreatedAt + 1
	more := h.After(&Change{NewCalls: []Call{opened}})
	shows(more, []string{"answered", "new"}, "answered", "late", "new")
	answered.ConsumedAt, answered.ConsumedStep = 9, step
	late.LateReported, late.LateReportedStep = true, step
	shows(more.After(&Change{Calls: []Call{answered, late}}), []string{"new"}, "new")
	shows(more.After(&Change{DropCalls: []string{"new"}}), []string{"answered"}, "answered", "late")
	shows(h, []string{"answered"}, "answered", "late") // it is immutable
	created := *v.Session
	started := CacheSession(Need{}, &View{}, &Change{Created: true, Session: &created, NewRun: v.Live})
	shows(started, nil)
}

func idsOf(calls []Call) (ids []string) {
	for _, c := range calls {
		ids = append(ids, c.CallID)
	}
	return ids
}
