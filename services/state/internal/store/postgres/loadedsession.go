package postgres

import (
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// loadedSession is a session of a command with its loaded rows.
type loadedSession struct {
	session.Target
	view                  *session.View
	state, checkpoint     stateRows
	start, back, lastStep stateRows
	failed                session.FailedStep

	hot       *hotSession     // made the view without a read; nil when the session is read
	unchanged bool            // the row is still the one of hot
	change    *session.Change // decided by the command; nil for none
}

// loadHot makes the view from the cached session. It reports false when the
// session has to be read.
func (s *loadedSession) loadHot(hot *hotSession) (ok bool) {
	if hot == nil {
		return false
	}
	if s.view, ok = hot.hot.View(s.Need); ok {
		s.hot = hot
	}
	return ok
}

// discardHot drops the view. The session is then read.
func (s *loadedSession) discardHot() { *s = loadedSession{Target: s.Target, view: &session.View{}} }

// stateRows are the rows of a custom state: the last complete text, and the writes
// after it.
type stateRows struct {
	base   string
	writes []string
}

// stateRow is a row of states.
type stateRow struct {
	isBase bool
	text   string
}

func (r *stateRow) destinations(to []any) []any { return append(to, &r.isBase, &r.text) }

func (s *stateRows) add(r *stateRow) {
	if r.isBase {
		s.base, s.writes = r.text, nil
	} else {
		s.writes = append(s.writes, r.text)
	}
}

func (s *stateRows) scan(row pgx.CollectableRow) error {
	var r stateRow
	err := row.Scan(r.destinations(nil)...)
	s.add(&r)
	return err
}

func (s *stateRows) fold() (string, error) {
	if len(s.writes) == 0 {
		return s.base, nil
	}
	return session.FoldState(s.base, s.writes)
}

// complete fills in the parts of the view without rows.
func (s *loadedSession) complete() error {
	v := s.view
	if v.Session == nil {
		// There was no row to lock, and later queries may have found a session
		// created meanwhile. A command to create it violates the primary key, and
		// is then retried on the whole session.
		*v = session.View{Agent: v.Agent, ExecutorRegistered: v.ExecutorRegistered}
		return nil
	}
	if v.Checkpoint != nil && s.Need.CheckpointStep != 0 && s.Need.CheckpointID == "" && v.Checkpoint.Step != v.Session.StepCount {
		v.Checkpoint = nil // of an earlier step
	}
	if s.Need.FailedStep && v.Session.CurrentRunID != "" {
		v.Failed = &s.failed
	}
	if s.Need.AnswerID != "" && v.Answer == nil {
		v.Answer = &session.AnswerRun{}
	}
	if s.Need.AskedFrom > 0 && v.Asked == nil {
		v.Asked = []session.Asked{}
	}
	if s.Need.OwnAgent && v.OwnAgent == nil {
		v.OwnAgent = &session.Agent{}
	}
	if err := s.fold(); err != nil {
		return fmt.Errorf("custom state of session %q: %w", s.SessionID, err)
	}
	return nil
}

// fold makes the custom states of the view from their rows.
func (s *loadedSession) fold() (err error) {
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
	if v.RewindPoint != nil {
		if v.RewindPoint.State, err = s.back.fold(); err != nil {
			return err
		}
	}
	if v.Failed != nil {
		v.Failed.State, err = s.lastStep.fold()
	}
	return err
}

// backOf returns View.RewindPoint. It is nil when the session had no row to lock and was
// created before the later queries. complete drops such a view.
func (s *loadedSession) backOf() *session.RewindPoint {
	if s.view.RewindPoint == nil {
		return &session.RewindPoint{}
	}
	return s.view.RewindPoint
}
