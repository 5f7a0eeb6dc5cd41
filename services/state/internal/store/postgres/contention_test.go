package postgres

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/e2e/pgtest"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

func TestALockHeldElsewhereFailsOnlyTheCommandsThatNeedIt(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	s := open(t, url)
	keys := keysOf("t", 21)
	for _, key := range keys {
		if err := s.Update(t.Context(), targets(session.Need{}, key), 1, func([]*session.View) ([]*session.Change, error) {
			return []*session.Change{created(key)}, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	// Another process is frozen in a transaction.
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
		shot, readErr := s.Parts().Session(t.Context(), keys[i])
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

func TestAFacetLeftByAnOlderReleaseFailsNoWrite(t *testing.T) {
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
	// The older release writes no facets, and so has left "paused".
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

func TestAHeartbeatOfManyRunsLosesOnlyRunsThatAreNotHeld(t *testing.T) {
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
	lost := store.LostClaims{ExecutorID: executor, HeldRunIDs: held, ClaimedBefore: w.now + 1}
	got, err := s.UpdateDue(t.Context(), lost, session.Need{}, 100, session.RequeueLost{ExecutorID: executor, HeldRunIDs: held, ClaimedBefore: w.now + 1, Now: w.now}.Decide)
	if err != nil || len(got) != 1 || got[0].View.Run.RunID != refs[0].RunID {
		t.Errorf("got %v, %v; want the one run that is not held", got, err)
	}
	// Each run is looked up among the held ones, not compared with each.
	rows, err := s.pool.Query(t.Context(), `EXPLAIN `+findLost.text, executor, int64(w.now+1), held, int64(100))
	if err != nil {
		t.Fatal(err)
	}
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if text := strings.Join(plan, "\n"); err != nil || !strings.Contains(text, "hashed SubPlan") {
		t.Errorf("got the plan\n%s, %v", text, err)
	}
}

func TestDelayedRunsDoNotSlowClaims(t *testing.T) {
	t.Parallel()
	s := openWithOneConnection(t)
	w := newWorker(t, s)
	refs := w.begin(keysOf("t", 3)...)
	const delayed = 2000
	for _, insert := range []string{
		// All are older than the claimable runs.
		`INSERT INTO runs (tenant, session_id, run_id, agent_type, turn, status, request_key, request_hash, message_id, step_count, output,
			failure, completion_reason, attempt, epoch, executor_id, claimed_at, finish_step, finish_version, traceparent, tracestate,
			created_at, started_at, completed_at, due_at)
			SELECT 't', 'delayed-' || i, 'r', 'support', 1, 'queued', '', '', '', 0, '', '', '', 1, 0, '', 0, 0, 0, '', '', i, 0, 0, 9000000000000
			FROM generate_series(1, $1::bigint) i`,
		// Three are claimable: the newest without a delay, and two delayed ones, the older of which is due later.
		`UPDATE runs SET status = 'queued', executor_id = '', created_at = 5000 + ascii(right(session_id, 1)),
			due_at = CASE right(session_id, 1) WHEN '0' THEN 20 WHEN '1' THEN 10 ELSE 0 END WHERE session_id LIKE 'session-%' AND $1::bigint > 0`,
	} {
		if _, err := s.pool.Exec(t.Context(), insert, delayed); err != nil {
			t.Fatal(err)
		}
	}
	const read = `SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes`
	before := statistic(t, s, read)
	got, err := s.UpdateDue(t.Context(), store.Queued{ExecutorID: executor, AgentTypes: []string{agent}, Now: w.now}, session.Need{}, 10,
		session.Claim{ExecutorID: executor, Now: w.now}.Decide)
	if n := statistic(t, s, read) - before; err != nil || len(got) != 3 || n > 200 {
		t.Fatalf("got %d runs, %v from %d index entries, want 3 from at most 200", len(got), err, n)
	}
	for i, d := range got {
		if d.View.Run.RunID != refs[i].RunID {
			t.Errorf("place %d: got %s, want %s", i, d.View.Run.RunID, refs[i].RunID)
		}
	}
}

func TestAFrozenReplicaReleasesItsLocks(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	frozen, other := openWithURL(t, url), open(t, url)
	key := session.Key{Tenant: "t", SessionID: "s"}
	update := func(s *Store, before func()) error {
		return s.Update(t.Context(), targets(session.Need{}, key), 1, func(views []*session.View) ([]*session.Change, error) {
			before()
			after := *views[0].Session
			after.Version++
			return []*session.Change{{Session: &after}}, nil
		})
	}
	if err := other.Update(t.Context(), targets(session.Need{}, key), 1, func([]*session.View) ([]*session.Change, error) {
		return []*session.Change{created(key)}, nil
	}); err != nil {
		t.Fatal(err)
	}
	entered, goOn, done := make(chan struct{}), make(chan struct{}), make(chan error)
	go func() {
		done <- update(frozen, func() { close(entered); <-goOn })
	}()
	<-entered
	err := update(other, func() {})
	close(goOn)
	if err != nil {
		t.Errorf("the other replica: got %v, want it written", err)
	}
	if err := <-done; fault.ReasonOf(err) != "STORE_UNAVAILABLE" {
		t.Errorf("the one that stood still: got %v, want STORE_UNAVAILABLE", err)
	}
	if n := ask[int](t, other, `SELECT version FROM sessions`); n != 2 {
		t.Errorf("got version %d, want 2", n)
	}
}

func TestAStatementThatTakesTooLongFailsAlone(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	keeper, s := open(t, url), open(t, pgtest.With(t, pgtest.With(t, url, "statement_timeout", "3000"), "lock_timeout", "0"))
	keys := keysOf("t", 6)
	for _, key := range keys {
		if err := keeper.Update(t.Context(), targets(session.Need{}, key), 1, func([]*session.View) ([]*session.Change, error) {
			return []*session.Change{created(key)}, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	held, err := keeper.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer held.Rollback(t.Context())
	if _, err := held.Exec(t.Context(), `SELECT 1 FROM sessions WHERE session_id = $1 FOR UPDATE`, keys[2].SessionID); err != nil {
		t.Fatal(err)
	}
	errs := gather(t, s, keys, func(_ int, v *session.View) (*session.Change, error) {
		after := *v.Session
		after.Version++
		return &session.Change{Session: &after}, nil
	})
	for i, err := range errs {
		if i == 2 && fault.ReasonOf(err) != "STORE_UNAVAILABLE" {
			t.Errorf("the one that is locked: got %v, want STORE_UNAVAILABLE", err)
		}
		if i != 2 && err != nil {
			t.Errorf("neighbour %d: got %v, want it written", i, err)
		}
	}
}

func TestAnUpdateOfAMissingRowIsAnError(t *testing.T) {
	t.Parallel()
	s := open(t, pgtest.URL(t))
	key, ghost := session.Key{Tenant: "t", SessionID: "s"}, created(session.Key{Tenant: "t", SessionID: "ghost"})
	ghost.Created = false
	for name, change := range map[string]func() (session.Key, *session.Change){
		"session": func() (session.Key, *session.Change) { return ghost.Session.Key, ghost },
		"run": func() (session.Key, *session.Change) {
			c := created(key)
			c.Runs = []session.Run{{RunID: "no", Turn: 1, Status: session.RunQueued}}
			return key, c
		},
		"call": func() (session.Key, *session.Change) {
			c := created(key)
			c.Calls = []session.Call{{CallID: "no", SessionID: "s", Kind: session.ClientTool}}
			return key, c
		},
		"copy": func() (session.Key, *session.Change) {
			c := created(key)
			c.Copy = &session.Copy{From: "ghost", Messages: 2}
			return key, c
		},
	} {
		key, c := change()
		err := s.Update(t.Context(), targets(session.Need{}, key), 1, func([]*session.View) ([]*session.Change, error) {
			return []*session.Change{c}, nil
		})
		if err == nil || fault.KindOf(err) != fault.Internal {
			t.Errorf("%s: got %v, want an error of ours", name, err)
		}
	}
	if n := ask[int](t, s, `SELECT count(*) FROM sessions`); n != 0 {
		t.Errorf("got %d sessions, want none", n)
	}
}

func TestARowThatCannotBeReadLeavesTheConnectionAsItWas(t *testing.T) {
	t.Parallel()
	s := openWithOneConnection(t)
	bad, behind := prepared(`SELECT 'not a number'::text`), prepared(`SELECT 1::bigint`)
	var n int64
	both := func(p *pipeline) {
		p.queue(bad, nil, scanInto(new(int64)))
		p.queue(behind, nil, scanInto(new(int64)))
	}
	for range 2 {
		if err := s.execute(t.Context(), both); err == nil {
			t.Error("the row was read")
		}
	}
	if err := s.query(t.Context(), behind, scanInto(&n)); err != nil || n != 1 {
		t.Errorf("got %d, %v; want 1 from the next query", n, err)
	}
}

func TestTheRarestFacetDrivesAList(t *testing.T) {
	t.Parallel()
	s := open(t, pgtest.URL(t))
	tag, user, organization := session.TagFacet("few"), session.UserFacet("many"), session.OrganizationFacet("as many")
	if _, err := s.pool.Exec(t.Context(), `INSERT INTO session_facets (tenant, facet, created_at, session_id)
		SELECT 't', f, i, 's' || i FROM generate_series(1, 3000) i, unnest($1::bytea[]) f WHERE i <= 500 OR f <> $2`,
		[][]byte{[]byte(organization), []byte(tag), []byte(user)}, []byte(tag)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		among []session.Facet
		want  int
	}{
		{[]session.Facet{organization, tag, user}, 1}, // by count
		{[]session.Facet{organization, user}, 1},      // by kind
		{[]session.Facet{organization}, 0},
	} {
		if got, err := s.rarest(t.Context(), "t", c.among, 0, 1<<60); err != nil || got != c.want {
			t.Errorf("among %q: got %d, %v; want %d", c.among, got, err, c.want)
		}
	}
}
