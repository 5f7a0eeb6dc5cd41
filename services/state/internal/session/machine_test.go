package session_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/memory"
)

// machine drives one session by random commands, sent by whoever has held a
// claim at any time, and watches what must always hold.
type machine struct {
	store  *memory.Store
	claims []session.Ref // all that there ever were; the last is the owner's, if anybody's
	last   session.Session
	ids    int
}

var key = session.Key{Tenant: "t", SessionID: "s"}

func (m *machine) id() string {
	m.ids++
	return fmt.Sprint("id", m.ids)
}

func (m *machine) update(t *rapid.T, need session.Need, decide store.Decide) bool {
	err := m.store.Update(context.Background(), key, need, decide)
	if _, ok := fault.From(err); err != nil && !ok {
		t.Fatalf("got %v, which is no fault", err)
	}
	return err == nil
}

// claim draws one of the claims there ever were.
func (m *machine) claim(t *rapid.T) (ref session.Ref, owns bool) {
	if len(m.claims) == 0 {
		t.Skip("nothing was claimed yet")
	}
	i := rapid.IntRange(max(0, len(m.claims)-2), len(m.claims)-1).Draw(t, "claim")
	return m.claims[i], m.claims[i].Epoch == m.last.Epoch
}

// write sends a write of a claim, which must fail when the claim is not the
// owner's.
func (m *machine) write(t *rapid.T, owns bool, need session.Need, decide store.Decide) {
	if done := m.update(t, need, decide); done && !owns {
		t.Fatal("a write of a former claim was taken")
	}
}

func (m *machine) start(t *rapid.T) {
	c := session.Start{Key: key, AgentType: "a", RunID: m.id(), State: "{}", Messages: []session.Message{{ID: m.id()}}}
	m.update(t, c.Need(), func(v *session.View) (*session.Change, error) {
		change, _, err := c.Decide(v)
		return change, err
	})
}

func (m *machine) take(t *rapid.T) {
	due := store.Due(store.Queued{ExecutorID: "e", AgentTypes: []string{"a"}})
	decide := session.Claim{ExecutorID: "e"}.Decide
	if rapid.Bool().Draw(t, "settling") {
		due, decide = store.Unsettled{ExecutorID: "e", AgentTypes: []string{"a"}}, session.ClaimSettling{ExecutorID: "e"}.Decide
	}
	got, err := m.store.UpdateDue(context.Background(), due, session.Need{}, 1, decide)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range got {
		m.claims = append(m.claims, session.Ref{Key: key, RunID: d.Change.Runs[0].RunID, Epoch: d.Change.Session.Epoch})
	}
}

func (m *machine) plan(t *rapid.T) {
	ref, owns := m.claim(t)
	c := session.Plan{Ref: ref, Step: m.last.StepCount + 1, Body: []byte(m.id()), CallIDs: []string{"c"}}
	m.write(t, owns, c.Need(), c.Decide)
}

func (m *machine) result(t *rapid.T) {
	ref, owns := m.claim(t)
	c := session.RecordResult{Ref: ref, Step: m.last.StepCount + 1, Result: session.Result{CallID: "c"}, Limits: session.Limits{State: 100, Journal: 100}}
	m.write(t, owns, c.Need(), func(v *session.View) (*session.Change, error) {
		change, _, err := c.Decide(v)
		return change, err
	})
}

func (m *machine) commit(t *rapid.T) {
	ref, owns := m.claim(t)
	c := session.Commit{Ref: ref, Step: m.last.StepCount + rapid.Int32Range(0, 1).Draw(t, "step"), Messages: []session.Message{{ID: m.id()}}, Limits: session.Limits{State: 100}}
	if rapid.Bool().Draw(t, "last") {
		c.Outcome = &session.Outcome{Status: session.RunCompleted}
	}
	m.write(t, owns, c.Need(), func(v *session.View) (*session.Change, error) {
		change, _, err := c.Decide(v)
		return change, err
	})
}

func (m *machine) finish(t *rapid.T) {
	ref, owns := m.claim(t)
	c := session.Finish{Ref: ref, Outcome: session.Outcome{Status: session.RunInterrupted}}
	m.write(t, owns, c.Need(), func(v *session.View) (*session.Change, error) {
		change, _, err := c.Decide(v)
		return change, err
	})
}

func (m *machine) settle(t *rapid.T) {
	ref, owns := m.claim(t)
	c := session.Settle{Ref: ref, Sequence: int64(m.ids)}
	m.write(t, owns, c.Need(), c.Decide)
}

func (m *machine) release(t *rapid.T) {
	ref, owns := m.claim(t)
	c := session.Release{Ref: ref}
	m.write(t, owns, c.Need(), c.Decide)
}

// check holds what is stored against what must always hold.
func (m *machine) check(t *rapid.T) {
	s, run, err := m.store.Session(context.Background(), key)
	if errors.Is(err, fault.NotFound) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if (s.Status == session.Active) != run.Status.Live() || s.CurrentRunID != run.RunID || s.Turn != run.Turn {
		t.Errorf("session is %s of turn %d with run %s of turn %d", s.Status, s.Turn, run.Status, run.Turn)
	}
	if s.Epoch < m.last.Epoch || s.Version < m.last.Version || s.StepCount < m.last.StepCount || s.StreamSequence < m.last.StreamSequence {
		t.Errorf("the session went back from %+v to %+v", m.last, s)
	}
	messages, total, err := m.store.Messages(context.Background(), key, store.Page{Limit: 1000, MaxBytes: 1000})
	if err != nil || total != s.MessageCount || int64(len(messages)) != total {
		t.Errorf("got %d of %d messages, %v; the session says %d", len(messages), total, err, s.MessageCount)
	}
	m.checkRuns(t, s)
	m.last = *s
}

func (m *machine) checkRuns(t *rapid.T, s *session.Session) {
	runs, err := m.store.Runs(context.Background(), key, 0, 1000)
	if err != nil || len(runs) != int(s.Turn) {
		t.Errorf("got %d runs in turn %d, %v", len(runs), s.Turn, err)
	}
	var live, running, unsettled int
	var steps int32
	for _, r := range runs {
		steps += r.StepCount
		if r.Status.Live() {
			live++
		} else if !r.Settled {
			unsettled++
		}
		if r.Status == session.RunRunning {
			running++
		}
	}
	if running > 0 && unsettled > 0 {
		t.Error("a run runs before the former one is settled")
	}
	if live > 1 || unsettled > 1 || steps != s.StepCount {
		t.Errorf("got %d live runs, %d unsettled, %d steps of %d", live, unsettled, steps, s.StepCount)
	}
}

func TestWhateverIsSentASessionStaysSound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{store: memory.New()}
		if err := m.store.Announce(context.Background(), "e", []session.Agent{{Type: "a"}}, 1); err != nil {
			t.Fatal(err)
		}
		t.Repeat(map[string]func(*rapid.T){
			"start": m.start, "take": m.take, "plan": m.plan, "result": m.result, "commit": m.commit,
			"finish": m.finish, "settle": m.settle, "release": m.release, "": m.check,
		})
	})
}
