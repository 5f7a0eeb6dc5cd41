package memory

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// rows holds everything of one session. The store never writes to rows that it has shown:
// a command writes to a fork.
type rows struct {
	session     session.Session // its custom state is in states
	runs        []session.Run   // runs without a turn first, then by turn
	messages    []session.Message
	places      map[string]int // the index of each message by its id; the message may have been removed
	states      []state        // by version
	journal     *session.Journal
	checkpoints []session.Checkpoint // by step
	usage       []session.UsageEntry
	calls       []session.Call
	held        map[string]session.Held // by the run that waits
	children    []session.Child         // by session id
}

// state is a row of the custom state: the whole of it, or a write to the one
// of the version base.
type state struct {
	version, base int64
	text          string
}

// fork returns rows that a command may write. The lists that only grow stay
// shared: nobody reads what stands behind the end of his own.
func (r *rows) fork() *rows {
	f := *r
	f.runs = slices.Clone(r.runs)
	f.calls = slices.Clone(r.calls)
	f.children = slices.Clone(r.children)
	f.held = maps.Clone(r.held)
	if r.journal != nil {
		j := *r.journal
		f.journal = &j
	}
	return &f
}

// tx is the work of one command.
type tx struct {
	m       *Store
	written map[session.Key]*rows // nil for a session that goes away
}

func (m *Store) begin() *tx { return &tx{m: m, written: map[session.Key]*rows{}} }

// rows returns the rows of a session as the command has left them.
func (t *tx) rows(key session.Key) *rows {
	if r, touched := t.written[key]; touched {
		return r
	}
	return t.m.sessions[key]
}

// commit puts the rows that were written in the place of the others.
func (t *tx) commit() {
	for key, r := range t.written {
		if old := t.m.sessions[key]; old != nil && r == nil {
			delete(t.m.families[old.root()], key.SessionID)
			delete(t.m.sessions, key)
		}
		if r == nil {
			continue
		}
		t.m.sessions[key] = r
		if t.m.families[r.root()] == nil {
			t.m.families[r.root()] = map[string]bool{}
		}
		t.m.families[r.root()][key.SessionID] = true
	}
}

// family returns the rows of every session with the root.
func (t *tx) family(root session.Key) []*rows {
	ids := maps.Clone(t.m.families[root])
	if ids == nil {
		ids = map[string]bool{}
	}
	for key, r := range t.written {
		if r != nil && r.root() == root {
			ids[key.SessionID] = true
		}
	}
	var family []*rows
	for id := range ids {
		if r := t.rows(session.Key{Tenant: root.Tenant, SessionID: id}); r != nil {
			family = append(family, r)
		}
	}
	return family
}

func (r *rows) root() session.Key {
	return session.Key{Tenant: r.session.Tenant, SessionID: r.session.RootID}
}

func (r *rows) hasMessage(id string) bool {
	place, known := r.places[id]
	return known && place < len(r.messages) && r.messages[place].ID == id
}

func (r *rows) find(wanted func(*session.Run) bool) *session.Run {
	for i := range r.runs {
		if wanted(&r.runs[i]) {
			return &r.runs[i]
		}
	}
	return nil
}

func (r *rows) run(id string) *session.Run {
	return r.find(func(run *session.Run) bool { return run.RunID == id })
}

func (r *rows) live() *session.Run {
	return r.find(func(run *session.Run) bool { return run.Status.Live() })
}

// waiting returns the runs that wait, in the order in which they will begin.
func (r *rows) waiting() []session.Run {
	var runs []session.Run
	for i := range r.runs {
		if r.runs[i].Status == session.RunWaiting {
			runs = append(runs, *copyRun(&r.runs[i]))
		}
	}
	slices.SortFunc(runs, func(a, b session.Run) int { return cmp.Compare(a.Place, b.Place) })
	return runs
}

// checkpoint returns the one that is wanted and of the highest step.
func (r *rows) checkpoint(wanted func(*session.Checkpoint) bool) *session.Checkpoint {
	for i := len(r.checkpoints) - 1; i >= 0; i-- {
		if wanted(&r.checkpoints[i]) {
			return copyCheckpoint(&r.checkpoints[i])
		}
	}
	return nil
}

func (r *rows) call(id string) *session.Call {
	for i := range r.calls {
		if r.calls[i].CallID == id {
			return &r.calls[i]
		}
	}
	return nil
}

// state returns the custom state of a version that is kept.
func (r *rows) state(base, version int64) (string, error) {
	var texts []string
	for _, s := range r.states {
		if s.version >= base && s.version <= version {
			texts = append(texts, s.text)
		}
	}
	if len(texts) == 0 {
		return "", errors.New("the custom state is not kept")
	}
	return session.Fold(texts[0], texts[1:])
}

// callsWhere returns the calls of the sessions that are wanted, by their time
// of creation, then id.
func callsWhere(of []*rows, wanted func(*session.Call) bool) []session.Call {
	var calls []session.Call
	for _, r := range of {
		for i := range r.calls {
			if wanted(&r.calls[i]) {
				calls = append(calls, copyCall(r.calls[i]))
			}
		}
	}
	slices.SortFunc(calls, func(a, b session.Call) int {
		return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.CallID, b.CallID))
	})
	return calls
}
