package postgres

import (
	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// lookup is one query for several sessions, with its input.
type lookup struct {
	rows
	sessions []*loadedSession
	query    *statement
	scan     func(pgx.CollectableRow) error
}

// add begins the input of a session with its key.
func (l *lookup) add(s *loadedSession) *rows {
	l.sessions = append(l.sessions, s)
	return l.addKey(&s.Key)
}

// selector adds the input of a session to the lookup, if the session needs the query.
type selector func(*lookup, *loadedSession)

// read adds a query for the selected sessions. It scans each row into a new T,
// and calls take with its session.
func read[T any](r *reader, query *statement, sel selector, destinations func([]any, *T) []any, take func(*loadedSession, *T)) {
	l := &lookup{query: query}
	for i := range r.sessions {
		if r.sessions[i].hot == nil {
			sel(l, &r.sessions[i])
		}
	}
	if len(l.sessions) == 0 {
		return
	}
	l.scan = func(row pgx.CollectableRow) error {
		var n int64
		item := new(T)
		if err := row.Scan(destinations([]any{&n}, item)...); err != nil {
			return err
		}
		take(l.sessions[n-1], item)
		return nil
	}
	r.lookups = append(r.lookups, l)
}

// queueLookups queues the queries. Those of a single session are one statement. Those of several sessions have too many
// combinations for that, and share their costs anyway.
func (r *reader) queueLookups() {
	defer func() { r.lookups = nil }()
	if len(r.sessions) == 1 && len(r.lookups) > 1 {
		if s := r.composer.union(r.lookups); s != nil {
			var args []any
			scans := make([]func(pgx.CollectableRow) error, len(r.lookups))
			for i, l := range r.lookups {
				args = r.appendArguments(args, &l.rows, l.count == 1)
				scans[i] = l.scan
			}
			r.queue(s, args, scanParts(scans...))
			return
		}
	}
	for _, l := range r.lookups {
		r.each(l.query, &l.rows, l.scan)
	}
}

func (r *reader) readRun(query *statement, sel selector, take func(*loadedSession, *session.Run)) {
	read(r, query, sel, runColumns.Destinations, func(s *loadedSession, run *session.Run) {
		fillOutcome(run)
		take(s, run)
	})
}

func (r *reader) readMessages(query *statement, sel selector, take func(*loadedSession, *session.Message)) {
	read(r, query, sel, messageRead.Destinations, take)
}

func (r *reader) readCheckpoint(query *statement, sel selector, take func(*loadedSession, *session.Checkpoint)) {
	read(r, query, sel, checkpointRead.Destinations, take)
}

func (r *reader) readCalls(query *statement, sel selector, take func(*loadedSession, *session.Call)) {
	read(r, query, sel, callColumns.Destinations, take)
}

func (r *reader) readStates(query *statement, sel selector, of func(*loadedSession) *stateRows) {
	read(
		r,
		query,
		sel,
		func(to []any, row *stateRow) []any { return row.destinations(to) },
		func(s *loadedSession, row *stateRow) { of(s).add(row) },
	)
}

// byFirst is byName for the first session with each name in a scope.
func byFirst(name func(*loadedSession) (scope, id string)) selector {
	seen := map[[2]string]bool{}
	return func(l *lookup, s *loadedSession) {
		scope, id := name(s)
		if key := [2]string{scope, id}; id != "" && !seen[key] {
			seen[key] = true
			l.add(s).more(id)
		}
	}
}

// fillOutcome sets the outcome's status. The row stores it once, as the run's.
func fillOutcome(r *session.Run) {
	if r.Status.Ended() {
		r.Outcome.Status = r.Status
	}
}

// ifNeeded adds the sessions with a need, for a query by key.
func ifNeeded(needed func(*session.Need) bool) selector {
	return func(l *lookup, s *loadedSession) {
		if needed(&s.Need) {
			l.add(s)
		}
	}
}

// byName adds the sessions with a needed name, for a query by key and name.
func byName(name func(*session.Need) string) selector {
	return func(l *lookup, s *loadedSession) {
		if id := name(&s.Need); id != "" {
			l.add(s).more(id)
		}
	}
}

// byNames is byName for several names of a session.
func byNames(names func(*session.Need) []string) selector {
	return func(l *lookup, s *loadedSession) {
		for _, id := range names(&s.Need) {
			l.add(s).more(id)
		}
	}
}
