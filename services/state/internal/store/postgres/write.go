package postgres

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// The statements that write, each once for all the rows of a transaction, in
// the order of execution: a run leaves the index of those that are live
// before another one enters it, and rows are deleted before those
// are inserted that take their place.
const (
	_                 = iota // so that the zero value is no statement
	sessionPacedKnown        // without a lock before it
	sessionEditedKnown
	sessionInsert
	sessionPaced
	sessionEdited
	messageRewind
	checkpointRewind
	stateRewind
	callRewind
	messageCopy
	stateInsert
	runPaced
	runUpdate
	runBegin
	runInsert
	heldDelete
	heldInsert
	messageInsert
	planDelete
	resultDelete
	planInsert
	resultInsert
	checkpointInsert
	usageInsert
	callDelete
	callInsert
	callUpdate
	childUpsert
	facetDelete
	facetInsert
	writesNumber
)

var writes = [writesNumber]*statement{
	sessionPacedKnown:  prepared(sessionPaces.updateKnown(2)),
	sessionEditedKnown: prepared(sessionEdits.updateKnown(2)),

	sessionInsert: prepared(sessionRows.insert() + ` RETURNING xmin`),
	sessionPaced:  prepared(sessionPaces.update(2)),
	sessionEdited: prepared(sessionEdits.update(2)),

	messageRewind: prepared(`DELETE FROM messages t USING ` + asked("messages bigint") + `
		WHERE v.tenant > '' AND v.session_id > '' AND t.tenant = v.tenant AND t.session_id = v.session_id AND t.ordinal >= v.messages`),
	// What stays of the checkpoints are the first ones: what they count never goes down.
	checkpointRewind: prepared(`DELETE FROM checkpoints t USING ` + asked("messages bigint, version bigint, run_id text, step bigint") + `
		CROSS JOIN LATERAL (SELECT coalesce((SELECT step FROM checkpoints WHERE tenant = v.tenant AND session_id = v.session_id
			AND message_count <= v.messages AND (v.version = 0 OR state_version <= v.version) AND (v.run_id = '' OR run_id <> v.run_id)
			AND (v.step = 0 OR step <= v.step)
			ORDER BY step DESC LIMIT 1), 0) AS step) newest
		WHERE v.tenant > '' AND v.session_id > '' AND t.tenant = v.tenant AND t.session_id = v.session_id AND t.step > newest.step`),
	stateRewind: prepared(`DELETE FROM states t USING ` + asked("version bigint") + `
		WHERE v.tenant > '' AND v.session_id > '' AND t.tenant = v.tenant AND t.session_id = v.session_id AND t.version > v.version`),
	callRewind: prepared(`DELETE FROM calls t USING ` + asked("step bigint") + `
		WHERE v.tenant > '' AND v.session_id > '' AND t.tenant = v.tenant AND t.session_id = v.session_id AND t.step >= v.step`),
	messageCopy: prepared(exactly(`INSERT INTO messages (tenant, session_id, size, `+messageShown.names("")+`)
		SELECT v.tenant, v.session_id, m.size, `+messageShown.names("m.")+` FROM `+asked("source text, messages bigint")+`
		CROSS JOIN LATERAL (SELECT * FROM messages WHERE tenant = v.tenant AND session_id = v.source AND ordinal < v.messages ORDER BY ordinal) m`, 4)),

	stateInsert:      prepared(stateRows.insert()),
	runPaced:         prepared(runPaces.update(3)),
	runUpdate:        prepared(runLives.update(3)),
	runBegin:         prepared(runLives.update(3)),
	heldDelete:       prepared(heldKeys.delete()),
	heldInsert:       prepared(heldRows.insert()),
	runInsert:        prepared(runRows.insert()),
	messageInsert:    prepared(messageRows.insert()),
	planDelete:       prepared(columns("plans", keyColumns).delete()),
	resultDelete:     prepared(columns("results", keyColumns).delete()),
	planInsert:       prepared(planRows.insert()),
	resultInsert:     prepared(resultRows.insert()),
	checkpointInsert: prepared(checkpointRows.insert()),
	usageInsert:      prepared(usageRows.insert()),
	callDelete:       prepared(columns("calls", callKey).delete()),
	callInsert:       prepared(callRows.insert()),
	callUpdate:       prepared(callRows.update(3)),
	childUpsert:      prepared(childRows.upsert(3)),
	facetDelete:      prepared(facetRows.delete()),
	// A facet may be there already, left behind by a release that kept none.
	facetInsert: prepared(facetRows.insert() + ` ON CONFLICT DO NOTHING`),
}

// unseen are the statements for rows among which some were not shown to the
// command that writes over them. An UPDATE that hits nothing would pass unnoticed,
// and counting costs; what a command was shown of a session that it has locked is
// there for certain.
var unseen = map[int]*statement{
	sessionEdited: prepared(exactly(sessionEdits.update(2), len(sessionEdits.columns))),
	runUpdate:     prepared(exactly(runLives.update(3), len(runLives.columns))),
	runBegin:      prepared(exactly(runLives.update(3), len(runLives.columns))),
	callUpdate:    prepared(exactly(callRows.update(3), len(callRows.columns))),
}

// deletes are the statements after which nothing of a session is left but its
// facets.
var deletes = func() (list []*statement) {
	for _, name := range []string{
		"sessions", "states", "runs", "messages", "plans", "results", "checkpoints", "usage_entries", "calls", "sub_sessions", "held_runs",
	} {
		list = append(list, prepared(columns(name, keyColumns).delete()))
	}
	return list
}()

// writer gathers the rows of changes, and queues one statement for each kind.
type writer struct {
	gone   rows
	rows   [writesNumber]rows
	unseen [writesNumber]bool // whether some of the rows are over others that nobody was shown
	copied int64              // messages, by messageCopy
	known  int                // the statement for the rows of sessions that were not read
}

// writers are used again, with the memory that they have; not those that a
// rare transaction has made large.
var writers = sync.Pool{New: func() any { return &writer{} }}

const largeWriter = 4 << 20

func newWriter() *writer { return writers.Get().(*writer) }

// release gives the writer back, when what it has queued was sent.
func (w *writer) release() {
	w.unseen, w.copied, w.known = [writesNumber]bool{}, 0, 0
	kept := w.gone.clear()
	for i := range w.rows {
		kept += w.rows[i].clear()
	}
	if kept < largeWriter {
		writers.Put(w)
	}
}

// withoutLock is called before the changes of sessions that were neither locked nor read.
// One statement writes all their rows, and so locks them in their order.
func (w *writer) withoutLock(changed []*shown) {
	w.known = sessionPacedKnown
	if slices.ContainsFunc(changed, func(s *shown) bool { return s.change.Session != nil && !paced(s.view.Session, s.change.Session) }) {
		w.known = sessionEditedKnown
	}
}

// change adds what one command writes in one session. Every change writes the session's
// row, so that its xmin says whether anything of the session has changed.
func (w *writer) change(s *shown) {
	c := s.change
	if c.Delete {
		w.gone.next().key(s.Key)
		w.facets(s.view.Session, nil)
		return
	}
	w.session(s)
	w.conversation(s.Key, c)
	for i := range c.Runs {
		w.run(s, &c.Runs[i])
	}
	if c.Begun != nil {
		w.over(runBegin, showsRun(s.view, c.Begun.RunID)).runLife(s.Key, c.Begun)
	}
	if c.NewRun != nil {
		w.rows[runInsert].next().run(s.Key, c.NewRun)
	}
	for _, id := range c.Unheld {
		w.rows[heldDelete].next().key(s.Key).text(id)
	}
	if c.Held != nil && c.NewRun != nil {
		w.rows[heldInsert].next().held(s.Key, c.NewRun.RunID, c.Held)
	}
	w.journal(s.Key, c)
	if c.Checkpoint != nil {
		w.rows[checkpointInsert].next().checkpoint(s.Key, c.Checkpoint)
	}
	for i := range c.Usage {
		w.rows[usageInsert].next().usage(s.Key, &c.Usage[i])
	}
	w.calls(s, c)
	w.children(s.Key, c.Children)
}

// run writes no more of a run that goes on than a step changes.
func (w *writer) run(s *shown, after *session.Run) {
	if before := s.view.Run; before != nil && before.RunID == after.RunID {
		counted := *before
		counted.StepCount, counted.Losses = after.StepCount, after.Losses
		if reflect.DeepEqual(&counted, after) {
			w.rows[runPaced].next().key(s.Key).text(after.RunID).number(int64(after.StepCount), int64(after.Losses))
			return
		}
	}
	w.over(runUpdate, showsRun(s.view, after.RunID)).runLife(s.Key, after)
}

// over begins a row that replaces an existing one.
func (w *writer) over(kind int, shown bool) *rows {
	w.unseen[kind] = w.unseen[kind] || !shown
	return w.rows[kind].next()
}

func showsRun(v *session.View, id string) bool {
	waits := func(w session.Waiting) bool { return w.RunID == id }
	return slices.ContainsFunc(v.Waiting, waits) || slices.ContainsFunc([]*session.Run{v.Run, v.Keyed, v.Current, v.Live}, func(r *session.Run) bool {
		return r != nil && r.RunID == id
	})
}

func showsCall(v *session.View, id string) bool {
	is := func(c session.Call) bool { return c.CallID == id }
	return slices.ContainsFunc(v.Calls, is) || slices.ContainsFunc(v.Named, is)
}

func (w *writer) session(s *shown) {
	before, c := s.view.Session, s.change
	after := cmp.Or(c.Session, before)
	switch {
	case after == nil:
		return
	case c.Created:
		w.rows[sessionInsert].next().session(after)
		before = nil
	case w.known == sessionPacedKnown:
		w.rows[w.known].next().sessionPace(after).number(s.hot.written)
	case w.known == sessionEditedKnown:
		w.rows[w.known].next().sessionEdit(after).number(s.hot.written)
	case before != nil && paced(before, after):
		w.rows[sessionPaced].next().sessionPace(after)
	default:
		w.over(sessionEdited, before != nil).sessionEdit(after)
	}
	if c.Session != nil {
		w.facets(before, after)
	}
	switch {
	case c.NewState:
		w.rows[stateInsert].next().key(after.Key).number(after.StateVersion, after.StateVersion).text(after.State)
	case len(c.StateWrite) > 0:
		w.rows[stateInsert].next().key(after.Key).number(after.StateVersion, after.StateBase).json(store.In(&c.StateWrite))
	}
}

// paced reports whether what may be large is as it was, so that a step does
// not write it again.
func paced(a, b *session.Session) bool {
	return a.Output == b.Output && a.Failure == b.Failure && a.Suspension == b.Suspension && a.Interruption == b.Interruption &&
		a.UserID == b.UserID && a.OrganizationID == b.OrganizationID && slices.Equal(a.Tags, b.Tags) && maps.Equal(a.Metadata, b.Metadata)
}

func (w *writer) facets(before, after *session.Session) {
	lost, gained := session.Refacet(before, after)
	for _, f := range lost {
		w.rows[facetDelete].next().facet(before, f)
	}
	for _, f := range gained {
		w.rows[facetInsert].next().facet(after, f)
	}
}

func (w *writer) conversation(k session.Key, c *session.Change) {
	if back := c.Rewind; back != nil {
		w.rows[messageRewind].next().key(k).number(back.Messages)
		w.rows[checkpointRewind].next().key(k).number(back.Messages, back.StateVersion).text(back.RunID).number(int64(back.Step)) // a checkpoint goes with its state too
		if back.StateVersion != 0 {
			w.rows[stateRewind].next().key(k).number(back.StateVersion)
		}
		if back.CallsFrom != 0 {
			w.rows[callRewind].next().key(k).number(int64(back.CallsFrom))
		}
	}
	if c.Copy != nil {
		w.rows[messageCopy].next().key(k).text(c.Copy.From).number(c.Copy.Messages)
		w.copied += c.Copy.Messages
	}
	for i := range c.Messages {
		w.rows[messageInsert].next().message(k, &c.Messages[i])
	}
}

func (w *writer) journal(k session.Key, c *session.Change) {
	if c.ClearJournal {
		w.rows[planDelete].next().key(k)
		w.rows[resultDelete].next().key(k)
	}
	if c.Plan != nil {
		w.rows[planInsert].next().plan(k, c.Plan)
	}
	if c.Result != nil {
		w.rows[resultInsert].next().result(k, c.ResultAt, c.Result)
	}
}

// calls finds calls by the root of the family, which a session never leaves.
func (w *writer) calls(s *shown, c *session.Change) {
	if len(c.DropCalls)+len(c.NewCalls)+len(c.Calls) == 0 {
		return
	}
	root := s.SessionID
	switch {
	case c.Session != nil:
		root = c.Session.RootID
	case s.view.Session != nil:
		root = s.view.Session.RootID
	}
	for _, id := range c.DropCalls {
		w.rows[callDelete].next().text(s.Tenant, root, id)
	}
	for i := range c.NewCalls {
		w.rows[callInsert].next().call(s.Tenant, root, &c.NewCalls[i])
	}
	for i := range c.Calls {
		w.over(callUpdate, showsCall(s.view, c.Calls[i].CallID)).call(s.Tenant, root, &c.Calls[i])
	}
}

// children writes the last of what is said of each.
func (w *writer) children(k session.Key, children []session.Child) {
	for i := range children {
		if later := children[i+1:]; slices.ContainsFunc(later, func(c session.Child) bool { return c.SessionID == children[i].SessionID }) {
			continue
		}
		w.rows[childUpsert].next().child(k, &children[i])
	}
}

// queue adds the statements that have something to write. It reports false
// when none has. id gets the id of the transaction, as an int4, when a statement returns it.
func (w *writer) queue(p *pipeline) (id *int64, something bool, err error) {
	id = new(int64)
	if w.gone.count > 0 {
		something = true
		for _, s := range deletes {
			p.each(s, &w.gone, nil)
		}
	}
	for i := range w.rows {
		r := &w.rows[i]
		if r.err != nil {
			return nil, false, r.err
		}
		if r.count == 0 {
			continue
		}
		something = true
		switch {
		case i == sessionPacedKnown, i == sessionEditedKnown:
			p.exactly(writes[i], r, int64(r.count), func(row *row) { row.number(); *id = row.number() })
		case i == sessionInsert:
			p.each(writes[i], r, func(row *row) { *id = row.number() })
		case i == messageCopy:
			p.exactly(writes[i], r, w.copied, nil)
		case w.unseen[i]:
			p.exactly(unseen[i], r, int64(r.count), nil)
		default:
			p.each(writes[i], r, nil)
		}
	}
	return id, something, nil
}
