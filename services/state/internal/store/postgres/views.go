package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store/table"
)

// shown is a session that a command locks, and what it is shown of it.
type shown struct {
	session.Target
	view              *session.View
	state, checkpoint states
	start, back, good states
	failed            session.FailedStep

	hot    *hotSession     // by which the view was made without a read; nil where the session is read
	holds  bool            // the row is the one of hot
	change *session.Change // what the command has decided; nil for nothing
}

// useHot makes the view of what is known of the session. It reports false when the session
// has to be read.
func (s *shown) useHot(hot *hotSession) (ok bool) {
	if hot == nil {
		return false
	}
	if s.view, ok = hot.hot.View(s.Need); ok {
		s.hot = hot
	}
	return ok
}

// reread drops the view, so that the session is read.
func (s *shown) reread() { *s = shown{Target: s.Target, view: &session.View{}} }

// states are the rows of a custom state: the last whole one, and the writes to
// it.
type states struct {
	whole  string
	writes []string
}

// stateRow is a row of states.
type stateRow struct {
	whole bool
	text  string
}

func (r *stateRow) destinations(to []any) []any { return append(to, &r.whole, &r.text) }

func (s *states) add(r *stateRow) {
	if r.whole {
		s.whole, s.writes = r.text, nil
	} else {
		s.writes = append(s.writes, r.text)
	}
}

func (s *states) scan(row pgx.CollectableRow) error {
	var r stateRow
	err := row.Scan(r.destinations(nil)...)
	s.add(&r)
	return err
}

func (s *states) fold() (string, error) {
	if len(s.writes) == 0 {
		return s.whole, nil
	}
	return session.Fold(s.whole, s.writes)
}

// reader queues the queries that fill views. The server runs them one after
// the other, so those behind the lock see what its former holder has written.
type reader struct {
	pipeline
	all []shown // complete before the first query
	id  uint32  // of the transaction; 0 while no row was locked
}

// wanted is what several views want of one kind.
type wanted struct {
	rows
	by []*shown
}

// add begins a row with the key of the session.
func (w *wanted) add(s *shown) *rows {
	w.by = append(w.by, s)
	return w.addKey(&s.Key)
}

// read queues a query for those of the views that want its rows. Each row is
// scanned into a new T, and then given to the view.
func read[T any](r *reader, query *statement, want func(*wanted, *shown), destinations func([]any, *T) []any, take func(*shown, *T)) {
	w := &wanted{}
	for i := range r.all {
		if r.all[i].hot == nil {
			want(w, &r.all[i])
		}
	}
	if len(w.by) == 0 {
		return
	}
	r.each(query, &w.rows, func(row pgx.CollectableRow) error {
		var n int64
		item := new(T)
		if err := row.Scan(destinations([]any{&n}, item)...); err != nil {
			return err
		}
		take(w.by[n-1], item)
		return nil
	})
}

// runs, messages, checkpoints and calls are read for queries of such rows.
func (r *reader) readRun(query *statement, want func(*wanted, *shown), take func(*shown, *session.Run)) {
	read(r, query, want, runColumns.Destinations, func(s *shown, run *session.Run) {
		ended(run)
		take(s, run)
	})
}

func (r *reader) readMessages(query *statement, want func(*wanted, *shown), take func(*shown, *session.Message)) {
	read(r, query, want, messageRead.Destinations, take)
}

func (r *reader) readCheckpoint(query *statement, want func(*wanted, *shown), take func(*shown, *session.Checkpoint)) {
	read(r, query, want, checkpointRead.Destinations, take)
}

func (r *reader) readCalls(query *statement, want func(*wanted, *shown), take func(*shown, *session.Call)) {
	read(r, query, want, callColumns.Destinations, take)
}

func (r *reader) readStates(query *statement, want func(*wanted, *shown), of func(*shown) *states) {
	read(r, query, want, func(to []any, row *stateRow) []any { return row.destinations(to) }, func(s *shown, row *stateRow) { of(s).add(row) })
}

// ended fills in what the row of a run stores once.
func ended(r *session.Run) {
	if r.Status.Over() {
		r.Outcome.Status = r.Status
	}
}

// when is the want of a query that is given no more than keys.
func when(needed func(*session.Need) bool) func(*wanted, *shown) {
	return func(w *wanted, s *shown) {
		if needed(&s.Need) {
			w.add(s)
		}
	}
}

// named is the want of a query that is given a name too.
func named(name func(*session.Need) string) func(*wanted, *shown) {
	return func(w *wanted, s *shown) {
		if id := name(&s.Need); id != "" {
			w.add(s).more(id)
		}
	}
}

// each is the want of a query that is given several names.
func each(names func(*session.Need) []string) func(*wanted, *shown) {
	return func(w *wanted, s *shown) {
		for _, id := range names(&s.Need) {
			w.add(s).more(id)
		}
	}
}

// views locks the sessions and fills their views, in one round trip with what
// was queued before.
func (r *reader) views(ctx context.Context, conn *pgx.Conn) error {
	r.sessions()
	r.agents()
	r.executors()
	r.runs()
	r.states()
	r.journals()
	r.messages()
	r.calls()
	r.waiting()
	r.undo()
	r.back()
	r.answer()
	r.retry()
	if err := r.run(ctx, conn); err != nil {
		return err
	}
	for i := range r.all {
		s := &r.all[i]
		if s.hot != nil {
			if !s.holds {
				return errOutdated
			}
			continue
		}
		if err := s.finish(); err != nil {
			return err
		}
	}
	return nil
}

// finish makes the view whole.
func (s *shown) finish() error {
	v := s.view
	if v.Session == nil {
		// There was no row to lock, and the queries behind it may have met a
		// session that was created meanwhile. Shown none, a command that creates
		// it runs into its key and is shown everything.
		*v = session.View{AgentKnown: v.AgentKnown, ExecutorLives: v.ExecutorLives}
		return nil
	}
	if v.Checkpoint != nil && s.Need.CheckpointAt != 0 && s.Need.CheckpointID == "" && v.Checkpoint.Step != v.Session.StepCount {
		v.Checkpoint = nil // of an earlier step
	}
	if s.Need.Retry && v.Session.CurrentRunID != "" {
		v.Failed = &s.failed
	}
	if s.Need.Answer != "" && v.Answer == nil {
		v.Answer = &session.AnswerRun{}
	}
	if s.Need.Busy {
		v.OnBusy = cmp.Or(v.OnBusy, session.BusyReject)
	}
	if err := s.fold(); err != nil {
		return fmt.Errorf("custom state of session %q: %w", s.SessionID, err)
	}
	return nil
}

// fold makes the custom states of the view of the rows that were read.
func (s *shown) fold() (err error) {
	v := s.view
	if v.Session.State, err = s.state.fold(); err != nil {
		return err
	}
	if v.CheckpointState, err = s.checkpoint.fold(); err != nil {
		return err
	}
	if v.StartState, err = s.start.fold(); err != nil {
		return err
	}
	if v.Back != nil {
		if v.Back.State, err = s.back.fold(); err != nil {
			return err
		}
	}
	if v.Failed != nil {
		v.Failed.State, err = s.good.fold()
	}
	return err
}

// sessions locks the sessions in the order of their keys, since others may lock
// some of them too.
func (r *reader) sessions() {
	w := &wanted{}
	for i := range r.all {
		w.by = append(w.by, &r.all[i])
	}
	slices.SortFunc(w.by, func(a, b *shown) int { return compare(a.Key, b.Key) })
	for _, s := range w.by {
		w.addKey(&s.Key)
	}
	r.each(lockSessions, &w.rows, func(row pgx.CollectableRow) error {
		var n int64
		var written, locked uint32
		to := make([]any, 4+len(sessionColumns)) // nil is not read
		to[0], to[1], to[2], to[3] = &n, &written, &locked, &r.id
		if err := row.Scan(to...); err != nil {
			return err
		}
		s := w.by[n-1]
		if s.hot != nil {
			s.holds = written == s.hot.written && (locked == 0 || locked == written)
			return nil
		}
		s.view.Session = &session.Session{Key: s.Key}
		return row.Scan(sessionColumns.Destinations(make([]any, 4), s.view.Session)...)
	})
}

func compare(a, b session.Key) int {
	return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.SessionID, b.SessionID))
}

// agents asks for all agents at once: they belong to no session.
func (r *reader) agents() {
	var types []string
	for i := range r.all {
		if agent := r.all[i].Need.AgentType; agent != "" {
			types = append(types, agent)
		}
	}
	if len(types) == 0 {
		return
	}
	r.queue(readAgents, []any{types}, func(row pgx.CollectableRow) error {
		var known string
		err := row.Scan(&known)
		for i := range r.all {
			if r.all[i].Need.AgentType == known {
				r.all[i].view.AgentKnown = true
			}
		}
		return err
	})
}

// executors asks for all executors at once, as agents does.
func (r *reader) executors() {
	var ids []string
	for i := range r.all {
		if id := r.all[i].Need.Executor; id != "" {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return
	}
	r.queue(readExecutors, []any{ids}, func(row pgx.CollectableRow) error {
		var known string
		err := row.Scan(&known)
		for i := range r.all {
			if r.all[i].Need.Executor == known {
				r.all[i].view.ExecutorLives = true
			}
		}
		return err
	})
}

func (r *reader) runs() {
	r.readRun(readRuns, named(func(n *session.Need) string { return n.RunID }), func(s *shown, run *session.Run) { s.view.Run = run })
	r.readRun(readKeyed, named(func(n *session.Need) string { return n.RequestKey }), func(s *shown, run *session.Run) { s.view.Keyed = run })
	r.readRun(readCurrent, when(func(n *session.Need) bool { return n.Current }), func(s *shown, run *session.Run) { s.view.Current = run })
	r.readRun(readLive, when(func(n *session.Need) bool { return n.Open }), func(s *shown, run *session.Run) { s.view.Live = run })
}

// silent fills View.HolderSilent of runs that are due.
func (r *reader) silent() {
	read(r, readSilent, named(func(n *session.Need) string { return n.RunID }), pointer[string], func(s *shown, _ *string) { s.view.HolderSilent = true })
}

// pointer is the destination of a single column.
func pointer[T any](to []any, value *T) []any { return append(to, value) }

func (r *reader) states() {
	r.readStates(readStates, func(w *wanted, s *shown) {
		if s.Need.State || s.Need.Written {
			w.add(s).more(s.Need.State)
		}
	}, func(s *shown) *states { return &s.state })

	checkpoint := func(w *wanted, s *shown) {
		if id := s.Need.CheckpointID; id != "" {
			first, last := session.CheckpointSteps(id)
			w.add(s).more(id, int64(first), int64(last))
		}
	}
	take := func(s *shown, c *session.Checkpoint) { s.view.Checkpoint = c }
	r.readCheckpoint(readCheckpoints, checkpoint, take)
	r.readStates(readCheckpointStates, checkpoint, func(s *shown) *states { return &s.checkpoint })
	r.readCheckpoint(readWithin, func(w *wanted, s *shown) {
		if s.Need.CheckpointBelow > 0 {
			w.add(s).more(s.Need.CheckpointBelow)
		}
	}, take)
	r.readCheckpoint(readSteps, func(w *wanted, s *shown) {
		if s.Need.CheckpointAt != 0 && s.Need.CheckpointID == "" {
			w.add(s).more(int64(s.Need.CheckpointAt))
		}
	}, take)
}

func (r *reader) journals() {
	journal := when(func(n *session.Need) bool { return n.Journal })
	read(r, readPlans, journal, planColumns.Destinations, func(s *shown, j *session.Journal) { s.view.Journal = j })
	read(r, readResults, journal, resultRead.Destinations, func(s *shown, result *table.Result) {
		if j := s.view.Journal; j != nil {
			j.Results = append(j.Results, result.Result)
		}
	})
}

// taken is a message that the conversation has already.
type taken struct {
	id      string
	ordinal int64
}

func (r *reader) messages() {
	read(r, readTaken, each(func(n *session.Need) []string { return n.MessageIDs }), func(to []any, m *taken) []any {
		return append(to, &m.id, &m.ordinal)
	}, func(s *shown, m *taken) {
		s.view.Taken, s.view.TakenAt = append(s.view.Taken, m.id), append(s.view.TakenAt, m.ordinal)
	})
	r.readMessages(readTails, func(w *wanted, s *shown) {
		if t := s.Need.Tail; t.Messages > 0 {
			w.add(s).more(int64(t.Messages), int64(t.Bytes))
		}
	}, func(s *shown, m *session.Message) { s.view.Tail = append(s.view.Tail, *m) })
}

func (r *reader) calls() {
	r.readCalls(readCalls, when(func(n *session.Need) bool { return n.Calls }), func(s *shown, c *session.Call) {
		s.view.Calls = append(s.view.Calls, *c)
	})
	r.readCalls(readNamed, each(func(n *session.Need) []string { return n.CallIDs }), func(s *shown, c *session.Call) {
		s.view.Named = append(s.view.Named, *c)
	})
	read(r, readChildren, when(func(n *session.Need) bool { return n.Children }), childColumns.Destinations, func(s *shown, c *session.Child) {
		s.view.Children = append(s.view.Children, *c)
	})
}

func (r *reader) waiting() {
	waiting := when(func(n *session.Need) bool { return n.Waiting })
	read(r, readWaiting, waiting, func(to []any, w *session.Waiting) []any {
		return runColumns.Destinations(append(to, table.AsJSON(&w.MessageIDs)), &w.Run)
	}, func(s *shown, w *session.Waiting) { s.view.Waiting = append(s.view.Waiting, *w) })
	read(r, readHeld, waiting, func(to []any, h *session.Held) []any { return append(to, table.AsJSON(h)) }, func(s *shown, h *session.Held) { s.view.Held = h })
	read(r, readBusy, when(func(n *session.Need) bool { return n.Busy }), pointer[string], func(s *shown, policy *string) {
		s.view.OnBusy = session.BusyPolicy(*policy)
	})
}

func (r *reader) undo() {
	undo := when(func(n *session.Need) bool { return n.Undo })
	r.readMessages(readKept, undo, func(s *shown, m *session.Message) { s.view.Kept = append(s.view.Kept, *m) })
	r.readCalls(readTold, undo, func(s *shown, c *session.Call) { s.view.Told = append(s.view.Told, *c) })
	r.readCheckpoint(readFormer, undo, func(s *shown, c *session.Checkpoint) { s.view.Former = c })
	r.readStates(readStartStates, undo, func(s *shown) *states { return &s.start })
}

// backOf returns View.Back. It is nil while the session has no row and so no
// lock; queries may then find what the first one did not. finish drops such a view.
func (s *shown) backOf() *session.Back {
	if s.view.Back == nil {
		return &session.Back{}
	}
	return s.view.Back
}

func (r *reader) back() {
	to := named(func(n *session.Need) string { return n.BackTo })
	read(r, readBack, to, func(to []any, b *session.Back) []any {
		return messageRead.Destinations(append(to, &b.Before), &b.Message)
	}, func(s *shown, b *session.Back) { s.view.Back = b })
	r.readRun(readBackRun, to, func(s *shown, run *session.Run) { s.backOf().Run = run })
	r.readCheckpoint(readBackCheckpoint, to, func(s *shown, c *session.Checkpoint) { s.backOf().Checkpoint = c })
	r.readMessages(readBackResults, to, func(s *shown, m *session.Message) { b := s.backOf(); b.Results = append(b.Results, *m) })
	r.readCalls(readBackTold, to, func(s *shown, c *session.Call) { b := s.backOf(); b.Told = append(b.Told, *c) })
	r.readStates(readBackStates, to, func(s *shown) *states { return &s.back })
}

func (r *reader) answer() {
	answer := named(func(n *session.Need) string { return n.Answer })
	read(r, readAnswer, answer, func(to []any, a *session.AnswerRun) []any {
		a.Run = &session.Run{}
		return runColumns.Destinations(append(to, &a.Stands), a.Run)
	}, func(s *shown, a *session.AnswerRun) {
		ended(a.Run)
		s.view.Answer = a
	})
	r.readMessages(readAsked, answer, func(s *shown, m *session.Message) {
		if a := s.view.Answer; a != nil {
			a.Asked = append(a.Asked, *m)
		}
	})
}

func (r *reader) retry() {
	retry := when(func(n *session.Need) bool { return n.Retry })
	r.readCheckpoint(readGood, retry, func(s *shown, c *session.Checkpoint) { s.failed.Good = c })
	r.readStates(readGoodStates, retry, func(s *shown) *states { return &s.good })
	r.readMessages(readLastStep, retry, func(s *shown, m *session.Message) { s.failed.Messages = append(s.failed.Messages, *m) })
}
