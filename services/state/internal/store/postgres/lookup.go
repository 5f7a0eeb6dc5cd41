package postgres

import (
	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// lookup is the input of one query for several sessions.
type lookup struct {
	rows
	sessions []*loadedSession
}

// add begins the input of a session with its key.
func (w *lookup) add(s *loadedSession) *rows {
	w.sessions = append(w.sessions, s)
	return w.addKey(&s.Key)
}

// read queues a query for the sessions added by want. It scans each row into a new T,
// and calls take with the session and the T.
func read[T any](r *reader, query *statement, want func(*lookup, *loadedSession), destinations func([]any, *T) []any, take func(*loadedSession, *T)) {
	w := &lookup{}
	for i := range r.sessions {
		if r.sessions[i].hot == nil {
			want(w, &r.sessions[i])
		}
	}
	if len(w.sessions) == 0 {
		return
	}
	r.each(query, &w.rows, func(row pgx.CollectableRow) error {
		var n int64
		item := new(T)
		if err := row.Scan(destinations([]any{&n}, item)...); err != nil {
			return err
		}
		take(w.sessions[n-1], item)
		return nil
	})
}

func (r *reader) readRun(query *statement, want func(*lookup, *loadedSession), take func(*loadedSession, *session.Run)) {
	read(r, query, want, runColumns.Destinations, func(s *loadedSession, run *session.Run) {
		fillOutcome(run)
		take(s, run)
	})
}

func (r *reader) readMessages(query *statement, want func(*lookup, *loadedSession), take func(*loadedSession, *session.Message)) {
	read(r, query, want, messageRead.Destinations, take)
}

func (r *reader) readCheckpoint(query *statement, want func(*lookup, *loadedSession), take func(*loadedSession, *session.Checkpoint)) {
	read(r, query, want, checkpointRead.Destinations, take)
}

func (r *reader) readCalls(query *statement, want func(*lookup, *loadedSession), take func(*loadedSession, *session.Call)) {
	read(r, query, want, callColumns.Destinations, take)
}

func (r *reader) readStates(query *statement, want func(*lookup, *loadedSession), of func(*loadedSession) *stateRows) {
	read(r, query, want, func(to []any, row *stateRow) []any { return row.destinations(to) }, func(s *loadedSession, row *stateRow) { of(s).add(row) })
}

// fillOutcome sets the outcome's status. The row stores it once, as the run's.
func fillOutcome(r *session.Run) {
	if r.Status.Over() {
		r.Outcome.Status = r.Status
	}
}

// ifNeeded adds the sessions with a need, for a query by key.
func ifNeeded(needed func(*session.Need) bool) func(*lookup, *loadedSession) {
	return func(w *lookup, s *loadedSession) {
		if needed(&s.Need) {
			w.add(s)
		}
	}
}

// byName adds the sessions with a needed name, for a query by key and name.
func byName(name func(*session.Need) string) func(*lookup, *loadedSession) {
	return func(w *lookup, s *loadedSession) {
		if id := name(&s.Need); id != "" {
			w.add(s).more(id)
		}
	}
}

// byNames is byName for several names of a session.
func byNames(names func(*session.Need) []string) func(*lookup, *loadedSession) {
	return func(w *lookup, s *loadedSession) {
		for _, id := range names(&s.Need) {
			w.add(s).more(id)
		}
	}
}
