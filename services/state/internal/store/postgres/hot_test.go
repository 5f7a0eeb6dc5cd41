package postgres

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/e2e/pgtest"
	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/storetest"
)

// replicas are stores on one database that run commands in turn. After each command they
// compare their caches with the database.
type replicas struct {
	*Store
	others []*Store
	turn   atomic.Int64
	checks *atomic.Int64 // how often a cached session was compared
	testing.TB
	mu   sync.Mutex
	last map[session.Key]rowState
}

// rowState is a checksum of the rows of a session, and the xmin of its own row.
type rowState struct{ sum, written string }

func (r *replicas) next() *Store {
	n := int(r.turn.Add(1)) * 7 / 3 // in no simple pattern
	return append([]*Store{r.Store}, r.others...)[n%(len(r.others)+1)]
}

func (r *replicas) Update(ctx context.Context, targets []session.Target, bytes int, decide store.Decide) error {
	err := r.next().Update(ctx, targets, bytes, decide)
	for _, t := range targets {
		r.check(ctx, t.Key)
	}
	return err
}

func (r *replicas) UpdateDue(ctx context.Context, due store.Due, need session.Need, limit int, decide store.DecideDue) ([]store.Decided, error) {
	done, err := r.next().UpdateDue(ctx, due, need, limit, decide)
	for _, d := range done {
		r.check(ctx, d.View.Session.Key)
	}
	return done, err
}

// check fails the test when rows of the session have changed without a write of its own
// row, or when a cache that is not stale has other rows.
func (r *replicas) check(ctx context.Context, key session.Key) {
	var tables []string
	for _, table := range []string{"states", "runs", "messages", "plans", "results", "checkpoints", "usage_entries", "calls", "sub_sessions", "held_runs"} {
		tables = append(tables, fmt.Sprintf(`(SELECT coalesce(sum(hashtextextended(x::text, 0)), 0)::text FROM %s x WHERE x.tenant = s.tenant AND x.session_id = s.session_id)`, table))
	}
	var now rowState
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.pool.QueryRow(ctx, `SELECT s::text || `+strings.Join(tables, ` || ' ' || `)+`, s.xmin::text FROM sessions s WHERE tenant = $1 AND session_id = $2`,
		key.Tenant, key.SessionID).Scan(&now.sum, &now.written)
	if err == nil {
		if was := r.last[key]; was.written == now.written && was.sum != now.sum {
			r.Errorf("%v: rows have changed, and the session's row was not written\n was %s\n  is %s", key, was.sum, now.sum)
		}
		r.last[key] = now
	}
	for _, s := range append([]*Store{r.Store}, r.others...) {
		r.compare(ctx, s, key)
	}
}

func (r *replicas) compare(ctx context.Context, s *Store, key session.Key) {
	known := s.hot.get(key)
	if known == nil {
		return
	}
	full := session.Need{Journal: true, State: true}
	hot, stated := known.hot.View(full)
	if !stated {
		full.State = false
		hot, _ = known.hot.View(full)
	}
	_, called := known.hot.View(session.Need{Calls: true})
	need := session.Need{Journal: true, State: stated, Calls: called, RunID: hot.Session.CurrentRunID}
	one := reader{composer: &s.composer, sessions: []loadedSession{{Target: session.Target{Key: key, Need: need}, view: &session.View{}}}}
	var written, locked uint32
	err := s.withConn(ctx, func(conn *pgx.Conn) error {
		one.exec(prepared(`BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY`))
		one.queue(prepared(`SELECT s.xmin, s.xmax, `+sessionColumns.Select("s")+` FROM sessions s WHERE s.tenant = $1::text AND s.session_id = $2::text`), arguments(key), func(row pgx.CollectableRow) error {
			one.sessions[0].view.Session = &session.Session{Key: key}
			return row.Scan(sessionColumns.Destinations([]any{&written, &locked}, one.sessions[0].view.Session)...)
		})
		one.runs()
		one.states()
		one.journals()
		one.calls()
		one.queueLookups()
		one.exec(commit)
		if err := one.run(ctx, conn); err != nil {
			return err
		}
		return one.sessions[0].complete()
	})
	if err != nil || written != known.written || locked != 0 && locked != written {
		return // stale, and detected as such by the condition
	}
	want := one.sessions[0].view
	withRun, ok := known.hot.View(session.Need{Journal: true, State: stated, Calls: called, RunID: want.Session.CurrentRunID})
	if !ok {
		r.Errorf("%v: the current run is not the one that is known", key)
		return
	}
	r.checks.Add(1)
	for what, pair := range map[string][2]any{
		"session": {withRun.Session, want.Session}, "run": {withRun.Run, want.Run}, "journal": {withRun.Journal, want.Journal},
		"list of calls": {append([]session.Call{}, withRun.Calls...), append([]session.Call{}, want.Calls...)},
	} {
		if got, want := storetest.Normalize(pair[0]), storetest.Normalize(pair[1]); !reflect.DeepEqual(got, want) {
			r.Errorf("%v: the %s that is known\n got %+v\nwant %+v", key, what, got, want)
		}
	}
}

func TestReplicasWithCachedSessionsAgreeWithTheModel(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2} {
		t.Run(fmt.Sprintf("%d of them", n), func(t *testing.T) {
			t.Parallel()
			var known atomic.Int64
			storetest.RunModel(t, func(t testing.TB) store.Store {
				url := pgtest.URL(t)
				r := &replicas{Store: open(t, url), checks: &known, TB: t, last: map[session.Key]rowState{}}
				for range n - 1 {
					r.others = append(r.others, open(t, url))
				}
				parts := r.Parts()
				parts.Updater = r
				return parts
			})
			if known.Load() == 0 {
				t.Error("no session was ever known")
			}
		})
	}
}

// sentBy returns what the connections of a store send while f runs.
func sentBy(t testing.TB, s *Store, do func()) (all traffic) {
	t.Helper()
	count := func(sign int) {
		for _, conn := range s.pool.AcquireAllIdle(t.Context()) {
			sent := stateOf(conn.Conn().PgConn()).sent
			all.trips += sign * sent.trips
			all.statements += sign * sent.statements
			conn.Release()
		}
	}
	count(-1)
	do()
	count(1)
	return all
}

func TestAStepOfAClaimedRunTakesOneRoundTripForEachWrite(t *testing.T) {
	t.Parallel()
	s := open(t, pgtest.URL(t))
	w := newWorker(t, s)
	ref := w.begin(keysOf("t", 1)...)[0]
	if got := sentBy(t, s, func() { w.must(w.step(t.Context(), ref, 1, false)) }); got != (traffic{1, 1}) {
		t.Errorf("got %+v for a step without records, want 1 statement", got)
	}
	if got := sentBy(t, s, func() { w.must(w.step(t.Context(), ref, 2, true)) }); got != (traffic{3, 3}) {
		t.Errorf("got %+v for a step with a plan and a result, want 3 statements", got)
	}
	c := w.stepOf(ref, 2)
	if got := sentBy(t, s, func() { w.must(w.commit(t.Context(), c)) }); got != (traffic{4, 2}) {
		t.Errorf("got %+v for a step that is there already, want it to be locked and read between BEGIN and ROLLBACK", got)
	}
}

func TestAResultWithWritesToTheStoreTakesTwoRoundTripsAndItsCommitOne(t *testing.T) {
	t.Parallel()
	s := open(t, pgtest.URL(t))
	w := newWorker(t, s)
	ref := w.begin(keysOf("t", 1)...)[0]
	for step := int32(1); step <= 2; step++ {
		plan := session.RecordPlan{ClaimRef: ref, Step: step, Body: []byte("plan"), CallIDs: []string{"c"}, Limits: storeLimits}
		w.must(w.run(t.Context(), plan.Key, plan.Need(), plan.Decide))
		result := session.RecordResult{ClaimRef: ref, Step: step, Result: session.Result{CallID: "c", Body: []byte("r")}, Limits: storeLimits}
		result.Store = []session.StoreWrite{
			{Op: session.StorePut, Key: "a", Value: "1"}, {Op: session.StoreAdd, Key: "n", Delta: 1}, {Op: session.StoreDelete, Key: "a/1"},
		}
		record := func() {
			w.must(w.run(t.Context(), result.Key, result.Need(), func(v *session.View) (*session.Change, error) {
				change, _, err := result.Decide(v)
				return change, err
			}))
		}
		if got := sentBy(t, s, record); got != (traffic{5, 2}) {
			t.Errorf("got %+v for a result, want the lock and one query between BEGIN and COMMIT with one statement", got)
		}
		if got := sentBy(t, s, func() { w.must(w.commit(t.Context(), w.stepOf(ref, step))) }); got != (traffic{1, 1}) {
			t.Errorf("got %+v for the commit, want 1 statement", got)
		}
	}
	read := func() {
		page, _, err := s.Parts().StoreEntries(t.Context(), ref.Key, store.StoreQuery{Limit: 9, MaxBytes: 99})
		if w.must(err); len(page) != 2 || page[1].Value != "2" {
			t.Errorf("got %+v", page)
		}
	}
	if got := sentBy(t, s, read); got != (traffic{1, 1}) {
		t.Errorf("got %+v for a page, want 1 statement", got)
	}
}

var storeLimits = session.Limits{State: 1000, Journal: 10_000, Store: 1000, StoreStep: 1000}

// suspends returns a step that opens a call and suspends the session.
func (w *worker) suspends(ref session.ClaimRef, step int32, call string) session.Commit {
	c := w.stepOf(ref, step)
	c.Calls = []session.Call{{CallID: call, ToolName: "ask", Kind: session.ClientTool, Input: "{}"}}
	c.Outcome = &session.Outcome{Status: session.RunSuspendedClientTool}
	return c
}

// answer answers a call of a session.
func (w *worker) answer(key session.Key, call string) {
	w.Helper()
	c := session.Submit{Key: key, CallID: call, Kind: session.ClientTool, Response: []byte("yes"), NewRunID: "continues", Now: w.now}
	w.must(w.run(w.Context(), key, c.Need(), func(v *session.View) (*session.Change, error) {
		change, _, err := c.Decide(v)
		return change, err
	}))
}

func TestAStepThatOpensOrConsumesACallTakesOneStatement(t *testing.T) {
	t.Parallel()
	s := open(t, pgtest.URL(t))
	w := newWorker(t, s)
	ref := w.begin(keysOf("t", 1)...)[0]
	c := w.suspends(ref, 1, "c")
	if got := sentBy(t, s, func() { w.must(w.commit(t.Context(), c)) }); got != (traffic{1, 1}) {
		t.Errorf("got %+v for a step that suspends the session, want 1 statement", got)
	}
	w.answer(ref.Key, "c")
	next := w.claims(1)[0]
	c = w.stepOf(next, 2)
	c.Consume = []session.Consume{{CallID: "c", Revision: 1}}
	if got := sentBy(t, s, func() { w.must(w.commit(t.Context(), c)) }); got != (traffic{1, 1}) {
		t.Errorf("got %+v for a step that consumes the answer, want 1 statement", got)
	}
}

// A late answer replaces a timeout through another replica, after this one has claimed the run and so knows the timeout.
func TestAnAnswerThroughAnotherReplicaIsNotConsumedUnread(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	w, other := newWorker(t, open(t, url)), newWorker(t, open(t, url))
	ref := w.begin(keysOf("t", 1)...)[0]
	c := w.suspends(ref, 1, "c")
	c.Calls[0].DeadlineAt = w.now + 1
	w.must(w.commit(t.Context(), c))
	timeout := session.TimeoutCalls{Key: ref.Key, NewRunID: "continues", Now: w.now + 2, Response: func(session.Call) []byte { return []byte("timeout") }}
	w.must(w.run(t.Context(), ref.Key, timeout.Need(), func(v *session.View) (*session.Change, error) {
		change, _, err := timeout.Decide(v)
		return change, err
	}))
	next := w.claims(1)[0]
	other.answer(ref.Key, "c")
	c = w.stepOf(next, 2)
	c.Consume = []session.Consume{{CallID: "c", Revision: 1}}
	if err := w.commit(t.Context(), c); fault.ReasonOf(err) != "ANSWER_CHANGED" {
		t.Errorf("got %v, want the timeout refused", err)
	}
	c.Consume[0].Revision = 2
	w.must(w.commit(t.Context(), c))
}

// stop requests a stop of a run.
func (w *worker) stop(ctx context.Context, ref session.ClaimRef) error {
	c := session.RequestStop{Key: ref.Key, RunID: ref.RunID, Kind: session.StopInterrupt, Reason: "enough", Now: w.now}
	return w.run(ctx, c.Key, c.Need(), func(v *session.View) (*session.Change, error) {
		change, _, err := c.Decide(v)
		return change, err
	})
}

func TestAStopThroughAnotherReplicaReachesTheNextStep(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	w, other := newWorker(t, open(t, url)), newWorker(t, open(t, url))
	ref := w.begin(keysOf("t", 1)...)[0]
	w.must(w.step(t.Context(), ref, 1, false))
	w.must(other.stop(t.Context(), ref))
	var seen *session.Stop
	c := w.stepOf(ref, 2)
	w.must(w.run(t.Context(), c.Key, c.Need(), func(v *session.View) (*session.Change, error) {
		change, _, err := c.Decide(v)
		seen = v.Run.Stop
		return change, err
	}))
	if seen == nil || seen.Reason != "enough" {
		t.Errorf("the step was written with the stop %+v", seen)
	}
	run, err := w.store.Parts().Run(t.Context(), ref.Key, ref.RunID)
	if err != nil || run.Stop == nil || run.StepCount != 2 {
		t.Errorf("got %+v, %v", run, err)
	}
}

// A release from before the cache only locks the session's row when it writes other rows.
func TestWritesOfAnOlderReleaseMakeTheCacheStale(t *testing.T) {
	t.Parallel()
	for more, name := range []string{"in a batch of sessions that are known", "in one with a new session"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, pgtest.URL(t))
			w := newWorker(t, s)
			ref := w.begin(keysOf("t", 1)...)[0]
			w.must(w.step(t.Context(), ref, 1, false))
			tx, err := s.pool.Begin(t.Context())
			w.must(err)
			for _, older := range []string{
				`SELECT FROM sessions WHERE tenant = $1 AND session_id = $2 FOR UPDATE`,
				`INSERT INTO plans (tenant, session_id, step, body, call_ids, usage, ops) VALUES ($1, $2, 2, 'plan', '["c"]', '', '')`,
			} {
				_, err = tx.Exec(t.Context(), older, ref.Tenant, ref.SessionID)
				w.must(err)
			}
			w.must(tx.Commit(t.Context()))
			var journal *session.Journal
			errs := w.together([]session.Commit{w.stepOf(ref, 2)}, more, func(_ int, v *session.View) { journal = v.Journal })
			if rows := rowsOf(t, s, ref.Key); errs[0] != nil || journal == nil || rows["plans"] != 0 {
				t.Errorf("the step was written with the journal %+v, %v, and left %v", journal, errs[0], rows)
			}
		})
	}
}

// together commits a step in each session, and creates more sessions, in one batch. It
// returns the errors of the commits.
func (w *worker) together(commands []session.Commit, more int, seen func(i int, v *session.View)) []error {
	keys := keysOf("new", more)
	for i := range commands {
		keys = append(keys, commands[i].Key)
	}
	need := func(i int) session.Need {
		if i < more {
			return session.Need{}
		}
		return commands[i-more].Need()
	}
	errs := gatherAs(w.TB.(*testing.T), w.store, keys, need, func(i int, v *session.View) (*session.Change, error) {
		if i < more {
			return created(keys[i]), nil
		}
		seen(i-more, v)
		change, _, err := commands[i-more].Decide(v)
		return change, err
	})
	for i, err := range errs[:more] {
		if err != nil {
			w.Errorf("new session %d: %v", i, err)
		}
	}
	return errs[more:]
}

func TestAnExistingMessageIsRefusedAndTheOtherCommandsAreWritten(t *testing.T) {
	t.Parallel()
	w := newWorker(t, open(t, pgtest.URL(t)))
	var commands []session.Commit
	for _, ref := range w.begin(keysOf("t", 8)...) {
		w.must(w.step(t.Context(), ref, 1, false))
		commands = append(commands, w.stepOf(ref, 2))
	}
	commands[3].Messages[0].ID = w.stepOf(commands[3].ClaimRef, 1).Messages[0].ID
	for i, err := range w.together(commands, 0, func(int, *session.View) {}) {
		if refused := i == 3; refused != (fault.ReasonOf(err) == "MESSAGE_EXISTS") || !refused && err != nil {
			t.Errorf("command %d: got %v", i, err)
		}
	}
}

func TestStaleSessionsOfABatchAreReadAndDecidedAgain(t *testing.T) {
	t.Parallel()
	for more, name := range []string{"all are known", "one is new"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := pgtest.URL(t)
			w, other := newWorker(t, open(t, url)), newWorker(t, open(t, url))
			var commands []session.Commit
			for _, ref := range w.begin(keysOf("t", 8)...) {
				w.must(w.step(t.Context(), ref, 1, false))
				commands = append(commands, w.stepOf(ref, 2))
			}
			w.must(other.stop(t.Context(), commands[3].ClaimRef))
			plan := session.RecordPlan{ClaimRef: commands[4].ClaimRef, Step: 2, Body: []byte("plan"), CallIDs: []string{"c"}}
			w.must(other.run(t.Context(), plan.Key, plan.Need(), plan.Decide))
			w.must(other.run(t.Context(), commands[5].Key, session.Need{}, func(*session.View) (*session.Change, error) { return &session.Change{Delete: true}, nil }))
			var mu sync.Mutex
			stops, journals := map[int]bool{}, map[int]bool{}
			errs := w.together(commands, more, func(i int, v *session.View) {
				mu.Lock()
				defer mu.Unlock()
				stops[i], journals[i] = v.Run != nil && v.Run.Stop != nil, v.Journal != nil
			})
			for i, err := range errs {
				if gone := i == 5; gone != (fault.ReasonOf(err) == "SESSION_NOT_FOUND") || !gone && err != nil {
					t.Errorf("command %d: got %v", i, err)
				}
				if stops[i] != (i == 3) || journals[i] != (i == 4) {
					t.Errorf("command %d is written with a stop: %t, with a journal: %t", i, stops[i], journals[i])
				}
			}
			run, err := w.store.Parts().Run(t.Context(), commands[3].Key, commands[3].RunID)
			if err != nil || run.Stop == nil || run.StepCount != 2 {
				t.Errorf("got %+v, %v", run, err)
			}
			if rows := rowsOf(t, w.store, commands[4].Key); rows["plans"] != 0 {
				t.Errorf("got %v, want no plan", rows)
			}
		})
	}
}

func TestASessionCreatedAgainIsNotTheCachedOne(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	w, other := newWorker(t, open(t, url)), newWorker(t, open(t, url))
	key := keysOf("t", 1)[0]
	ref := w.begin(key)[0]
	w.must(w.step(t.Context(), ref, 1, false))
	w.must(other.run(t.Context(), key, session.Need{}, func(*session.View) (*session.Change, error) { return &session.Change{Delete: true}, nil }))
	if err := w.commit(t.Context(), w.stepOf(ref, 2)); fault.ReasonOf(err) != "SESSION_NOT_FOUND" {
		t.Errorf("got %v, want SESSION_NOT_FOUND", err)
	}
	again := other.begin(key)[0] // with the same run, version and epoch as before
	w.must(other.step(t.Context(), again, 1, false))
	if err := w.commit(t.Context(), w.stepOf(ref, 2)); err != nil {
		t.Errorf("got %v from the step of the new session", err)
	}
	if s, err := w.store.Parts().Session(t.Context(), key); err != nil || s.Session.StepCount != 2 || s.Session.MessageCount != 5 {
		t.Errorf("got %+v, %v", s, err)
	}
}

func TestARepeatedStepAfterALostAnswerIsAnsweredFromTheDatabase(t *testing.T) {
	t.Parallel()
	s := open(t, pgtest.URL(t))
	w := newWorker(t, s)
	ref := w.begin(keysOf("t", 1)...)[0]
	w.must(w.step(t.Context(), ref, 1, false))
	c := w.stepOf(ref, 2)
	var once sync.Once
	err := w.run(t.Context(), c.Key, c.Need(), func(v *session.View) (*session.Change, error) {
		once.Do(func() { cutConnections(t, s) })
		change, _, err := c.Decide(v)
		return change, err
	})
	if fault.ReasonOf(err) != "STORE_UNAVAILABLE" {
		t.Fatalf("got %v, want STORE_UNAVAILABLE", err)
	}
	if s.hot.get(ref.Key) != nil {
		t.Error("a session is known of which nobody knows what was written")
	}
	deadline := time.Now().Add(10 * time.Second)
	for err != nil && time.Now().Before(deadline) { // all connections were cut
		err = w.commit(t.Context(), c)
	}
	if got, failed := s.Parts().Session(t.Context(), ref.Key); err != nil || failed != nil || got.Session.StepCount != 2 {
		t.Errorf("got %+v, %v, %v", got, err, failed)
	}
}

func TestTheHotCacheIsBounded(t *testing.T) {
	t.Parallel()
	v := &session.View{Session: &session.Session{Status: session.Active, CurrentRunID: "r"}, Run: &session.Run{RunID: "r", Status: session.RunRunning}}
	of := func(bytes int) *session.CachedSession {
		return session.CacheSession(session.Need{Journal: true}, v, &session.Change{Plan: &session.Journal{Plan: make([]byte, bytes)}})
	}
	empty := of(0).Size()
	key := func(i int) session.Key { return session.Key{Tenant: "t", SessionID: fmt.Sprint(i)} }

	h := newHotCache()
	h.put(key(1), of(maxHotSize-empty), 1)
	h.put(key(2), of(maxHotSize-empty+1), 1)
	if h.get(key(1)) == nil || h.get(key(2)) != nil {
		t.Errorf("of a session at the limit %v is kept, and %v of one above it", h.get(key(1)), h.get(key(2)))
	}
	h.put(key(1), of(maxHotSize-empty+1), 2)
	if h.get(key(1)) != nil || h.bytes != 0 {
		t.Errorf("a session that has grown above the limit is kept as it was, and %d bytes are counted", h.bytes)
	}

	for i := range maxHotSessions {
		h.put(key(i), of(0), 1)
	}
	if h.lru.Len() != maxHotSessions || h.bytes > maxHotBytes {
		t.Fatalf("got %d sessions of %d bytes", h.lru.Len(), h.bytes)
	}
	h.get(key(0))
	h.put(key(maxHotSessions), of(0), 1)
	if h.get(key(0)) == nil || h.get(key(1)) != nil || h.lru.Len() != maxHotSessions {
		t.Errorf("the session that was used last has to stay, and the other one to go; %d are kept", h.lru.Len())
	}

	h = newHotCache()
	for i := range maxHotBytes/maxHotSize + 1 {
		h.put(key(i), of(maxHotSize-empty), 1)
	}
	if h.bytes != maxHotBytes || h.get(key(0)) != nil || h.lru.Len() != maxHotBytes/maxHotSize {
		t.Errorf("got %d sessions of %d bytes", h.lru.Len(), h.bytes)
	}
}
