package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
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

func (s *states) scan(r *row) {
	if whole, text := r.truth(), r.text(); whole {
		s.whole, s.writes = text, nil
	} else {
		s.writes = append(s.writes, text)
	}
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
	id  int64   // of the transaction, as an int4; 0 while no row was locked
}

// wanted is what several views want of one kind.
type wanted struct {
	rows
	by []*shown
}

// add begins a row with the key of the session.
func (w *wanted) add(s *shown) *rows {
	w.by = append(w.by, s)
	return w.next().key(s.Key)
}

// read queues a query for those of the views that want its rows.
func (r *reader) read(query *statement, want func(*wanted, *shown), scan func(*shown, *row)) {
	w := &wanted{}
	for i := range r.all {
		if r.all[i].hot == nil {
			want(w, &r.all[i])
		}
	}
	if len(w.by) == 0 {
		return
	}
	r.each(query, &w.rows, func(row *row) { scan(w.by[row.number()-1], row) })
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
			w.add(s).text(id)
		}
	}
}

// each is the want of a query that is given several names.
func each(names func(*session.Need) []string) func(*wanted, *shown) {
	return func(w *wanted, s *shown) {
		for _, id := range names(&s.Need) {
			w.add(s).text(id)
		}
	}
}

// views locks the sessions and fills their views, in one round trip with what
// was queued before.
func (r *reader) views(ctx context.Context, conn *pgconn.PgConn) error {
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
		w.next().key(s.Key)
	}
	r.each(lockSessions, &w.rows, func(row *row) {
		s := w.by[row.number()-1]
		written, locked := row.number(), row.number()
		r.id = row.number()
		if s.hot != nil {
			s.holds = written == s.hot.written && (locked == 0 || locked == written)
			return
		}
		s.view.Session = &session.Session{Key: s.Key}
		row.session(s.view.Session)
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
	r.queue(readAgents, [][]byte{texts(types)}, func(row *row) {
		known := row.text()
		for i := range r.all {
			if r.all[i].Need.AgentType == known {
				r.all[i].view.AgentKnown = true
			}
		}
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
	r.queue(readExecutors, [][]byte{texts(ids)}, func(row *row) {
		known := row.text()
		for i := range r.all {
			if r.all[i].Need.Executor == known {
				r.all[i].view.ExecutorLives = true
			}
		}
	})
}

func (r *reader) runs() {
	r.read(readRuns, named(func(n *session.Need) string { return n.RunID }), func(s *shown, row *row) { s.view.Run = row.run() })
	r.read(readKeyed, named(func(n *session.Need) string { return n.RequestKey }), func(s *shown, row *row) { s.view.Keyed = row.run() })
	r.read(readCurrent, when(func(n *session.Need) bool { return n.Current }), func(s *shown, row *row) { s.view.Current = row.run() })
	r.read(readLive, when(func(n *session.Need) bool { return n.Open }), func(s *shown, row *row) { s.view.Live = row.run() })
}

// silent fills View.HolderSilent of runs that are due.
func (r *reader) silent() {
	r.read(readSilent, named(func(n *session.Need) string { return n.RunID }), func(s *shown, _ *row) { s.view.HolderSilent = true })
}

func (r *reader) states() {
	r.read(readStates, func(w *wanted, s *shown) {
		if s.Need.State || s.Need.Written {
			w.add(s).truth(s.Need.State)
		}
	}, func(s *shown, row *row) { s.state.scan(row) })

	checkpoint := func(w *wanted, s *shown) {
		if id := s.Need.CheckpointID; id != "" {
			first, last := session.CheckpointSteps(id)
			w.add(s).text(id).number(int64(first), int64(last))
		}
	}
	r.read(readCheckpoints, checkpoint, func(s *shown, row *row) { s.view.Checkpoint = row.checkpoint() })
	r.read(readCheckpointStates, checkpoint, func(s *shown, row *row) { s.checkpoint.scan(row) })
	r.read(readWithin, func(w *wanted, s *shown) {
		if s.Need.CheckpointBelow > 0 {
			w.add(s).number(s.Need.CheckpointBelow)
		}
	}, func(s *shown, row *row) { s.view.Checkpoint = row.checkpoint() })
	r.read(readSteps, func(w *wanted, s *shown) {
		if s.Need.CheckpointAt != 0 && s.Need.CheckpointID == "" {
			w.add(s).number(int64(s.Need.CheckpointAt))
		}
	}, func(s *shown, row *row) { s.view.Checkpoint = row.checkpoint() })
}

func (r *reader) journals() {
	journal := when(func(n *session.Need) bool { return n.Journal })
	r.read(readPlans, journal, func(s *shown, row *row) { s.view.Journal = row.plan() })
	r.read(readResults, journal, func(s *shown, row *row) {
		if j := s.view.Journal; j != nil {
			j.Results = append(j.Results, row.result())
		}
	})
}

func (r *reader) messages() {
	r.read(readTaken, each(func(n *session.Need) []string { return n.MessageIDs }), func(s *shown, row *row) {
		s.view.Taken, s.view.TakenAt = append(s.view.Taken, row.text()), append(s.view.TakenAt, row.number())
	})
	r.read(readTails, func(w *wanted, s *shown) {
		if t := s.Need.Tail; t.Messages > 0 {
			w.add(s).number(int64(t.Messages), int64(t.Bytes))
		}
	}, func(s *shown, row *row) { s.view.Tail = append(s.view.Tail, row.message()) })
}

func (r *reader) calls() {
	r.read(readCalls, when(func(n *session.Need) bool { return n.Calls }), func(s *shown, row *row) {
		s.view.Calls = append(s.view.Calls, row.call())
	})
	r.read(readNamed, each(func(n *session.Need) []string { return n.CallIDs }), func(s *shown, row *row) {
		s.view.Named = append(s.view.Named, row.call())
	})
	r.read(readChildren, when(func(n *session.Need) bool { return n.Children }), func(s *shown, row *row) {
		s.view.Children = append(s.view.Children, row.child())
	})
}

func (r *reader) waiting() {
	waiting := when(func(n *session.Need) bool { return n.Waiting })
	r.read(readWaiting, waiting, func(s *shown, row *row) {
		var one session.Waiting
		row.json(store.In(&one.MessageIDs))
		one.Run = *row.run()
		s.view.Waiting = append(s.view.Waiting, one)
	})
	r.read(readHeld, waiting, func(s *shown, row *row) {
		s.view.Held = &session.Held{}
		row.json(store.In(s.view.Held))
	})
	r.read(readBusy, when(func(n *session.Need) bool { return n.Busy }), func(s *shown, row *row) { s.view.OnBusy = session.BusyPolicy(row.text()) })
}

func (r *reader) undo() {
	undo := when(func(n *session.Need) bool { return n.Undo })
	r.read(readKept, undo, func(s *shown, row *row) { s.view.Kept = append(s.view.Kept, row.message()) })
	r.read(readTold, undo, func(s *shown, row *row) { s.view.Told = append(s.view.Told, row.call()) })
	r.read(readFormer, undo, func(s *shown, row *row) { s.view.Former = row.checkpoint() })
	r.read(readStartStates, undo, func(s *shown, row *row) { s.start.scan(row) })
}

func (r *reader) back() {
	to := named(func(n *session.Need) string { return n.BackTo })
	r.read(readBack, to, func(s *shown, row *row) {
		s.view.Back = &session.Back{Before: int32(row.number()), Message: row.message()}
	})
	more := func(query *statement, scan func(*session.Back, *row)) {
		r.read(query, to, func(s *shown, row *row) {
			if b := s.view.Back; b != nil {
				scan(b, row)
			}
		})
	}
	more(readBackRun, func(b *session.Back, row *row) { b.Run = row.run() })
	more(readBackCheckpoint, func(b *session.Back, row *row) { b.Checkpoint = row.checkpoint() })
	more(readBackResults, func(b *session.Back, row *row) { b.Results = append(b.Results, row.message()) })
	more(readBackTold, func(b *session.Back, row *row) { b.Told = append(b.Told, row.call()) })
	r.read(readBackStates, to, func(s *shown, row *row) { s.back.scan(row) })
}

func (r *reader) answer() {
	answer := named(func(n *session.Need) string { return n.Answer })
	r.read(readAnswer, answer, func(s *shown, row *row) {
		s.view.Answer = &session.AnswerRun{Stands: row.truth(), Run: row.run()}
	})
	r.read(readAsked, answer, func(s *shown, row *row) {
		if a := s.view.Answer; a != nil {
			a.Asked = append(a.Asked, row.message())
		}
	})
}

func (r *reader) retry() {
	retry := when(func(n *session.Need) bool { return n.Retry })
	r.read(readGood, retry, func(s *shown, row *row) { s.failed.Good = row.checkpoint() })
	r.read(readGoodStates, retry, func(s *shown, row *row) { s.good.scan(row) })
	r.read(readLastStep, retry, func(s *shown, row *row) { s.failed.Messages = append(s.failed.Messages, row.message()) })
}
