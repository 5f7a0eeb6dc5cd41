package sqlite

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store/table"
)

// rowStatement writes one row of a table. Its arguments are the scope of the
// table, and then the columns.
type rowStatement[R any] struct {
	text    string
	columns table.Columns[R]
	update  bool // the row has to exist
}

func insert[R any](t *table.Table[R]) *rowStatement[R] {
	columns := t.All()
	names := slices.Concat(t.Scope, columns.Names())
	return &rowStatement[R]{columns: columns, text: fmt.Sprintf("INSERT INTO %s (%s) VALUES (?%s)",
		t.Name, strings.Join(names, ", "), strings.Repeat(", ?", len(names)-1))}
}

// upsert is insert, or update where there is a row with the key.
func upsert[R any](t *table.Table[R]) *rowStatement[R] {
	var sets []string
	for _, c := range t.Changing() {
		sets = append(sets, c.Name+" = excluded."+c.Name)
	}
	s := insert(t)
	s.text += fmt.Sprintf(" ON CONFLICT (%s) DO UPDATE SET %s", strings.Join(t.Primary(), ", "), strings.Join(sets, ", "))
	return s
}

// update writes columns over the row with the key. SQLite rewrites every index with one
// of these columns.
func update[R any](t *table.Table[R], columns table.Columns[R]) *rowStatement[R] {
	key := t.Primary()
	var sets, conditions []string
	for i, name := range key {
		conditions = append(conditions, fmt.Sprintf("%s = ?%d", name, i+1))
	}
	for i, c := range columns {
		sets = append(sets, fmt.Sprintf("%s = ?%d", c.Name, len(key)+i+1))
	}
	return &rowStatement[R]{
		columns: slices.Concat(t.Key, columns), update: true,
		text: fmt.Sprintf("UPDATE %s SET %s WHERE %s", t.Name, strings.Join(sets, ", "), strings.Join(conditions, " AND ")),
	}
}

// write runs the statement for a row of the scope.
func write[R any](w *writer, s *rowStatement[R], scope [2]string, row *R) {
	if w.err != nil {
		return
	}
	args := make([]any, 2, 2+len(s.columns))
	args[0], args[1] = scope[0], scope[1]
	changed, err := w.run(s.text, s.columns.Values(args, row)...)
	if err == nil && s.update && changed != 1 {
		err = fmt.Errorf("got %d changed rows, want 1: %s", changed, s.text)
	}
	w.err = err
}

// The columns of the rows that commands read and write.
var (
	sessionColumns     = table.Sessions.All()
	sessionListed      = sessionColumns.Without("output")
	sessionRestColumns = slices.Concat(table.Sessions.Small, table.Sessions.Large) // without the columns of a step
	runColumns         = table.Runs.All()
	runListed          = runColumns.Without("output")
	runRestColumns     = slices.Concat(table.Runs.Small, table.Runs.Large) // without the columns of a step
	messageColumns     = table.Messages.All().Without("size")
	checkpointColumns  = table.Checkpoints.All()
	checkpointListed   = checkpointColumns.Without("record")
	callColumns        = table.Calls.All()
	childColumns       = table.SubSessions.All()
	planColumns        = table.Plans.All()
	resultColumns      = table.Results.All()
	usageColumns       = table.UsageEntries.All()
	memoryColumns      = table.Memories.All()
)

var (
	insertSession      = insert(&table.Sessions)
	updateSession      = update(&table.Sessions, table.Sessions.Changing())
	stepSession        = update(&table.Sessions, table.Sessions.Step)
	insertState        = insert(&table.States)
	insertRun          = insert(&table.Runs)
	updateRun          = update(&table.Runs, table.Runs.Changing())
	stepRun            = update(&table.Runs, table.Runs.Step)
	insertWaitingInput = insert(&table.WaitingInputs)
	insertMessage      = insert(&table.Messages)
	insertPlan         = insert(&table.Plans)
	insertResult       = insert(&table.Results)
	insertCheckpoint   = insert(&table.Checkpoints)
	insertUsage        = insert(&table.UsageEntries)
	insertCall         = insert(&table.Calls)
	updateCall         = update(&table.Calls, table.Calls.Small)
	upsertChild        = upsert(&table.SubSessions)
	upsertStoreEntry   = upsert(&table.StoreEntries)
	upsertLogErasure   = upsert(&table.LogErasures)
	insertAudit        = func() *rowStatement[session.AuditEvent] {
		s := insert(&table.Audit)
		s.text += " ON CONFLICT DO NOTHING" // a gateway may report an event again
		return s
	}()
)
