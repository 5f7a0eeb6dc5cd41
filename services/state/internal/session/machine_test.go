package session_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/sqlite/sqlitetest"
)

// machine sends random commands to a session and a child, from present and former claims, and
// checks the invariants.
type machine struct {
	store  store.Store
	claims []session.ClaimRef // all claims ever made
	last   map[session.Key]session.Session
	sent   map[string]session.RunRequest // accepted requests by the id of their message
	calls  []string                      // ids of all calls ever made
	dealt  map[attempts]int64            // the epoch of each claim's attempts
	ids    int
	now    session.Millis
}

var (
	parent    = session.Key{Tenant: "t", SessionID: "s"}
	childView = session.Key{Tenant: "t", SessionID: "k"}
	limits    = session.Limits{State: 1000, Journal: 1000, Waiting: 3}
)

func (m *machine) id() string {
	m.ids++
	return fmt.Sprint("id", m.ids)
}

func (m *machine) key(t *rapid.T) session.Key {
	return rapid.SampledFrom([]session.Key{parent, childView}).Draw(t, "session")
}

type decide func(views ...*session.View) (*session.Change, error)

// update runs a command with its consequences for the family.
func (m *machine) update(t *rapid.T, key session.Key, need session.Need, command decide) bool {
	targets := []session.Target{{Key: key, Need: need}}
	for range 10 {
		err := m.store.Update(context.Background(), targets, 0, func(views []*session.View) ([]*session.Change, error) {
			own, err := command(views...)
			if err != nil {
				return nil, err
			}
			return session.Family{Now: m.now, NewID: m.id, Targets: targets, Abandon: func(session.Call) []byte { return []byte("gone") }, ChildEnd: childEnd}.Propagate(views, own)
		})
		if wider, ok := errors.AsType[*session.IncompleteViewError](err); ok {
			targets = wider.Extend(targets)
			continue
		}
		if _, ok := fault.From(err); err != nil && !ok {
			t.Fatalf("got %v, which is no fault", err)
		}
		return err == nil
	}
	t.Fatal("the command does not stop asking for sessions")
	return false
}

func answered[T any](command func(*session.View) (*session.Change, T, error)) decide {
	return func(views ...*session.View) (*session.Change, error) {
		change, _, err := command(views[0])
		return change, err
	}
}

func childEnd(*session.Session, session.Status, int) []byte { return []byte("ended") }

func plain(command func(*session.View) (*session.Change, error)) decide {
	return func(views ...*session.View) (*session.Change, error) { return command(views[0]) }
}

// claim draws a claim, present or former.
func (m *machine) claim(t *rapid.T) (ref session.ClaimRef, owns bool) {
	if len(m.claims) == 0 {
		t.Skip("nothing was claimed yet")
	}
	i := rapid.IntRange(max(0, len(m.claims)-3), len(m.claims)-1).Draw(t, "claim")
	ref = m.claims[i]
	return ref, ref.Epoch == m.last[ref.Key].Epoch
}

// write sends a write of a claim. It must write nothing if the claim does not own the session.
func (m *machine) write(t *rapid.T, ref session.ClaimRef, owns bool, need session.Need, command decide) {
	var wrote bool
	watched := func(views ...*session.View) (*session.Change, error) {
		change, err := command(views...)
		wrote = change != nil
		return change, err
	}
	if done := m.update(t, ref.Key, need, watched); done && wrote && !owns {
		t.Fatal("a write of a former claim was accepted")
	}
}

// reading accepts all message bodies.
var reading = session.BodyFuncs{
	SameContent: func(session.Message, session.Message) (bool, error) { return true, nil },
	IsVisible:   func(session.Message) (bool, error) { return true, nil },
	MoveToRun:   func(m session.Message, runID string) (session.Message, error) { m.RunID = runID; return m, nil },
	RanTool:     func(step []session.Message) (bool, error) { return len(step) > 1, nil },
}

// start sends a random client request.
func (m *machine) start(t *rapid.T) {
	c := session.RunRequest{Key: m.key(t), AgentType: "a", RunID: m.id(), MessageID: m.id(), Messages: []session.Message{{ID: m.id(), Role: "user"}}, Now: m.now, Limits: limits, Bodies: reading}
	c.Messages[0].RunID = c.RunID
	c.OnBusy = rapid.SampledFrom([]session.BusyPolicy{"", session.BusyEnqueue, session.BusyInterrupt, session.BusyRollback}).Draw(t, "policy")
	if rapid.Bool().Draw(t, "abandon") {
		c.Abandon = func(session.Call) []byte { return []byte("abandoned") }
		c.Answers = m.answers(t)
	}
	need, decide, brings := m.intent(t, c)
	taken := m.update(t, c.Key, need, func(views ...*session.View) (*session.Change, error) {
		change, started, err := decide(views...)
		brings = brings && !started.Repeated
		return change, err
	})
	if taken && brings {
		m.sent[c.Messages[0].ID] = c
	}
}

// intent draws a request, and reports whether it sends the messages.
func (m *machine) intent(t *rapid.T, c session.RunRequest) (session.Need, func(...*session.View) (*session.Change, session.Started, error), bool) {
	send := session.Send{RunRequest: c, NewSession: session.Create{State: "{}"}}
	if c.Key == childView {
		send.NewSession.ParentID = parent.SessionID
	}
	to, there := m.message(t, c.Key)
	switch intent := rapid.SampledFrom([]string{"send", "send", "send", "resume", "retry", "edit", "regenerate"}).Draw(t, "intent"); {
	case intent == "resume":
		c := session.Resume{RunRequest: c}
		return c.Need(), c.Decide, true
	case intent == "retry":
		m.forgetSent(c.Key)
		c := session.Retry{RunRequest: c}
		return c.Need(), func(views ...*session.View) (*session.Change, session.Started, error) { return c.Decide(views[0]) }, true
	case intent == "edit" && there:
		m.forgetSent(c.Key) // some may be deleted
		c := session.Edit{Send: send, Target: to}
		return c.Need(), c.Decide, true
	case intent == "regenerate" && there:
		m.forgetSent(c.Key)
		c := session.Regenerate{Send: send, Target: to}
		return c.Need(), c.Decide, false
	default:
		return send.Need(), send.Decide, true
	}
}

// message draws a user message.
func (m *machine) message(t *rapid.T, key session.Key) (id string, ok bool) {
	list, _, err := m.store.Messages(context.Background(), key, store.Page{Limit: 1000, MaxBytes: 1000})
	list = slices.DeleteFunc(list, func(message session.Message) bool { return message.Role != "user" })
	if err != nil || len(list) == 0 {
		return "", false
	}
	return rapid.SampledFrom(list).Draw(t, "message").ID, true
}

// answers draws answers to calls, open or not.
func (m *machine) answers(t *rapid.T) (list []session.Answer) {
	for range rapid.IntRange(0, 3).Draw(t, "answers") {
		if id, ok := m.call(t); ok {
			list = append(list, session.Answer{CallID: id, Kind: session.ClientTool, Response: []byte("real")})
		}
	}
	return list
}

func (m *machine) submitAll(t *rapid.T) {
	c := session.SubmitAll{Key: m.key(t), Answers: m.answers(t), NewRunID: m.id(), Now: m.now}
	m.update(t, c.Key, c.Need(), answered(c.Decide))
}

func (m *machine) take(t *rapid.T) {
	due := store.Queued{ExecutorID: "e", AgentTypes: []string{"a"}, Now: m.now}
	command := session.Claim{ExecutorID: "e", Now: m.now}.Decide
	got, err := m.store.UpdateDue(context.Background(), due, session.Need{Calls: true}, 1, command)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range got {
		m.claims = append(m.claims, session.ClaimRef{Key: d.Change.Session.Key, RunID: d.Change.Runs[0].RunID, Epoch: d.Change.Session.Epoch})
	}
}

func (m *machine) plan(t *rapid.T) {
	ref, owns := m.claim(t)
	c := session.RecordPlan{ClaimRef: ref, Step: m.last[ref.Key].StepCount + 1, Body: []byte(m.id()), CallIDs: []string{"c"}}
	m.write(t, ref, owns, c.Need(), plain(c.Decide))
}

func (m *machine) result(t *rapid.T) {
	ref, owns := m.claim(t)
	c := session.RecordResult{ClaimRef: ref, Step: m.last[ref.Key].StepCount + 1, Result: session.Result{CallID: "c"}, Limits: limits}
	m.write(t, ref, owns, c.Need(), func(views ...*session.View) (*session.Change, error) {
		change, _, err := c.Decide(views[0])
		return change, err
	})
}

func (m *machine) commit(t *rapid.T) {
	ref, owns := m.claim(t)
	c := session.Commit{
		ClaimRef: ref, Step: m.last[ref.Key].StepCount + rapid.Int32Range(0, 1).Draw(t, "step"), Messages: []session.Message{{ID: m.id(), Role: "assistant", RunID: ref.RunID}},
		Ops: []session.StateOp{{Key: "n", Kind: session.OpReplace, Value: fmt.Sprint(m.ids)}}, CheckpointID: m.id(), Limits: limits, Now: m.now,
	}
	switch rapid.SampledFrom([]string{"goes on", "ends", "suspends", "waits for its child"}).Draw(t, "then") {
	case "ends":
		c.Outcome = &session.Outcome{Status: rapid.SampledFrom([]session.RunStatus{session.RunCompleted, session.RunFailed}).Draw(t, "as")}
	case "suspends":
		c.Outcome = &session.Outcome{Status: session.RunSuspendedClientTool}
		if rapid.Bool().Draw(t, "with a new call") {
			c.Calls = []session.Call{{CallID: m.id(), Kind: session.ClientTool, DeadlineAt: m.now + 3}}
			m.calls = append(m.calls, c.Calls[0].CallID)
		}
	case "waits for its child":
		c.Outcome = &session.Outcome{Status: session.RunSuspendedAwaitingChildren}
		c.Calls = []session.Call{{CallID: m.id(), Kind: session.SubAgent, DeadlineAt: m.now + 5}}
		if _, err := m.store.Session(context.Background(), childView); err == nil {
			c.Children = []session.Child{{SessionID: childView.SessionID, CallID: c.Calls[0].CallID}}
		} else {
			c.NewChildren = []session.NewChild{{
				SessionID: childView.SessionID, AgentType: "a", CallID: c.Calls[0].CallID, Mode: session.Ephemeral, RunID: m.id(), MessageID: m.id(), State: "{}",
			}}
		}
	}
	if id, ok := m.call(t); ok && rapid.Bool().Draw(t, "consume") {
		c.Consume = []session.Consume{{CallID: id, Revision: rapid.Int32Range(1, 2).Draw(t, "revision")}}
	}
	m.write(t, ref, owns, c.Need(), answered(c.Decide))
}

func (m *machine) call(t *rapid.T) (string, bool) {
	if len(m.calls) == 0 {
		return "", false
	}
	return m.calls[rapid.IntRange(max(0, len(m.calls)-3), len(m.calls)-1).Draw(t, "call")], true
}

func (m *machine) finish(t *rapid.T) {
	ref, owns := m.claim(t)
	c := session.Finish{ClaimRef: ref, Outcome: session.Outcome{Status: rapid.SampledFrom([]session.RunStatus{session.RunCompleted, session.RunFailed, session.RunInterrupted}).Draw(t, "as")}, Now: m.now}
	m.write(t, ref, owns, c.Need(), answered(c.Decide))
}

func (m *machine) release(t *rapid.T) {
	ref, owns := m.claim(t)
	c := session.Release{ClaimRef: ref, Delay: session.Millis(rapid.IntRange(0, 2).Draw(t, "delay")), Now: m.now}
	m.write(t, ref, owns, c.Need(), plain(c.Decide))
}

// lose requeues runs that their executor does not know.
func (m *machine) lose(t *rapid.T) {
	due := store.LostClaims{ExecutorID: "e", ClaimedBefore: m.now}
	if _, err := m.store.UpdateDue(context.Background(), due, session.Need{}, 1, session.RequeueLost{ExecutorID: "e", ClaimedBefore: m.now, Now: m.now}.Decide); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) submit(t *rapid.T) {
	id, ok := m.call(t)
	if !ok {
		t.Skip("nothing was called yet")
	}
	c := session.Submit{Key: m.key(t), CallID: id, Kind: session.ClientTool, Response: []byte("real"), NewRunID: m.id(), Now: m.now}
	m.update(t, c.Key, c.Need(), answered(c.Decide))
}

func (m *machine) timeout(t *rapid.T) {
	c := session.TimeoutCalls{Key: m.key(t), Response: func(session.Call) []byte { return []byte("late") }, NewRunID: m.id(), Now: m.now}
	m.update(t, c.Key, c.Need(), answered(c.Decide))
}

func (m *machine) stop(t *rapid.T) {
	c := session.RequestStop{Key: m.key(t), Kind: rapid.SampledFrom([]session.StopKind{session.StopInterrupt, session.StopAbort}).Draw(t, "kind"), Now: m.now}
	m.update(t, c.Key, c.Need(), answered(c.Decide))
}

func (m *machine) force(t *rapid.T) {
	c := session.SetStatus{
		Key: m.key(t), Failure: &session.Failure{Error: "e"}, Now: m.now,
		Status: rapid.SampledFrom([]session.Status{session.Paused, session.Failed, session.Completed, session.Interrupted}).Draw(t, "status"),
	}
	m.update(t, c.Key, c.Need(), answered(c.Decide))
}

func (m *machine) rewind(t *rapid.T) {
	key := m.key(t)
	list, _, err := m.store.Checkpoints(context.Background(), key, 0, 0, 3)
	if err != nil || len(list) == 0 {
		t.Skip("no checkpoint yet")
	}
	m.forgetSent(key) // some may be deleted
	c := session.RewindTo{Key: key, CheckpointID: rapid.SampledFrom(list).Draw(t, "checkpoint").ID, Now: m.now}
	m.update(t, key, c.Need(), answered(c.Decide))
}

func (m *machine) delete(t *rapid.T) {
	if rapid.IntRange(0, 9).Draw(t, "rarely") > 0 {
		t.Skip("not now")
	}
	c := session.DeleteSession{Key: m.key(t)}
	if m.update(t, c.Key, c.Need(), plain(c.Decide)) {
		m.forget(c.Key)
		if c.Key == parent {
			m.forget(childView)
		}
	}
}

// forget drops the records of a deleted session, since another may use its id and epochs.
func (m *machine) forget(key session.Key) {
	delete(m.last, key)
	m.forgetSent(key)
	m.forgetPositions(key)
	var claims []session.ClaimRef
	for _, ref := range m.claims {
		if ref.Key != key {
			claims = append(claims, ref)
		}
	}
	m.claims = claims
}

func (m *machine) forgetSent(key session.Key) {
	maps.DeleteFunc(m.sent, func(_ string, c session.RunRequest) bool { return c.Key == key })
}

func (m *machine) check(t *rapid.T) {
	m.now++
	for _, key := range []session.Key{parent, childView} {
		shown, err := m.store.Session(context.Background(), key)
		if errors.Is(err, fault.NotFound) {
			delete(m.last, key)
			m.forgetSent(key)
			m.forgetPositions(key)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		m.checkSession(t, shown)
		m.checkRuns(t, &shown.Session)
		m.checkWaits(t, shown)
		m.checkPositions(t, &shown.Session)
		m.last[key] = shown.Session
	}
}

// checkSession checks the invariants of a stored session.
func (m *machine) checkSession(t *rapid.T, shown *store.Snapshot) {
	s, run := &shown.Session, shown.Current
	if (s.Status == session.Active) != run.Status.Live() || s.CurrentRunID != run.RunID || s.Turn != run.Turn {
		t.Errorf("%s is %s of turn %d with run %s of turn %d", s.SessionID, s.Status, s.Turn, run.Status, run.Turn)
	}
	if last := m.last[s.Key]; s.Epoch < last.Epoch || s.Version < last.Version || s.StepCount < last.StepCount {
		t.Errorf("the session went back from %+v to %+v", last, s)
	}
	if s.Status.Suspended() != (s.Suspension != nil) {
		t.Errorf("%s is %s with suspension %+v", s.SessionID, s.Status, s.Suspension)
	}
	if n := len(shown.Waiting); int(s.Waiting) != n || n > 0 && s.Status != session.Active && !s.Status.Suspended() {
		t.Errorf("%s is %s, and %d runs wait; it says %d", s.SessionID, s.Status, n, s.Waiting)
	}
	messages, total, err := m.store.Messages(context.Background(), s.Key, store.Page{Limit: 1000, MaxBytes: 1000})
	m.checkSent(t, s.Key, messages)
	if err != nil || total != s.MessageCount || int64(len(messages)) != total {
		t.Errorf("got %d of %d messages, %v; the session says %d", len(messages), total, err, s.MessageCount)
	}
}

// checkSent looks for lost and duplicate messages: an accepted message is in the conversation
// once, unless its run waits or ended before it began.
func (m *machine) checkSent(t *rapid.T, key session.Key, messages []session.Message) {
	times := map[string]int{}
	for _, message := range messages {
		times[message.ID]++
	}
	for id, c := range m.sent {
		if c.Key != key {
			continue
		}
		run, err := m.store.Run(context.Background(), key, c.RunID)
		if err != nil {
			t.Fatal(err)
		}
		if want := min(1, int(run.Turn)); times[id] != want {
			t.Errorf("message %s of run %s, which is %s in turn %d, is there %d times", id, c.RunID, run.Status, run.Turn, times[id])
		}
	}
}

// checkWaits looks for lost wake-ups: a suspended session waits for something and has the
// true statuses of its children.
func (m *machine) checkWaits(t *rapid.T, shown *store.Snapshot) {
	s := &shown.Session
	var waits bool
	for _, call := range shown.Calls {
		waits = waits || call.SessionID == s.SessionID && call.Answer == ""
	}
	for _, row := range shown.Children {
		status := session.Failed // for a deleted child
		if known, err := m.store.Session(context.Background(), session.Key{Tenant: s.Tenant, SessionID: row.SessionID}); err == nil {
			status = known.Session.Status
		}
		if row.Status != status {
			t.Errorf("%s knows its child as %s, which is %s", s.SessionID, row.Status, status)
		}
		for _, call := range shown.Calls {
			if call.SessionID == s.SessionID && call.CallID == row.CallID && call.Kind == session.SubAgent && call.Answer == "" && status.Terminal() {
				t.Errorf("%s waits for a child that is %s", s.SessionID, status)
			}
		}
	}
	if s.Status.Suspended() && !waits {
		t.Errorf("%s is %s, and waits for nothing", s.SessionID, s.Status)
	}
}

func (m *machine) checkRuns(t *rapid.T, s *session.Session) {
	runs, err := m.store.Runs(context.Background(), s.Key, 0, 1000)
	if err != nil || len(runs) != int(s.Turn) {
		t.Errorf("got %d runs in turn %d, %v", len(runs), s.Turn, err)
	}
	var live int
	steps := m.skipped(t, s)
	for _, r := range runs {
		steps += r.StepCount
		if r.Status.Live() {
			live++
		}
	}
	if live > 1 || steps != s.StepCount {
		t.Errorf("got %d live runs, %d steps of %d", live, steps, s.StepCount)
	}
}

func TestInvariantsHoldUnderRandomCommands(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{store: sqlitetest.Open(t), last: map[session.Key]session.Session{}, sent: map[string]session.RunRequest{}, dealt: map[attempts]int64{}}
		if err := m.store.Announce(context.Background(), "e", []session.Agent{{Type: "a"}}, 1); err != nil {
			t.Fatal(err)
		}
		t.Repeat(map[string]func(*rapid.T){
			"start": m.start, "take": m.take, "plan": m.plan, "result": m.result, "commit": m.commit, "commit more": m.commit,
			"finish": m.finish, "release": m.release, "lose": m.lose, "submit": m.submit, "submit all": m.submitAll, "timeout": m.timeout,
			"stop": m.stop, "force": m.force, "rewind": m.rewind, "delete": m.delete, "claim often": m.claimOften, "": m.check,
		})
	})
}
