package postgres

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store/table"
)

// The statements that write, in the order of execution. Each runs once for all its
// rows in a transaction. A run leaves the index of live runs before another one
// enters it, and rows are deleted before their replacements are inserted.
const (
	_                   = iota // the zero value is no statement
	sessionStepUnlocked        // of rows not locked before
	sessionUpdateUnlocked
	sessionInsert
	sessionStep
	sessionUpdate
	messageRewind
	checkpointRewind
	stateRewind
	callRewind
	messageCopy
	fileLinkCopy
	stateInsert
	runStep
	runUpdate
	runBegin
	runInsert
	waitingInputDelete
	waitingInputInsert
	messageInsert
	fileLinkInsert
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
	storeDelete
	storeUpsert
	facetDelete
	facetInsert
	auditInsert
	deliveryInsert
	logErasureUpsert
	writesNumber
)

// The columns of written rows. A step inside a session or a run writes few of them.
var (
	sessionColumns       = table.Sessions.All()
	sessionStepColumns   = slices.Concat(table.Sessions.Step, table.Sessions.Small)
	sessionUpdateColumns = table.Sessions.Changing()
	stateColumns         = table.States.All()
	runColumns           = table.Runs.All()
	runUpdateColumns     = table.Runs.Changing()
	runRestColumns       = slices.Concat(table.Runs.Small, table.Runs.Large, table.Runs.Fixed)
	runStepInput         = slices.Concat(table.Runs.Key, table.Runs.Step)
	runUpdateInput       = slices.Concat(table.Runs.Key, runUpdateColumns)
	waitingInputColumns  = table.WaitingInputs.All()
	messageColumns       = table.Messages.All()
	planColumns          = table.Plans.All()
	resultColumns        = table.Results.All()
	checkpointColumns    = table.Checkpoints.All()
	usageColumns         = table.UsageEntries.All()
	callColumns          = table.Calls.All()
	callUpdateInput      = slices.Concat(table.Calls.Key, table.Calls.Small)
	childColumns         = table.SubSessions.All()
	storeColumns         = table.StoreEntries.All()
	auditColumns         = table.Audit.All()
	logErasureInput      = columnsOf(&table.LogErasures, table.LogErasures.All())
	facetInput           = keyed("facet bytea, created_at bigint")
	eventInput           = keyed("event_id text, kind text, root_id text, run_id text, call_id text, agent_type text, " +
		"happened_at bigint, facts text")
)

var writes = [writesNumber]*statement{
	sessionStepUnlocked:   updateUnlocked(&table.Sessions, sessionStepColumns),
	sessionUpdateUnlocked: updateUnlocked(&table.Sessions, sessionUpdateColumns),

	sessionInsert: insert(&table.Sessions, ""),
	sessionStep:   update(&table.Sessions, sessionStepColumns),
	sessionUpdate: update(&table.Sessions, sessionUpdateColumns),

	messageRewind: rewind("messages bigint", `DELETE FROM messages t USING `, `t.ordinal >= v.messages`),
	// The first checkpoints remain: their counts never decrease.
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
	fileLinkCopy: forRows(keyed("source text"), func(v string) string {
		return `INSERT INTO file_links (tenant, session_id, file_id, lapses_at) SELECT l.tenant, v.session_id, l.file_id, 0 FROM ` + v + `
			CROSS JOIN LATERAL (SELECT * FROM file_links
				WHERE tenant = v.tenant AND session_id = v.source AND lapses_at = 0 ORDER BY file_id) l` + keepLink
	}),

	stateInsert:        insert(&table.States, ""),
	runStep:            update(&table.Runs, table.Runs.Step),
	runUpdate:          update(&table.Runs, runUpdateColumns),
	runBegin:           update(&table.Runs, runUpdateColumns),
	waitingInputDelete: deleteFrom(columnsOf(&table.WaitingInputs, table.WaitingInputs.Key), table.WaitingInputs.Name),
	waitingInputInsert: insert(&table.WaitingInputs, ""),
	runInsert:          insert(&table.Runs, ""),
	messageInsert:      insert(&table.Messages, ""),
	fileLinkInsert: forRows(keyed("file_id text"), func(v string) string {
		return `INSERT INTO file_links (tenant, session_id, file_id, lapses_at) SELECT tenant, session_id, file_id, 0 FROM ` + v + keepLink
	}),
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
	storeDelete:      deleteFrom(columnsOf(&table.StoreEntries, table.StoreEntries.Key), table.StoreEntries.Name),
	storeUpsert:      upsert(&table.StoreEntries),
	facetDelete:      deleteFrom(facetInput, "session_facets"),
	// A release without facets may have left one behind.
	facetInsert: forRows(facetInput, func(v string) string { return insertText(facetInput, "session_facets", v) + ` ON CONFLICT DO NOTHING` }),

	auditInsert:      insert(&table.Audit, ` ON CONFLICT DO NOTHING`), // a gateway may report an event again
	deliveryInsert:   forRows(eventInput, insertDeliveries),
	logErasureUpsert: upsert(&table.LogErasures),
}

// keepLink revives a link of a deleted session with the same id.
const keepLink = ` ON CONFLICT (tenant, session_id, file_id) DO UPDATE SET lapses_at = 0`

// expireLinks expires the links of a session, and the holds of its files. A sweep deletes them, with the files.
var expireLinks = forRows(keyed(""), func(v string) string {
	return `UPDATE file_links t SET lapses_at = 1 FROM ` + v + ` JOIN file_links l ON l.tenant = v.tenant AND l.session_id = v.session_id
		WHERE t.tenant = l.tenant AND t.session_id IN (l.session_id, '') AND t.file_id = l.file_id`
})

// rewind deletes the rows of a session beyond a bound.
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
			CROSS JOIN LATERAL (SELECT * FROM messages
				WHERE tenant = v.tenant AND session_id = v.source AND ordinal < v.messages ORDER BY ordinal) m`, len(in))
	})
}

// unreadWrites replace updates of rows missing in the view of their command: an UPDATE
// without a row would pass unnoticed. A row in the view of a locked session exists, and
// counting it would cost time.
var unreadWrites = map[int]*statement{
	sessionUpdate: updateAll(&table.Sessions, sessionUpdateColumns),
	runUpdate:     updateAll(&table.Runs, runUpdateColumns),
	runBegin:      updateAll(&table.Runs, runUpdateColumns),
	callUpdate:    updateAll(&table.Calls, table.Calls.Small),
}

// sessionDeletes delete all rows of a session but its facets.
var sessionDeletes = func() (list []*statement) {
	for _, name := range table.OfSession() {
		list = append(list, deleteFrom(keyed(""), name))
	}
	return append(list, expireLinks)
}()

// writer collects the rows of changes, and queues one statement for each kind.
type writer struct {
	deleted  rows
	rows     [writesNumber]rows
	unread   [writesNumber]bool // rows of the statement are not in the view of their command
	copied   int64              // the number of messages for messageCopy
	unlocked int                // the statement for unlocked sessions; 0 when all are locked
	changes  int                // the number of changed sessions
	composer *composer
}

// writers are pooled with their memory, except large ones.
var writers = sync.Pool{New: func() any { return &writer{} }}

const maxPooledValues = 100_000

func (c *composer) newWriter() *writer {
	w := writers.Get().(*writer)
	w.composer = c
	return w
}

// release returns the writer to the pool, once its statements were sent.
func (w *writer) release() {
	w.unread = [writesNumber]bool{}
	w.copied = 0
	w.unlocked = 0
	w.changes = 0
	values := len(w.deleted.values)
	w.deleted.clear()
	for i := range w.rows {
		values += len(w.rows[i].values)
		w.rows[i].clear()
	}
	if values < maxPooledValues {
		writers.Put(w)
	}
}

// useUnlocked prepares the writer for sessions neither locked nor read. One
// statement writes all their rows, and so locks them in the order of their keys.
func (w *writer) useUnlocked(changed []*loadedSession) {
	w.unlocked = sessionStepUnlocked
	if slices.ContainsFunc(changed, func(s *loadedSession) bool {
		return s.change.Session != nil && !onlyStepChanges(s.view.Session, s.change.Session)
	}) {
		w.unlocked = sessionUpdateUnlocked
	}
}

// change adds the change of one session. Every change writes the session's row, and
// thereby its xmin.
func (w *writer) change(s *loadedSession) {
	c := s.change
	w.changes++
	for i := range c.Audit {
		addRow(&w.rows[auditInsert], &s.Key, auditColumns, &c.Audit[i])
	}
	for i := range c.Events {
		e := &c.Events[i]
		w.rows[deliveryInsert].addKey(&s.Key).more(
			&e.ID, (*string)(&e.Kind), &e.RootID, &e.RunID, &e.CallID, &e.AgentType, (*int64)(&e.At), &e.Facts,
		)
	}
	if c.Delete {
		w.deleted.addKey(&s.Key)
		if e := c.LogErasure; e != nil {
			w.rows[logErasureUpsert].add(&e.Tenant, &e.RootID).values = table.LogErasures.All().Fields(w.rows[logErasureUpsert].values, e)
		}
		w.facets(s.view.Session, nil)
		return
	}
	w.session(s)
	w.conversation(&s.Key, c)
	for i := range c.Runs {
		w.run(s, &c.Runs[i])
	}
	if c.Dequeued != nil {
		addRow(w.overwrite(runBegin, viewHasRun(s.view, c.Dequeued.RunID)), &s.Key, runUpdateInput, c.Dequeued)
	}
	if c.NewRun != nil {
		addRow(&w.rows[runInsert], &s.Key, runColumns, c.NewRun)
	}
	for _, id := range c.DropInputs {
		w.rows[waitingInputDelete].addKey(&s.Key).more(id)
	}
	if c.WaitingInput != nil && c.NewRun != nil {
		input := table.WaitingInput{RunID: c.NewRun.RunID, MessageIDs: c.WaitingInput.MessageIDs(), Input: c.WaitingInput}
		addRow(&w.rows[waitingInputInsert], &s.Key, waitingInputColumns, &input)
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
	for _, key := range c.StoreDeletes {
		w.rows[storeDelete].addKey(&s.Key).more(key)
	}
	for i := range c.StorePuts {
		addRow(&w.rows[storeUpsert], &s.Key, storeColumns, &c.StorePuts[i])
	}
}

// run writes few columns of a run that only continues.
func (w *writer) run(s *loadedSession, after *session.Run) {
	if before := s.view.Run; before != nil && before.RunID == after.RunID && runRestColumns.Equal(before, after) {
		addRow(&w.rows[runStep], &s.Key, runStepInput, after)
		return
	}
	addRow(w.overwrite(runUpdate, viewHasRun(s.view, after.RunID)), &s.Key, runUpdateInput, after)
}

// overwrite returns the rows of an update. inView: the row is in the view.
func (w *writer) overwrite(kind int, inView bool) *rows {
	w.unread[kind] = w.unread[kind] || !inView
	return &w.rows[kind]
}

func viewHasRun(v *session.View, id string) bool {
	waits := func(w session.WaitingRun) bool { return w.RunID == id }
	return slices.ContainsFunc(v.Waiting, waits) ||
		slices.ContainsFunc([]*session.Run{v.Run, v.KeyedRun, v.Current, v.Live}, func(r *session.Run) bool {
			return r != nil && r.RunID == id
		})
}

func viewHasCall(v *session.View, id string) bool {
	is := func(c session.Call) bool { return c.CallID == id }
	return slices.ContainsFunc(v.Calls, is) || slices.ContainsFunc(v.NamedCalls, is)
}

func (w *writer) session(s *loadedSession) {
	before, c := s.view.Session, s.change
	after := cmp.Or(c.Session, before)
	switch {
	case after == nil:
		return
	case c.Created:
		addRow(&w.rows[sessionInsert], &after.Key, sessionColumns, after)
		before = nil
	case w.unlocked == sessionStepUnlocked:
		addRow(&w.rows[w.unlocked], &after.Key, sessionStepColumns, after).more(s.hot.written)
	case w.unlocked == sessionUpdateUnlocked:
		addRow(&w.rows[w.unlocked], &after.Key, sessionUpdateColumns, after).more(s.hot.written)
	case before != nil && onlyStepChanges(before, after):
		addRow(&w.rows[sessionStep], &after.Key, sessionStepColumns, after)
	default:
		addRow(w.overwrite(sessionUpdate, before != nil), &after.Key, sessionUpdateColumns, after)
	}
	if c.Session != nil {
		w.facets(before, after)
	}
	switch {
	case c.NewState:
		addRow(
			&w.rows[stateInsert],
			&after.Key,
			stateColumns,
			&table.State{Version: after.StateVersion, Base: after.StateVersion, Text: after.State},
		)
	case len(c.StateWrite) > 0:
		addRow(
			&w.rows[stateInsert],
			&after.Key,
			stateColumns,
			&table.State{Version: after.StateVersion, Base: after.StateBase, Writes: c.StateWrite},
		)
	}
}

// onlyStepChanges reports whether the large columns are unchanged.
func onlyStepChanges(before, after *session.Session) bool {
	return table.Sessions.Large.Equal(before, after)
}

func (w *writer) facets(before, after *session.Session) {
	lost, gained := session.DiffFacets(before, after)
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
		// A checkpoint without its state is deleted too.
		w.rows[checkpointRewind].addKey(k).more(back.Messages, back.StateVersion, back.RunID, int64(back.Step))
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
		w.rows[fileLinkCopy].addKey(k).more(c.Copy.From)
	}
	for i := range c.Messages {
		addRow(&w.rows[messageInsert], k, messageColumns, &c.Messages[i])
	}
	for _, id := range c.FileIDs() {
		w.rows[fileLinkInsert].addKey(k).more(id)
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

// calls finds calls by the root of the family. A session never leaves its family.
func (w *writer) calls(s *loadedSession, c *session.Change) {
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
		addRow(w.overwrite(callUpdate, viewHasCall(s.view, c.Calls[i].CallID)), family, callUpdateInput, &c.Calls[i])
	}
}

// children writes the last entry of each child.
func (w *writer) children(k *session.Key, children []session.Child) {
	for i := range children {
		if later := children[i+1:]; slices.ContainsFunc(later, func(c session.Child) bool { return c.SessionID == children[i].SessionID }) {
			continue
		}
		addRow(&w.rows[childUpsert], k, childColumns, &children[i])
	}
}

// written is the result of a writer's statements, once they have run.
type written struct {
	transaction uint32 // its id; 0 unless the rows of sessions were written by the composed statement
	unchanged   int64  // how many unlocked sessions were
}

// queue adds statements that write the rows: one for the composable kinds, and before it one for each of the others. something
// is false when there are no rows. ok is false, and nothing is queued, when sessions are unlocked and the rows take more than one
// statement: only a composed statement depends on what it finds.
func (w *writer) queue(p *pipeline) (result *written, something, ok bool) {
	var parts composition
	parameters := 0
	others := w.deleted.count > 0
	for kind := range w.rows {
		switch r := &w.rows[kind]; {
		case r.count == 0:
		case !composable[kind] || w.unread[kind]:
			others = true
		default:
			parts.kinds |= 1 << kind
			parameters += len(writes[kind].in)
			if w.changes == 1 && r.count == 1 { // with several sessions, arrays keep the compositions few
				parts.single |= 1 << kind
			}
		}
	}
	var composed *statement
	if parts.kinds != 0 {
		composed = w.composer.statement(parts)
	}
	if w.unlocked != 0 && (others || composed == nil) {
		return nil, true, false
	}
	if w.deleted.count > 0 {
		for _, s := range sessionDeletes {
			p.each(s, &w.deleted, nil)
		}
	}
	result = &written{}
	args := make([]any, 0, parameters)
	for kind := range w.rows {
		switch r := &w.rows[kind]; {
		case r.count == 0:
		case composed != nil && parts.has(kind):
			args = p.appendArguments(args, r, parts.isSingle(kind))
		case w.unread[kind]:
			p.each(unreadWrites[kind], r, nil, int64(r.count))
		case kind == messageCopy:
			p.each(writes[kind], r, nil, w.copied)
		default:
			p.each(writes[kind], r, nil)
		}
	}
	if composed != nil {
		p.queue(composed, args, scanInto(&result.unchanged, &result.transaction))
	}
	return result, others || parts.kinds != 0, true
}
