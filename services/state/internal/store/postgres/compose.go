package postgres

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-run/holdfast/services/state/internal/store/table"
)

// A transaction writes most of its rows in one statement, so the server begins, plans and answers once. The statement
// of a transaction depends on the tables with rows:
//
//	WITH known AS (UPDATE sessions … WHERE … xmin = … RETURNING 1),
//	   w1 AS (UPDATE runs … FROM (SELECT …parameters… FROM known) v …),
//	   w2 AS (INSERT INTO messages SELECT … FROM (SELECT …parameters… FROM known) v), …
//	SELECT (SELECT count(*) FROM known), pg_current_xact_id()::xid
//
// All parts have one snapshot and no order, except where one counts the rows of another. A part of unlocked sessions
// has no rows unless all their rows are unchanged. So a stale cache writes nothing, and raises no error.

// maxCompositions bounds the composed statements. Each connection prepares those that it runs. Beyond it, the rows of each
// table are written by a statement of their own.
const maxCompositions = 256

// composable are the kinds that can be parts of a composed statement. The others rarely occur, and depend on the order
// of the statements, or on the rows of others.
var composable = func() (list [writesNumber]bool) {
	for _, kind := range []int{
		sessionStepUnlocked, sessionUpdateUnlocked, sessionInsert, sessionStep, sessionUpdate, stateInsert, runStep, runUpdate, runBegin,
		runInsert, messageInsert, planDelete, resultDelete, planInsert, resultInsert, checkpointInsert, usageInsert, callInsert, callUpdate,
		childUpsert, storeDelete, storeUpsert, facetDelete, facetInsert, auditInsert, deliveryInsert,
	} {
		list[kind] = true
	}
	return list
}()

// follows names the parts that a part has to wait for, because both may write the same entry of a unique index.
var follows = map[int][]int{
	runBegin:     {runStep, runUpdate},
	runInsert:    {runStep, runUpdate, runBegin},
	planInsert:   {planDelete},
	resultInsert: {resultDelete},
}

// composition identifies a composed statement by sets of kinds.
type composition struct {
	kinds  uint64 // with rows
	single uint64 // with one row
}

func (c composition) has(kind int) bool { return c.kinds&(1<<kind) != 0 }

func (c composition) isSingle(kind int) bool { return c.single&(1<<kind) != 0 }

// composer keeps the composed statements of a store.
type composer struct {
	mu         sync.Mutex
	statements map[composition]*statement
	unions     map[string]*statement // by the names of their queries
}

// union returns one statement for the queries of a session; nil when there are too many.
func (c *composer) union(lookups []*lookup) *statement {
	var buffer [512]byte
	key := buffer[:0]
	for _, l := range lookups {
		key = append(key, l.query.name...)
		if l.count == 1 {
			key = append(key, '1')
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.unions[string(key)]
	if s == nil && len(c.unions) < maxCompositions {
		parts := make([]string, len(lookups))
		next := 1 // the number of the next parameter
		for i, l := range lookups {
			parts[i] = query{l.query.view.columns, l.query.in.numbered(next, l.count == 1) + l.query.view.from}.part(i)
			next += len(l.query.in)
		}
		if c.unions == nil {
			c.unions = map[string]*statement{}
		}
		s = prepared(strings.Join(parts, "\n\tUNION ALL "))
		c.unions[string(key)] = s
	}
	return s
}

// statement returns the statement of a composition; nil when there are too many.
func (c *composer) statement(of composition) *statement {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.statements[of]
	if s == nil && len(c.statements) < maxCompositions {
		if c.statements == nil {
			c.statements = map[composition]*statement{}
		}
		s = prepared(of.text())
		c.statements[of] = s
	}
	return s
}

// text composes the statement. Its parameters are those of the kinds, in their order. Its result is a row: the number of
// unlocked sessions that were unchanged, and the id of the transaction.
func (c composition) text() string {
	var with []string
	guard := ""          // has one row if all unlocked sessions are unchanged, and none otherwise
	known := "0::bigint" // how many are
	next := 1            // the number of the next parameter
	for kind, s := range writes {
		if !c.has(kind) {
			continue
		}
		unlocked := kind == sessionStepUnlocked || kind == sessionUpdateUnlocked
		if unlocked {
			guard, known = "known", "(SELECT count(*) FROM known)"
		}
		if unlocked && c.isSingle(kind) {
			with = append(with, "known AS ("+s.on(s.in.source(next, true, "", ""))+" AND "+unchanged("t")+" RETURNING 1)")
			next += len(s.in)
			continue
		}
		if unlocked {
			// No session is written unless all are unchanged, so they are locked first, in the order of their keys.
			guard = "ready"
			with = append(with, fmt.Sprintf(`known AS MATERIALIZED (SELECT 1 FROM %s CROSS JOIN LATERAL (SELECT 1 FROM sessions t
				WHERE t.tenant = v.tenant AND t.session_id = v.session_id AND %s FOR UPDATE) s)`,
				s.in.source(next, false, "", ""), unchanged("t")))
			with = append(with, fmt.Sprintf("ready AS MATERIALIZED (SELECT 1 WHERE %s = cardinality($%d::text[]))", known, next))
		}
		var conditions []string
		for _, earlier := range follows[kind] {
			if c.has(earlier) {
				conditions = append(conditions, fmt.Sprintf("(SELECT count(*) FROM w%d) >= 0", earlier))
			}
		}
		part := s.on(s.in.source(next, c.isSingle(kind), guard, strings.Join(conditions, " AND ")))
		if c.isFollowed(kind) {
			part += " RETURNING 1" // the count reads them
		}
		with = append(with, fmt.Sprintf("w%d AS (%s)", kind, part))
		next += len(s.in)
	}
	return fmt.Sprintf("WITH %s SELECT %s, pg_current_xact_id()::xid", strings.Join(with, ",\n"), known)
}

// isFollowed reports whether another part has to wait for the kind.
func (c composition) isFollowed(kind int) bool {
	for later, earlier := range follows {
		if c.has(later) && slices.Contains(earlier, kind) {
			return true
		}
	}
	return false
}

// unchanged is the condition that the last write and lock of a session's row t are of the transaction v.written.
func unchanged(t string) string {
	return fmt.Sprintf("%[1]s.xmin = v.written AND (%[1]s.xmax = 0 OR %[1]s.xmax = %[1]s.xmin)", t)
}

// updateUnlocked is update of rows with the id of their last transaction, written, which composition.text compares.
func updateUnlocked[R any](t *table.Table[R], columns table.Columns[R]) *statement {
	in := append(columnsOf(t, append(t.Key[:len(t.Key):len(t.Key)], columns...)), parameter{"written", "xid"})
	return forRows(in, func(v string) string { return updateText(t, columns, v) })
}
