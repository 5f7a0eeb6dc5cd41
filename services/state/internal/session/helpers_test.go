package session

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

var sessionKey = Key{Tenant: "t", SessionID: "s"}

// runningView returns a session with a run "r" claimed under epoch 4.
func runningView() *View {
	run := &Run{RunID: "r", AgentType: "a", Turn: 2, Status: RunRunning, Epoch: 4, Attempt: 1, ExecutorID: "e", MessageID: "m", Traceparent: "tp", Tracestate: "ts"}
	return &View{
		Session: &Session{
			Key: sessionKey, AgentType: "a", RootID: "s", Status: Active, Version: 7, Epoch: 4, Turn: 2, StepCount: 3, MessageCount: 5,
			State: "{}", StateVersion: 1, StateBase: 1, Position: 40, CurrentRunID: "r",
		},
		Run: run, Current: run, Live: run,
	}
}

// suspendedView returns the session after run "r" suspended on the calls.
func suspendedView(calls ...Call) *View {
	v := runningView()
	v.Session.Status, v.Session.ExpiresAt = SuspendedClientTool, 9000
	v.Session.Suspension = &Suspension{StepID: "step"}
	v.Run.Status, v.Run.Outcome = RunSuspendedClientTool, Outcome{Status: RunSuspendedClientTool}
	v.Live, v.Run = nil, nil
	v.Calls, v.NamedCalls = calls, calls
	return v
}

// withAwaitedChildren makes the session wait for children, given by their statuses. Ended ones
// have answered.
func (v *View) withAwaitedChildren(children map[string]Status) *View {
	for _, id := range slices.Sorted(maps.Keys(children)) {
		status, c := children[id], childCall(id)
		if status.Terminal() {
			c = c.answeredBy(AnswerChild)
		}
		v.Calls, v.NamedCalls = append(v.Calls, c), append(v.NamedCalls, c)
		v.withChild(id, status)
		v.Children[len(v.Children)-1].CallID = c.CallID
	}
	return v
}

// childCall returns the call that a child answers.
func childCall(child string) Call {
	c := call("call-" + child)
	c.Kind = SubAgent
	return c
}

func call(id string) Call {
	return Call{CallID: id, SessionID: "s", RunID: "r", Step: 3, Kind: ClientTool, CreatedAt: 1}
}

func (c Call) answeredBy(kind AnswerKind) Call { return c.withAnswer(kind, []byte("answer"), 2) }

func (c Call) asConsumed() Call {
	c.ConsumedAt = 3
	return c
}

// ref is the claim in runningView.
var ref = ClaimRef{Key: sessionKey, RunID: "r", Epoch: 4}

// refused fails the test unless the error is this fault, and returns it.
func refused(t *testing.T, err error, kind fault.Kind, reason string) *fault.Fault {
	t.Helper()
	f, ok := fault.From(err)
	if !ok || f.Kind != kind || f.Reason != reason {
		t.Fatalf("got %v, want %v (%s)", err, kind, reason)
	}
	return f
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// family stands in for a store: it has the views of its sessions.
type family struct {
	views map[string]*View
	ids   int
	need  *Need // of the command; with it, the views show only rows that were asked for
}

func newFamily(views ...*View) *family {
	f := &family{views: map[string]*View{}}
	for _, v := range views {
		f.views[v.Session.SessionID] = v
	}
	return f
}

// run repeats the decision until its view is complete, and returns the changes by session.
func (f *family) run(t *testing.T, sessionID string, decide func(views ...*View) (*Change, error)) map[string]*Change {
	t.Helper()
	targets := []Target{{Key: Key{"t", sessionID}}}
	if f.need != nil {
		targets[0].Need = *f.need
	}
	for range 10 {
		var views []*View
		for _, target := range targets {
			if v := f.views[target.SessionID]; v != nil {
				if f.need != nil {
					v = v.showing(target.Need)
				}
				views = append(views, v)
			} else {
				views = append(views, &View{Agent: &Agent{}})
			}
		}
		own, err := decide(views...)
		var changes []*Change
		if err == nil {
			changes, err = Family{Now: 100, NewID: f.id, Targets: targets, Abandon: abandonAnswer, ChildEnd: childEnd, MaxUnread: 1000}.Propagate(views, own)
		}
		if wider, ok := errors.AsType[*IncompleteViewError](err); ok {
			targets = wider.Extend(targets)
			continue
		}
		must(t, err)
		if own != nil && len(changes) != len(views) {
			t.Fatalf("got %d changes for %d views", len(changes), len(views))
		}
		got := map[string]*Change{}
		for i, change := range changes {
			if change != nil {
				got[targets[i].SessionID] = change
			}
		}
		return got
	}
	t.Fatal("the command does not stop asking for sessions")
	return nil
}

// showing returns the view without most of the rows that the need does not name.
func (v *View) showing(n Need) *View {
	shown := *v
	if !n.Current {
		shown.Current = nil
	}
	if !n.Live {
		shown.Live = nil
	}
	if !n.Calls {
		shown.Calls = nil
	}
	if !n.Children {
		shown.Children = nil
	}
	if !n.Waiting {
		shown.Waiting, shown.WaitingInput = nil, nil
	}
	return &shown
}

func childEnd(child *Session, status Status, room int) []byte {
	return fmt.Appendf(nil, "%s %s %s", child.SessionID, status, child.Output[:min(len(child.Output), max(room, 0))])
}

func abandonAnswer(c Call) []byte { return []byte("gone " + c.CallID) }

func (f *family) id() string {
	f.ids++
	return fmt.Sprint("next", f.ids)
}

// childView returns a running child of the parent.
func childView(id, parent string) *View {
	v := runningView()
	v.Session.SessionID, v.Session.ParentID = id, parent
	return v
}

// withChild adds a local child with the status.
func (v *View) withChild(id string, status Status) *View {
	v.Session.Children++
	v.Children = append(v.Children, Child{SessionID: id, AgentType: "a", Status: status, Mode: Ephemeral, Location: Local, StartedAt: 1})
	return v
}

// deciding adapts a command on one session, without its answer.
func deciding[T any](decide func(*View) (*Change, T, error)) func(...*View) (*Change, error) {
	return func(views ...*View) (*Change, error) {
		change, _, err := decide(views[0])
		return change, err
	}
}

func finishAs(sessionID string, status RunStatus) func(...*View) (*Change, error) {
	return deciding(Finish{ClaimRef: ClaimRef{Key{"t", sessionID}, "r", 4}, Outcome: Outcome{Status: status}, Now: 100}.Decide)
}
