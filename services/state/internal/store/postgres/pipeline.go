package postgres

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// statement is a text of SQL. A connection prepares it on the way when it first
// runs it, and keeps its plan.
type statement struct {
	name, text string
	one        *statement // the same for a single row; nil for a statement that takes no rows
}

func prepared(text string) *statement {
	digest := sha256.Sum256([]byte(text))
	s := &statement{name: "holdfast_" + hex.EncodeToString(digest[:8]), text: text}
	if single := single(text); single != text {
		s.one = prepared(single)
	}
	return s
}

var unnested = regexp.MustCompile(`unnest\(([^)]*)\)( WITH ORDINALITY)?`)

// single rewrites what unnests arrays to take one row from plain parameters. It
// costs the server about half: no function is run and nothing is joined.
func single(text string) string {
	return unnested.ReplaceAllStringFunc(text, func(call string) string {
		parts := unnested.FindStringSubmatch(call)
		values := strings.ReplaceAll(parts[1], "[]", "")
		if parts[2] != "" {
			values += ", 1::bigint"
		}
		return "(SELECT " + values + ")"
	})
}

var (
	begin    = prepared(`BEGIN`)
	commit   = prepared(`COMMIT`)
	rollback = prepared(`ROLLBACK`)
	snapshot = prepared(`BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY`)
)

// pipeline is statements that travel to the server together and are answered
// together. Without a BEGIN among them they are one transaction. After an error
// the server passes over the rest.
type pipeline struct {
	steps []step
	gave  bool // a row was read
}

type step struct {
	statement *statement
	params    [][]byte
	scan      func(*row) // reads one row; nil: the rows are ignored
	affected  *int64     // gets the number of affected rows; nil: it is not wanted
}

// queue adds a statement, and the function that reads each of its rows.
func (p *pipeline) queue(s *statement, params [][]byte, scan func(*row)) {
	p.steps = append(p.steps, step{statement: s, params: params, scan: scan})
}

// each adds a statement that is run for all the rows.
func (p *pipeline) each(s *statement, r *rows, scan func(*row)) {
	if r.count == 1 && s.one != nil {
		p.queue(s.one, r.single(), scan)
		return
	}
	p.queue(s, r.params(), scan)
}

// exactly adds a statement that is run for all the rows, and fails when it does
// not write so many.
func (p *pipeline) exactly(s *statement, r *rows, n int64, scan func(*row)) {
	p.each(s, r, scan)
	last := &p.steps[len(p.steps)-1]
	last.params = append(last.params, number(n))
}

// exec adds a statement that has no rows.
func (p *pipeline) exec(s *statement, params ...[]byte) { p.queue(s, params, nil) }

// count adds a statement that has no rows; to gets how many it has written.
func (p *pipeline) count(s *statement, to *int64, params ...[]byte) {
	p.steps = append(p.steps, step{statement: s, params: params, affected: to})
}

// inBinary is the format of all parameters and columns.
var inBinary = []int16{1}

// memory is what is remembered of a connection.
type memory struct {
	statements map[string]*pgconn.StatementDescription // prepared, by name
	replan     time.Time                               // when its plans are too old
	age        time.Duration                           // that they reach before
	sent       traffic
}

// traffic counts what a connection has sent.
type traffic struct{ statements, trips int }

// Plans are made anew, at first soon and then every oldestPlan: a plan that was
// best while a table was all but empty is not when it has filled.
const (
	youngestPlan = time.Second
	oldestPlan   = time.Minute
)

func memoryOf(conn *pgconn.PgConn) *memory {
	const key = "holdfast"
	m, ok := conn.CustomData()[key].(*memory)
	if !ok {
		m = &memory{statements: map[string]*pgconn.StatementDescription{}, replan: time.Now().Add(youngestPlan), age: youngestPlan}
		conn.CustomData()[key] = m
	}
	return m
}

// outdated reports whether the plans are to be discarded now.
func (m *memory) outdated() bool {
	now := time.Now()
	if now.Before(m.replan) {
		return false
	}
	m.age = min(2*m.age, oldestPlan)
	m.replan = now.Add(m.age)
	return true
}

// run sends the statements, reads what they answer, and empties the pipeline.
func (p *pipeline) run(ctx context.Context, conn *pgconn.PgConn) error {
	defer func() { p.steps = p.steps[:0] }()
	m := memoryOf(conn)
	have := m.statements
	if m.outdated() {
		// By itself, since some of what follows has to be the first of a transaction.
		if _, err := conn.Exec(ctx, `DISCARD PLANS`).ReadAll(); err != nil {
			return err
		}
	}
	m.sent.trips++
	m.sent.statements += len(p.steps)
	pipe := conn.StartPipeline(ctx)
	var asked []string
	for i := range p.steps {
		s := &p.steps[i]
		if description := have[s.statement.name]; description != nil {
			pipe.SendQueryStatement(description, s.params, inBinary, inBinary)
			continue
		}
		if !slices.Contains(asked, s.statement.name) {
			pipe.SendPrepare(s.statement.name, s.statement.text, nil)
			asked = append(asked, s.statement.name)
		}
		pipe.SendQueryPrepared(s.statement.name, s.params, inBinary, inBinary)
	}
	err := pipe.Sync()
	if err == nil {
		err = p.read(pipe, have)
	}
	if closing := pipe.Close(); err == nil {
		err = closing
	}
	return err
}

// read reads the answers in their order. What the server passes over after an
// error it has not prepared either; a row that cannot be read is no such error.
func (p *pipeline) read(pipe *pgconn.Pipeline, have map[string]*pgconn.StatementDescription) error {
	var broken error
	for i := range p.steps {
		s := &p.steps[i]
		results, err := pipe.GetResults()
		if description, isNew := results.(*pgconn.StatementDescription); isNew {
			description.Name, description.SQL = s.statement.name, s.statement.text
			have[s.statement.name] = description
			results, err = pipe.GetResults()
		}
		if err != nil {
			return err
		}
		reader, ok := results.(*pgconn.ResultReader)
		if !ok {
			return fmt.Errorf("the server answers %q with %T", s.statement.text, results)
		}
		unread, err := p.rows(s, reader)
		if err != nil {
			return err
		}
		broken = cmp.Or(broken, unread)
	}
	return broken
}

// rows returns the first row that could not be read, and what the server says.
func (p *pipeline) rows(s *step, reader *pgconn.ResultReader) (broken, err error) {
	for reader.NextRow() {
		if s.scan == nil || broken != nil {
			continue
		}
		p.gave = true
		r := row{values: reader.Values()}
		s.scan(&r)
		broken = r.err
	}
	tag, err := reader.Close()
	if s.affected != nil {
		*s.affected = tag.RowsAffected()
	}
	return broken, err
}
