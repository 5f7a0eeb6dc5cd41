package session_test

import (
	"context"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/pkg/position"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// attempts are the attempts of one claim at one step.
type attempts struct {
	session.Key
	step, claims int32
}

// claimOften adds lost claims to the session.
func (m *machine) claimOften(t *rapid.T) {
	key, more := m.key(t), rapid.Int32Range(1, position.MaxClaims).Draw(t, "claims")
	_ = m.store.Update(context.Background(), []session.Target{{Key: key}}, 0, func(views []*session.View) ([]*session.Change, error) {
		if views[0].Session == nil {
			return []*session.Change{nil}, nil
		}
		s := *views[0].Session
		s.Claims += more
		return []*session.Change{{Session: &s}}, nil
	})
}

func (m *machine) forgetPositions(key session.Key) {
	maps.DeleteFunc(m.dealt, func(a attempts, _ int64) bool { return a.Key == key })
}

// skipped counts the steps with a skipped number, which no run counts.
func (m *machine) skipped(t *rapid.T, s *session.Session) (n int32) {
	runs, err := m.store.Runs(context.Background(), s.Key, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range runs {
		if r.FinishStep == 0 && r.EndPosition != 0 && r.EndPosition == position.Ended(position.Of(r.EndPosition).Step) {
			n++
		}
	}
	return n
}

// checkPositions checks the positions of a session.
func (m *machine) checkPositions(t *rapid.T, s *session.Session) {
	now := attempts{s.Key, s.StepCount + 1, s.Claims}
	if epoch, known := m.dealt[now]; known && epoch != s.Epoch {
		t.Errorf("the attempts %+v were dealt out to the epochs %d and %d", now, epoch, s.Epoch)
	}
	m.dealt[now] = s.Epoch
	if first, _ := position.Attempts(s.Claims + 1); first > 0 {
		if next := (position.Position{Step: s.StepCount + 1, Attempt: first}).Sequence(); s.Position >= next {
			t.Errorf("the session is at %+v, behind the next claim's %+v", position.Of(s.Position), position.Of(next))
		}
	}
	m.checkEnds(t, s)
	steps, _, err := m.store.Checkpoints(context.Background(), s.Key, 0, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	if len(steps) > 0 && s.Position < position.Committed(steps[0].Step) {
		t.Errorf("the session is at %+v, before the end of its step %d", position.Of(s.Position), steps[0].Step)
	}
}

// checkEnds checks that the runs end in order.
func (m *machine) checkEnds(t *rapid.T, s *session.Session) {
	runs, err := m.store.Runs(context.Background(), s.Key, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	var last int64
	for _, r := range slices.Backward(runs) {
		switch {
		case r.Status.Live() && r.EndPosition != 0:
			t.Errorf("run %s is %s and has the end %d", r.RunID, r.Status, r.EndPosition)
		case r.Status.Live():
		case r.EndPosition <= last || r.EndPosition <= r.StartPosition:
			t.Errorf("run %s from %+v to %+v ends before the former one, at %+v", r.RunID,
				position.Of(r.StartPosition), position.Of(r.EndPosition), position.Of(last))
		case r.FinishStep > 0 && r.EndPosition != position.Ended(r.FinishStep):
			t.Errorf("run %s ended with step %d at %+v", r.RunID, r.FinishStep, position.Of(r.EndPosition))
		default:
			last = r.EndPosition
		}
	}
}

func TestARunThatEndsOutsideAStepEndsBehindTheAttemptsOfItsClaim(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name               string
		claims             int32
		end                int64
		stepCount, counted int32
	}{
		{"after its own step", 0, position.OutsideStep(4, 0), 3, 1},
		{"after many claims", position.MaxClaims - 1, position.OutsideStep(4, position.MaxClaims-1), 3, position.MaxClaims},
		{"with the last claim", position.MaxClaims, position.Ended(4), 4, 0},
		{"after too many claims", position.MaxClaims + 7, position.Ended(4), 4, 0},
	} {
		v := &session.View{
			Session: &session.Session{Key: parent, Status: session.Active, Epoch: 3, StepCount: 3, Claims: c.claims, Position: position.Committed(3), CurrentRunID: "r"},
			Run:     &session.Run{RunID: "r", Status: session.RunRunning, Epoch: 3, StepCount: 1, StartPosition: position.Ended(2)},
		}
		finish := session.Finish{ClaimRef: session.ClaimRef{Key: parent, RunID: "r", Epoch: 3}, Outcome: session.Outcome{Status: session.RunFailed}}
		change, _, err := finish.Decide(v)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		s, r := change.Session, change.Runs[0]
		if s.Position != c.end || r.EndPosition != c.end || s.StepCount != c.stepCount || s.Claims != c.counted || r.StepCount != 1 {
			t.Errorf("%s: got %+v and the run's %+v, %d steps, %d claims; want %+v, %d steps, %d claims", c.name, position.Of(s.Position),
				position.Of(r.EndPosition), s.StepCount, s.Claims, position.Of(c.end), c.stepCount, c.counted)
		}
	}
}

func TestAWaitingRunThatIsStoppedMovesNoPosition(t *testing.T) {
	t.Parallel()
	at := position.Committed(3)
	v := &session.View{
		Session: &session.Session{Key: parent, Status: session.Active, StepCount: 3, Claims: 2, Waiting: 1, Position: at, CurrentRunID: "r"},
		Live:    &session.Run{RunID: "r", Status: session.RunRunning},
		Run:     &session.Run{RunID: "w", Status: session.RunWaiting},
	}
	change, _, err := session.RequestStop{Key: parent, RunID: "w", Kind: session.StopInterrupt}.Decide(v)
	if err != nil {
		t.Fatal(err)
	}
	if s, r := change.Session, change.Runs[0]; s.Position != at || s.Claims != 2 || r.StartPosition != at || r.EndPosition != at {
		t.Errorf("got the session at %d with %d claims and the run from %d to %d, want all at %d and 2 claims", s.Position, s.Claims, r.StartPosition, r.EndPosition, at)
	}
}
