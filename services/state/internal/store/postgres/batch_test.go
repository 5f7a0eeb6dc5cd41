package postgres

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast/e2e/pgtest"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

func TestASessionGoesThroughItsSteps(t *testing.T) {
	t.Parallel()
	s := open(t, pgtest.URL(t))
	w := newWorker(t, s)
	refs := w.begin(keysOf("t", 3)...)
	for _, ref := range refs {
		for step := range int32(3) {
			w.must(w.commit(t.Context(), w.stepOf(ref, step+1)))
		}
		shot, err := s.Parts().Session(t.Context(), ref.Key)
		w.must(err)
		if shot.Session.StepCount != 3 || shot.Session.MessageCount != 7 || shot.Session.State != `{"seen":[]}` || shot.Current == nil || shot.Current.StepCount != 3 {
			t.Errorf("got %+v\n%+v", shot.Session, shot.Current)
		}
	}
}

// gather sends commands with a session each, which form one batch: they wait in the queue
// while all lanes are blocked.
func gather(t *testing.T, s *Store, keys []session.Key, decide func(i int, v *session.View) (*session.Change, error)) []error {
	t.Helper()
	return gatherAs(t, s, keys, func(int) session.Need { return session.Need{} }, decide)
}

func gatherAs(t *testing.T, s *Store, keys []session.Key, need func(i int) session.Need, decide func(i int, v *session.View) (*session.Change, error)) []error {
	t.Helper()
	release, held := make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	for i := range commits.Lanes {
		all.Go(func() {
			holder := session.Key{Tenant: "holder", SessionID: fmt.Sprint(i)}
			var once sync.Once
			err := s.Update(t.Context(), targets(session.Need{}, holder), 1, func([]*session.View) ([]*session.Change, error) {
				once.Do(func() { held <- struct{}{} })
				<-release
				return nil, nil
			})
			if err != nil && fault.ReasonOf(err) != "STORE_UNAVAILABLE" { // when the test cuts the connection
				t.Error(err)
			}
		})
		<-held
	}
	errs := make([]error, len(keys))
	var waiting sync.WaitGroup
	for i, key := range keys {
		waiting.Add(1)
		all.Go(func() {
			waiting.Done()
			errs[i] = s.Update(t.Context(), targets(need(i), key), 1, func(views []*session.View) ([]*session.Change, error) {
				change, err := decide(i, views[0])
				return []*session.Change{change}, err
			})
		})
	}
	waiting.Wait()
	close(release)
	all.Wait()
	return errs
}

func TestCommandsThatWaitAreOneTransaction(t *testing.T) {
	t.Parallel()
	s := open(t, pgtest.URL(t))
	keys := keysOf("t", 100)
	for _, err := range gather(t, s, keys, func(i int, _ *session.View) (*session.Change, error) { return created(keys[i]), nil }) {
		if err != nil {
			t.Error(err)
		}
	}
	// A few may have been outside of the large batch.
	if n := ask[int](t, s, `SELECT count(DISTINCT xmin::text) FROM sessions WHERE tenant = 't'`); n > 20 {
		t.Errorf("100 commands that waited together were %d transactions", n)
	}
	if n := ask[int](t, s, `SELECT count(*) FROM sessions WHERE tenant = 't'`); n != 100 {
		t.Errorf("got %d sessions, want 100", n)
	}
}

func TestOneGuiltyCommandDoesNotFailItsNeighbours(t *testing.T) {
	t.Parallel()
	s := open(t, pgtest.URL(t))
	keys := keysOf("t", 40)
	refusal := errors.New("no")
	errs := gather(t, s, keys, func(i int, _ *session.View) (*session.Change, error) {
		c := created(keys[i])
		switch i {
		case 7: // is no text for the database
			c.Session.Title = "\x00"
		case 13: // conflicts on every try
			c.Messages = []session.Message{{ID: "twice"}, {ID: "twice", Ordinal: 1}}
		case 20:
			return nil, refusal
		case 30:
			panic("a bug")
		case 33:
			return nil, nil
		}
		return c, nil
	})
	for i, err := range errs {
		switch i {
		case 7, 13, 30:
			if err == nil || fault.KindOf(err) != fault.Internal {
				t.Errorf("command %d: got %v (%v), want an error of ours", i, err, fault.KindOf(err))
			}
		case 20:
			if err != refusal {
				t.Errorf("command 20: got %v, want the refusal as it is", err)
			}
		default:
			if err != nil {
				t.Errorf("command %d: got %v, want no error", i, err)
			}
		}
		_, err := s.Parts().Session(t.Context(), keys[i])
		if written := err == nil; written != (errs[i] == nil && i != 33) {
			t.Errorf("command %d: got %v from a read after %v", i, err, errs[i])
		}
	}
	if n := s.pool.Stat().TotalConns(); n > int32(connections) {
		t.Errorf("got %d connections", n)
	}
}

func TestACutMidBatchFailsTheBatchAndNothingOfItIsWritten(t *testing.T) {
	t.Parallel()
	s := open(t, pgtest.URL(t))
	keys := keysOf("t", 30)
	var once sync.Once
	errs := gather(t, s, keys, func(i int, _ *session.View) (*session.Change, error) {
		if i == 15 {
			once.Do(func() { cutConnections(t, s) })
		}
		return created(keys[i]), nil
	})
	for i, err := range errs {
		if err != nil && fault.ReasonOf(err) != "STORE_UNAVAILABLE" {
			t.Errorf("command %d: got %v, want STORE_UNAVAILABLE", i, err)
		}
		read := readAfterCut(t, s, keys[i])
		if (err == nil) != (read == nil) {
			t.Errorf("command %d: got %v, and then %v from a read", i, err, read)
		}
	}
	if errs[15] == nil {
		t.Error("the command whose connection was cut was written")
	}
}

func TestTwoReplicasThatCreateOneSessionAgreeOnOne(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	first, second := open(t, url), open(t, url)
	key := session.Key{Tenant: "t", SessionID: "s"}
	entered, goOn := make(chan struct{}), make(chan struct{})
	var seen []bool
	done := make(chan error)
	go func() {
		done <- first.Update(t.Context(), targets(session.Need{}, key), 1, func(views []*session.View) ([]*session.Change, error) {
			seen = append(seen, views[0].Session != nil)
			if len(seen) == 1 {
				close(entered)
				<-goOn
			}
			if views[0].Session != nil {
				return nil, nil
			}
			return []*session.Change{created(key)}, nil
		})
	}()
	<-entered
	err := second.Update(t.Context(), targets(session.Need{}, key), 1, func([]*session.View) ([]*session.Change, error) {
		return []*session.Change{created(key)}, nil
	})
	close(goOn)
	if err := errors.Join(err, <-done); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 2 || seen[0] || !seen[1] {
		t.Errorf("got %v, want no session at first and then the other's", seen)
	}
}

func TestACommandWritesSeveralSessionsOrNone(t *testing.T) {
	t.Parallel()
	s := open(t, pgtest.URL(t))
	keys := keysOf("t", 3)
	write := func(last *session.Change) error {
		return s.Update(t.Context(), targets(session.Need{}, keys...), 1, func([]*session.View) ([]*session.Change, error) {
			return []*session.Change{created(keys[0]), nil, last}, nil
		})
	}
	bad := created(keys[2])
	bad.Session.Title = "\x00" // is no text for the database
	if err := write(bad); err == nil {
		t.Error("a bad change was written")
	}
	if n := ask[int](t, s, `SELECT count(*) FROM sessions`); n != 0 {
		t.Errorf("got %d sessions after an error, want none", n)
	}
	if err := write(created(keys[2])); err != nil {
		t.Error(err)
	}
	if n := ask[int](t, s, `SELECT count(*) FROM sessions`); n != 2 {
		t.Errorf("got %d sessions, want 2", n)
	}
}

func TestIDsOfAnyScriptAreKept(t *testing.T) {
	t.Parallel()
	s := open(t, pgtest.URL(t))
	for _, id := range []string{"ένα", "{a,b}", `"quoted"`, `back\slash`, "a b", "%", "NULL", "null", "a'b", "日本", "a.*>/"} {
		key := session.Key{Tenant: id, SessionID: id}
		if err := s.Update(t.Context(), targets(session.Need{}, key), 1, func([]*session.View) ([]*session.Change, error) {
			return []*session.Change{created(key)}, nil
		}); err != nil {
			t.Fatal(err)
		}
		if shot, err := s.Parts().Session(t.Context(), key); err != nil || shot.Session.Key != key || shot.Session.RootID != id {
			t.Errorf("%q: got %+v, %v", id, shot, err)
		}
	}
}
