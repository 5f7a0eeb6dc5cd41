package postgres

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store/table"
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

// The columns of the rows that commands write. A step that only continues a
// session or a run writes few of them.
var (
	sessionColumns    = table.Sessions.All()
	sessionPace       = slices.Concat(table.Sessions.Step, table.Sessions.Small)
	sessionEdit       = table.Sessions.Changing()
	stateColumns      = table.States.All()
	runColumns        = table.Runs.All()
	runEdit           = table.Runs.Changing()
	runRest           = slices.Concat(table.Runs.Small, table.Runs.Large, table.Runs.Fixed)
	runKeyStep        = slices.Concat(table.Runs.Key, table.Runs.Step)
	runKeyEdit        = slices.Concat(table.Runs.Key, runEdit)
	heldColumns       = table.HeldRuns.All()
	messageColumns    = table.Messages.All()
	planColumns       = table.Plans.All()
	resultColumns     = table.Results.All()
	checkpointColumns = table.Checkpoints.All()
	usageColumns      = table.UsageEntries.All()
	callColumns       = table.Calls.All()
	callKeySmall      = slices.Concat(table.Calls.Key, table.Calls.Small)
	childColumns      = table.SubSessions.All()
	facetInput        = keyed("facet bytea, created_at bigint")
)

var writes = [writesNumber]*statement{
	sessionPacedKnown:  updateKnown(&table.Sessions, sessionPace),
	sessionEditedKnown: updateKnown(&table.Sessions, sessionEdit),

	sessionInsert: insert(&table.Sessions, ` RETURNING xmin`),
	sessionPaced:  update(&table.Sessions, sessionPace),
	sessionEdited: update(&table.Sessions, sessionEdit),

	messageRewind: rewind("messages bigint", `DELETE FROM messages t USING `, `t.ordinal >= v.messages`),
	// What stays of the checkpoints are the first ones: what they count never goes down.
	checkpointRewind: forRows(keyed("messages bigint, version bigint, run_id text, step bigint"), func(v string) string {
		return `DELETE FROM checkpoints t USING ` + v + `
		CROSS JOIN LATERAL (SELECT coalesce((SELECT step FROM checkpoints WHERE tenant = v.tenant AND session_id = v.session_id
			AND message_count <= v.messages AND (v.version = 0 OR state_version <= v.version) AND (v.run_id = '' OR run_id <> v.run_id)
			AND (v.step = 0 OR step <= v.step)
			ORDER BY step DESC LIMIT 1), 0) AS step) newest
		WHERE ` + matches(table.Sessions.Primary()) + ` AND t.step > newest.step`
	}),
	stateRewind: rewind("version bigint", `DELETE FROM states t USING `, `t.version > v.version`),
	callRewind:  rewind("step bigint", `DELETE FROM calls t USING `, `t.step >= v.step`),
	messageCopy: copyMessages(),

	stateInsert:      insert(&table.States, ""),
	runPaced:         update(&table.Runs, table.Runs.Step),
	runUpdate:        update(&table.Runs, runEdit),
	runBegin:         update(&table.Runs, runEdit),
	heldDelete:       deleteFrom(columnsOf(&table.HeldRuns, table.HeldRuns.Key), table.HeldRuns.Name),
	heldInsert:       insert(&table.HeldRuns, ""),
	runInsert:        insert(&table.Runs, ""),
	messageInsert:    insert(&table.Messages, ""),
	planDelete:       deleteFrom(keyed(""), table.Plans.Name),
	resultDelete:     deleteFrom(keyed(""), table.Results.Name),
	planInsert:       insert(&table.Plans, ""),
	resultInsert:     insert(&table.Results, ""),
	checkpointInsert: insert(&table.Checkpoints, ""),
	usageInsert:      insert(&table.UsageEntries, ""),
	callDelete:       deleteFrom(columnsOf(&table.Calls, table.Calls.Key), table.Calls.Name),
	callInsert:       insert(&table.Calls, ""),
	callUpdate:       update(&table.Calls, table.Calls.Small),
	childUpsert:      upsert(&table.SubSessions),
	facetDelete:      deleteFrom(facetInput, "session_facets"),
	// A facet may be there already, left behind by a release that kept none.
	facetInsert: forRows(facetInput, func(v string) string { return insertText(facetInput, "session_facets", v) + ` ON CONFLICT DO NOTHING` }),
}

// rewind deletes the rows of a session that meet a condition on a bound.
func rewind(bound, text, condition string) *statement {
	return forRows(keyed(bound), func(v string) string {
		return text + v + ` WHERE ` + matches(table.Sessions.Primary()) + ` AND ` + condition
	})
}

func copyMessages() *statement {
	in := keyed("source text, messages bigint")
	columns := table.Messages.All()
	return forRows(in, func(v string) string {
		return exactly(`INSERT INTO messages (tenant, session_id, `+strings.Join(columns.Names(), ", ")+`)
			SELECT v.tenant, v.session_id, `+columns.Select("m")+` FROM `+v+`
			CROSS JOIN LATERAL (SELECT * FROM messages WHERE tenant = v.tenant AND session_id = v.source AND ordinal < v.messages ORDER BY ordinal) m`, len(in))
	})
}

// unseen are the statements for rows of which a command was not shown all. An
// UPDATE that finds no row would pass unnoticed, and counting costs time. A row
// that a command was shown of a locked session exists.
var unseen = map[int]*statement{
	sessionEdited: updateAll(&table.Sessions, sessionEdit),
	runUpdate:     updateAll(&table.Runs, runEdit),
	runBegin:      updateAll(&table.Runs, runEdit),
	callUpdate:    updateAll(&table.Calls, table.Calls.Small),
}

// deletes are the statements after which nothing of a session is left but its
// facets.
var deletes = func() (list []*statement) {
	for _, name := range table.OfSession() {
		list = append(list, deleteFrom(keyed(""), name))
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

const largeWriter = 100_000 // values

func newWriter() *writer { return writers.Get().(*writer) }

// release gives the writer back, when what it has queued was sent.
func (w *writer) release() {
	w.unseen, w.copied, w.known = [writesNumber]bool{}, 0, 0
	values := len(w.gone.values)
	w.gone.clear()
	for i := range w.rows {
		values += len(w.rows[i].values)
		w.rows[i].clear()
	}
	if values < largeWriter {
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
		w.gone.addKey(&s.Key)
		w.facets(s.view.Session, nil)
		return
	}
	w.session(s)
	w.conversation(&s.Key, c)
	for i := range c.Runs {
		w.run(s, &c.Runs[i])
	}
	if c.Begun != nil {
		addRow(w.over(runBegin, showsRun(s.view, c.Begun.RunID)), &s.Key, runKeyEdit, c.Begun)
	}
	if c.NewRun != nil {
		addRow(&w.rows[runInsert], &s.Key, runColumns, c.NewRun)
	}
	for _, id := range c.Unheld {
		w.rows[heldDelete].addKey(&s.Key).more(id)
	}
	if c.Held != nil && c.NewRun != nil {
		addRow(&w.rows[heldInsert], &s.Key, heldColumns, &table.Held{RunID: c.NewRun.RunID, MessageIDs: c.Held.MessageIDs(), Held: c.Held})
	}
	w.journal(&s.Key, c)
	if c.Checkpoint != nil {
		addRow(&w.rows[checkpointInsert], &s.Key, checkpointColumns, c.Checkpoint)
	}
	for i := range c.Usage {
		addRow(&w.rows[usageInsert], &s.Key, usageColumns, &c.Usage[i])
	}
	w.calls(s, c)
	w.children(&s.Key, c.Children)
}

// run writes no more of a run that goes on than a step changes.
func (w *writer) run(s *shown, after *session.Run) {
	if before := s.view.Run; before != nil && before.RunID == after.RunID && runRest.Equal(before, after) {
		addRow(&w.rows[runPaced], &s.Key, runKeyStep, after)
		return
	}
	addRow(w.over(runUpdate, showsRun(s.view, after.RunID)), &s.Key, runKeyEdit, after)
}

// over begins a row that replaces an existing one.
func (w *writer) over(kind int, shown bool) *rows {
	w.unseen[kind] = w.unseen[kind] || !shown
	return &w.rows[kind]
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
		addRow(&w.rows[sessionInsert], &after.Key, sessionColumns, after)
		before = nil
	case w.known == sessionPacedKnown:
		addRow(&w.rows[w.known], &after.Key, sessionPace, after).more(s.hot.written)
	case w.known == sessionEditedKnown:
		addRow(&w.rows[w.known], &after.Key, sessionEdit, after).more(s.hot.written)
	case before != nil && paced(before, after):
		addRow(&w.rows[sessionPaced], &after.Key, sessionPace, after)
	default:
		addRow(w.over(sessionEdited, before != nil), &after.Key, sessionEdit, after)
	}
	if c.Session != nil {
		w.facets(before, after)
	}
	switch {
	case c.NewState:
		addRow(&w.rows[stateInsert], &after.Key, stateColumns, &table.State{Version: after.StateVersion, Base: after.StateVersion, Whole: after.State})
	case len(c.StateWrite) > 0:
		addRow(&w.rows[stateInsert], &after.Key, stateColumns, &table.State{Version: after.StateVersion, Base: after.StateBase, Writes: c.StateWrite})
	}
}

// paced reports whether a step does not have to write the large columns.
func paced(before, after *session.Session) bool { return table.Sessions.Large.Equal(before, after) }

func (w *writer) facets(before, after *session.Session) {
	lost, gained := session.Refacet(before, after)
	for _, f := range lost {
		w.rows[facetDelete].addKey(&before.Key).more([]byte(f), int64(before.CreatedAt))
	}
	for _, f := range gained {
		w.rows[facetInsert].addKey(&after.Key).more([]byte(f), int64(after.CreatedAt))
	}
}

func (w *writer) conversation(k *session.Key, c *session.Change) {
	if back := c.Rewind; back != nil {
		w.rows[messageRewind].addKey(k).more(back.Messages)
		w.rows[checkpointRewind].addKey(k).more(back.Messages, back.StateVersion, back.RunID, int64(back.Step)) // a checkpoint goes with its state too
		if back.StateVersion != 0 {
			w.rows[stateRewind].addKey(k).more(back.StateVersion)
		}
		if back.CallsFrom != 0 {
			w.rows[callRewind].addKey(k).more(int64(back.CallsFrom))
		}
	}
	if c.Copy != nil {
		w.rows[messageCopy].addKey(k).more(c.Copy.From, c.Copy.Messages)
		w.copied += c.Copy.Messages
	}
	for i := range c.Messages {
		addRow(&w.rows[messageInsert], k, messageColumns, &c.Messages[i])
	}
}

func (w *writer) journal(k *session.Key, c *session.Change) {
	if c.ClearJournal {
		w.rows[planDelete].addKey(k)
		w.rows[resultDelete].addKey(k)
	}
	if c.Plan != nil {
		addRow(&w.rows[planInsert], k, planColumns, c.Plan)
	}
	if c.Result != nil {
		addRow(&w.rows[resultInsert], k, resultColumns, &table.Result{Position: c.ResultAt, Result: *c.Result})
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
	family := &session.Key{Tenant: s.Tenant, SessionID: root}
	for _, id := range c.DropCalls {
		w.rows[callDelete].addKey(family).more(id)
	}
	for i := range c.NewCalls {
		addRow(&w.rows[callInsert], family, callColumns, &c.NewCalls[i])
	}
	for i := range c.Calls {
		addRow(w.over(callUpdate, showsCall(s.view, c.Calls[i].CallID)), family, callKeySmall, &c.Calls[i])
	}
}

// children writes the last of what is said of each.
func (w *writer) children(k *session.Key, children []session.Child) {
	for i := range children {
		if later := children[i+1:]; slices.ContainsFunc(later, func(c session.Child) bool { return c.SessionID == children[i].SessionID }) {
			continue
		}
		addRow(&w.rows[childUpsert], k, childColumns, &children[i])
	}
}

// queue adds the statements that have something to write. It reports false
// when none has. id gets the id of the transaction when a statement returns it.
func (w *writer) queue(p *pipeline) (id *uint32, something bool) {
	id = new(uint32)
	if w.gone.count > 0 {
		something = true
		for _, s := range deletes {
			p.each(s, &w.gone, nil)
		}
	}
	for i := range w.rows {
		r := &w.rows[i]
		if r.count == 0 {
			continue
		}
		something = true
		switch {
		case i == sessionPacedKnown, i == sessionEditedKnown:
			p.each(writes[i], r, func(row pgx.CollectableRow) error { return row.Scan(nil, id) }, int64(r.count))
		case i == sessionInsert:
			p.each(writes[i], r, func(row pgx.CollectableRow) error { return row.Scan(id) })
		case i == messageCopy:
			p.each(writes[i], r, nil, w.copied)
		case w.unseen[i]:
			p.each(unseen[i], r, nil, int64(r.count))
		default:
			p.each(writes[i], r, nil)
		}
	}
	return id, something
}
