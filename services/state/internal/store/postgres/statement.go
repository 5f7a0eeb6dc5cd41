package postgres

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/services/state/internal/store/table"
)

// statement is a text of SQL. Each connection prepares it before the first run.
type statement struct {
	name, text string
	single     *statement            // the same for one row; nil without an input
	in         input                 // of forRows and forViews
	on         func(v string) string // of forRows: the text on rows from the source v
	view       query                 // of forViews: the text without the source of the rows
}

func prepared(text string) *statement {
	digest := sha256.Sum256([]byte(text))
	return &statement{name: "holdfast_" + hex.EncodeToString(digest[:8]), text: text}
}

// input describes the rows of a statement's parameters.
type input []parameter

type parameter struct{ name, kind string }

var kinds = map[table.Kind]string{
	table.Text: "text", table.Integer: "bigint", table.Float: "float8", table.Boolean: "boolean", table.Bytes: "bytea",
}

// columnsOf is an input with the scope of a table and some of its columns.
func columnsOf[R any](t *table.Table[R], columns table.Columns[R]) (in input) {
	for _, name := range t.Scope {
		in = append(in, parameter{name, "text"})
	}
	for _, c := range columns {
		in = append(in, parameter{c.Name, kinds[c.Kind]})
	}
	return in
}

// keyed is an input with the key of a session and more parameters, as in
// "name kind, name kind".
func keyed(more string) input {
	in := input{{"tenant", "text"}, {"session_id", "text"}}
	if more == "" {
		return in
	}
	for column := range strings.SplitSeq(more, ", ") {
		name, kind, _ := strings.Cut(column, " ")
		in = append(in, parameter{name, kind})
	}
	return in
}

func (in input) names() string {
	names := make([]string, len(in))
	for i, p := range in {
		names[i] = p.name
	}
	return strings.Join(names, ", ")
}

// placeholders lists the parameters with their types, each followed by suffix. The first has the number first.
func (in input) placeholders(first int, suffix string) string {
	list := make([]string, len(in))
	for i, p := range in {
		list[i] = fmt.Sprintf("$%d::%s%s", first+i, p.kind, suffix)
	}
	return strings.Join(list, ", ")
}

// source is the FROM item v with the rows of the parameters, for each row of the CTE guard, if the condition holds. An empty
// guard is one row, and an empty condition always holds. Several rows are one array for each column. One row is plain
// parameters: the server runs no function and joins nothing, at half the costs.
func (in input) source(first int, single bool, guard, condition string) string {
	if condition != "" {
		condition = " WHERE " + condition
	}
	if single {
		if guard != "" {
			guard = " FROM " + guard
		}
		return fmt.Sprintf("(SELECT %s%s%s) AS v (%s)", in.placeholders(first, ""), guard, condition, in.names())
	}
	rows := "unnest(" + in.placeholders(first, "[]") + ")"
	if guard != "" {
		guard += ", "
	}
	if guard+condition != "" {
		rows = fmt.Sprintf("(SELECT u.* FROM %s%s AS u (%s)%s)", guard, rows, in.names(), condition)
	}
	return fmt.Sprintf("%s AS v (%s)", rows, in.names())
}

// forRows prepares a statement on rows of the input. on gets their source, with the alias v.
func forRows(in input, on func(v string) string) *statement {
	s := prepared(on(in.source(1, false, "", "")))
	s.single = prepared(on(in.source(1, true, "", "")))
	s.in, s.on = in, on
	return s
}

// forViews prepares a query of columns for the rows v of the input. The first column of
// the result is v.n, the number of the row in the input, from 1 on.
func forViews(columns string, in input, from string) *statement {
	columns = "v.n, " + columns
	text := func(single bool) string {
		return fmt.Sprintf("SELECT %s FROM %s", columns, in.numbered(1, single)+from)
	}
	s := prepared(text(false))
	s.single = prepared(text(true))
	s.in = in
	s.view = query{columns, from}
	return s
}

// numbered is source with the number of each row as its last column, n.
func (in input) numbered(first int, single bool) string {
	rows := "unnest(" + in.placeholders(first, "[]") + ") WITH ORDINALITY"
	if single {
		rows = "(SELECT " + in.placeholders(first, "") + ", 1::bigint)"
	}
	return fmt.Sprintf("%s AS v (%s, n)", rows, in.names())
}

// insert inserts whole rows. more follows the statement.
func insert[R any](t *table.Table[R], more string) *statement {
	in := columnsOf(t, t.All())
	return forRows(in, func(v string) string { return insertText(in, t.Name, v) + more })
}

func insertText(in input, into, v string) string {
	return fmt.Sprintf("INSERT INTO %s (%s) SELECT * FROM %s", into, in.names(), v)
}

// matches joins t to v by the columns of a key. The two conditions on v hold for
// every row. They make the planner expect few, and so begin with v.
func matches(key []string) string {
	list := []string{"v." + key[0] + " > ''", "v." + key[1] + " > ''"}
	for _, name := range key {
		list = append(list, "t."+name+" = v."+name)
	}
	return strings.Join(list, " AND ")
}

func updateText[R any](t *table.Table[R], columns table.Columns[R], v string) string {
	sets := make([]string, len(columns))
	for i, c := range columns {
		sets[i] = c.Name + " = v." + c.Name
	}
	return fmt.Sprintf("UPDATE %s t SET %s FROM %s WHERE %s", t.Name, strings.Join(sets, ", "), v, matches(t.Primary()))
}

// update writes columns over the rows with the key of t.
func update[R any](t *table.Table[R], columns table.Columns[R]) *statement {
	return forRows(columnsOf(t, slices.Concat(t.Key, columns)), func(v string) string { return updateText(t, columns, v) })
}

// updateAll is update, but fails unless it finds every row.
func updateAll[R any](t *table.Table[R], columns table.Columns[R]) *statement {
	in := columnsOf(t, slices.Concat(t.Key, columns))
	return forRows(in, func(v string) string { return exactly(updateText(t, columns, v), len(in)) })
}

// exactly adds a parameter to a statement: the number of rows to write. The statement
// fails with the SQLSTATE HF001 when it writes another number.
func exactly(statement string, parameters int) string {
	return fmt.Sprintf(`WITH done AS (%[1]s RETURNING 1)
		SELECT CASE WHEN count(*) <> $%[2]d::bigint THEN holdfast_missing_rows($%[2]d, count(*)) END FROM done`, statement, parameters+1)
}

// upsert is insert, or update where there is a row with the key.
func upsert[R any](t *table.Table[R]) *statement {
	in := columnsOf(t, t.All())
	return forRows(in, func(v string) string {
		return fmt.Sprintf("%s ON CONFLICT (%s) DO UPDATE SET %s", insertText(in, t.Name, v), strings.Join(t.Primary(), ", "), excluded(t))
	})
}

// excluded sets the changing columns to the values of a conflicting INSERT.
func excluded[R any](t *table.Table[R]) string {
	sets := make([]string, 0, len(t.Small))
	for _, c := range t.Changing() {
		sets = append(sets, c.Name+" = excluded."+c.Name)
	}
	return strings.Join(sets, ", ")
}

// deleteFrom deletes the rows with the values of the input.
func deleteFrom(in input, name string) *statement {
	var key []string
	for _, p := range in {
		key = append(key, p.name)
	}
	return forRows(in, func(v string) string {
		return fmt.Sprintf("DELETE FROM %s t USING %s WHERE %s", name, v, matches(key))
	})
}
