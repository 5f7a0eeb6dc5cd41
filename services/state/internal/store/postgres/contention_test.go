package postgres

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/e2e/pgtest"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

func TestALockThatIsHeldElsewhereFailsOnlyWhoWantsIt(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s := open(t, url)
	keys := keysOf("t", 12)
	for _, key := range keys {
		if err := s.Update(t.Context(), targets(session.Need{}, key), 1, func([]*session.View) ([]*session.Change, error) {
			return []*session.Change{created(key)}, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	// Another process that stands still in the middle of a transaction.
	frozen, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer frozen.Close(t.Context())
	if _, err := frozen.Exec(t.Context(), `BEGIN`); err != nil {
		t.Fatal(err)
	}
	if _, err := frozen.Exec(t.Context(), `SELECT 1 FROM sessions WHERE tenant = $1 AND session_id = $2 FOR UPDATE`, keys[0].Tenant, keys[0].SessionID); err != nil {
		t.Fatal(err)
	}
	errs := gather(t, s, keys, func(_ int, v *session.View) (*session.Change, error) {
		after := *v.Session
		after.Version++
		return &session.Change{Session: &after}, nil
	})
	for i, err := range errs {
		shot, readErr := s.Session(t.Context(), keys[i])
		if readErr != nil {
			t.Fatal(readErr)
		}
		if i == 0 {
			if fault.ReasonOf(err) != "STORE_UNAVAILABLE" || shot.Session.Version != 1 {
				t.Errorf("the one that is locked: got %v and version %d, want STORE_UNAVAILABLE and 1", err, shot.Session.Version)
			}
		} else if err != nil || shot.Session.Version != 2 {
			t.Errorf("neighbour %d: got %v and version %d, want it written", i, err, shot.Session.Version)
		}
	}
}

func TestAFacetThatAFormerReleaseLeftBehindStopsNobody(t *testing.T) {
	t.Parallel()
	s := open(t, pgtest.URL(t))
	key := session.Key{Tenant: "t", SessionID: "s"}
	write := func(change func(v *session.View) *session.Change) error {
		return s.Update(t.Context(), targets(session.Need{}, key), 1, func(views []*session.View) ([]*session.Change, error) {
			return []*session.Change{change(views[0])}, nil
		})
	}
	if err := write(func(*session.View) *session.Change { return created(key) }); err != nil {
		t.Fatal(err)
	}
	// The former release keeps no facets: it left "paused" where it was.
	if _, err := s.pool.Exec(t.Context(), `UPDATE sessions SET status = 'completed'`); err != nil {
		t.Fatal(err)
	}
	err := write(func(v *session.View) *session.Change {
		after := *v.Session
		after.Version++
		after.Status = session.Paused
		return &session.Change{Session: &after}
	})
	if err != nil {
		t.Errorf("got %v, want the facet that is there to be no hindrance", err)
	}
}

func TestAHeartbeatOfManyRunsLosesOnlyWhatIsNotHeld(t *testing.T) {
	t.Parallel()
	s := open(t, pgtest.URL(t))
	w := newWorker(t, s)
	refs := w.begin(keysOf("t", 20)...)
	var held []string
	for _, ref := range refs[1:] {
		held = append(held, ref.RunID)
	}
	for i := range 20_000 {
		held = append(held, fmt.Sprint("elsewhere-", i))
	}
	lost := store.Lost{ExecutorID: executor, Held: held, ClaimedBefore: w.now + 1}
	got, err := s.UpdateDue(t.Context(), lost, session.Need{}, 100, session.RequeueLost{ExecutorID: executor, Held: held, ClaimedBefore: w.now + 1, Now: w.now}.Decide)
	if err != nil || len(got) != 1 || got[0].View.Run.RunID != refs[0].RunID {
		t.Errorf("got %v, %v; want the one run that is not held", got, err)
	}
}
