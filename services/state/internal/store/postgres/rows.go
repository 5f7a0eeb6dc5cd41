package postgres

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// table is the name of a table and its columns with the types of their
// parameters. Rows are written and read in the order of the columns, by the
// functions beside each table.
type table struct {
	name    string
	columns [][2]string
}

// columns reads "name type, name type".
func columns(name string, list ...string) table {
	t := table{name: name}
	for column := range strings.SplitSeq(strings.Join(list, ", "), ",") {
		column, kind, _ := strings.Cut(strings.TrimSpace(column), " ")
		t.columns = append(t.columns, [2]string{column, kind})
	}
	return t
}

func (t table) names(prefix string) string { return t.namesBut(prefix, "") }

// namesBut reads the empty text in place of a column that is not wanted.
func (t table) namesBut(prefix, unwanted string) string {
	names := make([]string, len(t.columns))
	for i, c := range t.columns {
		names[i] = prefix + c[0]
		if c[0] == unwanted {
			names[i] = "''::text"
		}
	}
	return strings.Join(names, ", ")
}

// unnest makes rows of one array parameter for each column.
func (t table) unnest() string {
	params := make([]string, len(t.columns))
	for i, c := range t.columns {
		params[i] = fmt.Sprintf("$%d::%s[]", i+1, c[1])
	}
	return "unnest(" + strings.Join(params, ", ") + ")"
}

func (t table) insert() string {
	return fmt.Sprintf("INSERT INTO %s (%s) SELECT * FROM %s AS v", t.name, t.names(""), t.unnest())
}

// matches joins t to v by the first key columns. The two conditions on v hold
// for every row; they make the planner expect few, and so begin with v.
func (t table) matches(key int) string {
	list := []string{"v." + t.columns[0][0] + " > ''", "v." + t.columns[1][0] + " > ''"}
	for _, c := range t.columns[:key] {
		list = append(list, "t."+c[0]+" = v."+c[0])
	}
	return strings.Join(list, " AND ")
}

// update writes the columns behind the key over the rows with the key.
func (t table) update(key int) string {
	var sets []string
	for _, c := range t.columns[key:] {
		sets = append(sets, c[0]+" = v."+c[0])
	}
	return fmt.Sprintf("UPDATE %s t SET %s FROM %s AS v (%s) WHERE %s",
		t.name, strings.Join(sets, ", "), t.unnest(), t.names(""), t.matches(key))
}

// updateKnown is update for rows that the transaction in their last column, written, was the
// last to write and to lock. It fails when one is not. It returns the transaction's own id.
func (t table) updateKnown(key int) string {
	known := table{t.name, append(slices.Clip(t.columns), [2]string{"written", "bigint"})}
	var sets []string
	for _, c := range t.columns[key:] {
		sets = append(sets, c[0]+" = v."+c[0])
	}
	update := fmt.Sprintf("UPDATE %s t SET %s FROM %s AS v (%s) WHERE %s AND t.xmin = v.written::int AND (t.xmax = 0 OR t.xmax = t.xmin)",
		t.name, strings.Join(sets, ", "), known.unnest(), known.names(""), t.matches(key))
	return exactly(update, len(known.columns), "pg_current_xact_id()::xid")
}

// exactly makes a statement fail that does not write as many rows as the
// parameter behind its own says.
func exactly(statement string, params int, more ...string) string {
	gives := append([]string{fmt.Sprintf("1 / (count(*) = $%d::bigint)::int", params+1)}, more...)
	return fmt.Sprintf("WITH done AS (%s RETURNING 1) SELECT %s FROM done", statement, strings.Join(gives, ", "))
}

// upsert is insert, or update where there is a row with the key.
func (t table) upsert(key int) string {
	var keys, sets []string
	for i, c := range t.columns {
		if i < key {
			keys = append(keys, c[0])
		} else {
			sets = append(sets, c[0]+" = excluded."+c[0])
		}
	}
	return fmt.Sprintf("%s ON CONFLICT (%s) DO UPDATE SET %s", t.insert(), strings.Join(keys, ", "), strings.Join(sets, ", "))
}

// delete takes the rows with the key away, which is all columns.
func (t table) delete() string {
	return fmt.Sprintf("DELETE FROM %s t USING %s AS v (%s) WHERE %s", t.name, t.unnest(), t.names(""), t.matches(len(t.columns)))
}

// asked are the rows of the views that want something, with what each names,
// and their place n.
func asked(more ...string) string {
	t := columns("", append([]string{keyColumns}, more...)...)
	return fmt.Sprintf("%s WITH ORDINALITY AS v (%s, n)", t.unnest(), t.names(""))
}

const keyColumns = "tenant text, session_id text"

// What of a session never changes, what changes with a step, and what changes
// rarely and may be large.
const (
	sessionBirth = "agent_type text, parent_id text, root_id text, created_at bigint"
	sessionPace  = `status text, version bigint, epoch bigint, turn bigint, step_count bigint, resume_count bigint, message_count bigint,
		state_version bigint, state_base bigint, state_writes bigint, state_bytes bigint,
		current_run_id text, checkpoint_id text, children bigint, waiting bigint, usage_count bigint, updated_at bigint, expires_at bigint,
		position bigint, claims bigint`
	sessionRest = `output text, failure text, suspension_context text, interruption text, user_id text, organization_id text, tags text, metadata text`
)

var (
	sessionPaces = columns("sessions", keyColumns, sessionPace)
	sessionEdits = columns("sessions", keyColumns, sessionPace, sessionRest)
	sessionRows  = columns("sessions", keyColumns, sessionPace, sessionRest, sessionBirth)
	sessionShown = columns("sessions", sessionPace, sessionRest, sessionBirth)
)

func (r *rows) key(k session.Key) *rows { return r.text(k.Tenant, k.SessionID) }

func (r *rows) sessionPace(s *session.Session) *rows {
	return r.key(s.Key).text(string(s.Status)).
		number(s.Version, s.Epoch, int64(s.Turn), int64(s.StepCount), int64(s.ResumeCount), s.MessageCount,
			s.StateVersion, s.StateBase, int64(s.StateWrites), s.StateBytes).
		text(s.CurrentRunID, s.CheckpointID).
		number(int64(s.Children), int64(s.Waiting), int64(s.UsageCount), int64(s.UpdatedAt), int64(s.ExpiresAt),
			s.Position, int64(s.Claims))
}

func (r *rows) sessionEdit(s *session.Session) *rows {
	return r.sessionPace(s).text(s.Output).json(store.In(&s.Failure)).json(store.In(&s.Suspension)).json(store.In(&s.Interruption)).
		text(s.UserID, s.OrganizationID).json(store.In(&s.Tags)).json(store.In(&s.Metadata))
}

func (r *rows) session(s *session.Session) *rows {
	return r.sessionEdit(s).text(s.AgentType, s.ParentID, s.RootID).number(int64(s.CreatedAt))
}

func (r *row) session(s *session.Session) {
	s.Status, s.Version, s.Epoch = session.Status(r.text()), r.number(), r.number()
	s.Turn, s.StepCount, s.ResumeCount, s.MessageCount = r.small(), r.small(), r.small(), r.number()
	s.StateVersion, s.StateBase, s.StateWrites, s.StateBytes = r.number(), r.number(), r.small(), r.number()
	s.CurrentRunID, s.CheckpointID = r.text(), r.text()
	s.Children, s.Waiting, s.UsageCount = r.small(), r.small(), r.small()
	s.UpdatedAt, s.ExpiresAt = session.Millis(r.number()), session.Millis(r.number())
	s.Position, s.Claims = r.number(), r.small()
	s.Output = r.text()
	r.json(store.In(&s.Failure))
	r.json(store.In(&s.Suspension))
	r.json(store.In(&s.Interruption))
	s.UserID, s.OrganizationID = r.text(), r.text()
	r.json(store.In(&s.Tags))
	r.json(store.In(&s.Metadata))
	s.AgentType, s.ParentID, s.RootID, s.CreatedAt = r.text(), r.text(), r.text(), session.Millis(r.number())
}

const (
	runBirth = `agent_type text, entry text, request_key text, request_hash bytea, message_id text, traceparent text, tracestate text,
		created_at bigint, deadline_at bigint, on_busy text, place bigint`
	runLife = `turn bigint, status text, step_count bigint, output text, failure text, completion_reason text, attempt bigint,
		epoch bigint, executor_id text, claimed_at bigint, finish_step bigint, finish_version bigint, stop text, due_at bigint, losses bigint,
		started_at bigint, completed_at bigint, start_message_count bigint, start_state_version bigint, start_state_base bigint,
		turn_message_count bigint, finish_reason text, start_position bigint, end_position bigint, usage text`
)

var (
	runLives = columns("runs", keyColumns, "run_id text", runLife)
	runRows  = columns("runs", keyColumns, "run_id text", runLife, runBirth)
	runPaces = columns("runs", keyColumns, "run_id text", "step_count bigint, losses bigint")
	runShown = columns("runs", "run_id text", runLife, runBirth)
)

func (r *rows) runLife(k session.Key, x *session.Run) *rows {
	return r.key(k).text(x.RunID).number(int64(x.Turn)).text(string(x.Status)).number(int64(x.StepCount)).
		text(x.Outcome.Output).json(store.In(&x.Outcome.Failure)).text(x.Outcome.CompletionReason).
		number(int64(x.Attempt), x.Epoch).text(x.ExecutorID).
		number(int64(x.ClaimedAt), int64(x.FinishStep), x.FinishVersion).json(store.In(&x.Stop)).
		number(int64(x.DueAt), int64(x.Losses), int64(x.StartedAt), int64(x.CompletedAt), x.StartMessageCount, x.StartStateVersion, x.StartStateBase, x.TurnMessageCount).
		text(x.Outcome.FinishReason).number(x.StartPosition, x.EndPosition).json(store.In(&x.Outcome.Usage))
}

func (r *rows) run(k session.Key, x *session.Run) *rows {
	return r.runLife(k, x).text(x.AgentType, string(x.Entry), x.RequestKey).bytes(x.RequestHash).
		text(x.MessageID, x.Traceparent, x.Tracestate).number(int64(x.CreatedAt), int64(x.DeadlineAt)).text(string(x.OnBusy)).number(x.Place)
}

func (r *row) run() *session.Run {
	x := &session.Run{}
	x.RunID, x.Turn, x.Status, x.StepCount = r.text(), r.small(), session.RunStatus(r.text()), r.small()
	x.Outcome.Output = r.text()
	r.json(store.In(&x.Outcome.Failure))
	x.Outcome.CompletionReason = r.text()
	x.Attempt, x.Epoch, x.ExecutorID = r.small(), r.number(), r.text()
	x.ClaimedAt, x.FinishStep, x.FinishVersion = session.Millis(r.number()), r.small(), r.number()
	r.json(store.In(&x.Stop))
	x.DueAt, x.Losses = session.Millis(r.number()), r.small()
	x.StartedAt, x.CompletedAt = session.Millis(r.number()), session.Millis(r.number())
	x.StartMessageCount, x.StartStateVersion, x.StartStateBase, x.TurnMessageCount = r.number(), r.number(), r.number(), r.number()
	x.Outcome.FinishReason = r.text()
	x.StartPosition, x.EndPosition = r.number(), r.number()
	r.json(store.In(&x.Outcome.Usage))
	x.AgentType, x.Entry = r.text(), session.Entry(r.text())
	x.RequestKey, x.RequestHash = r.text(), r.bytes()
	x.MessageID, x.Traceparent, x.Tracestate = r.text(), r.text(), r.text()
	x.CreatedAt, x.DeadlineAt = session.Millis(r.number()), session.Millis(r.number())
	x.OnBusy, x.Place = session.BusyPolicy(r.text()), r.number()
	if x.Status.Over() {
		x.Outcome.Status = x.Status
	}
	return x
}

const messageColumns = "ordinal bigint, message_id text, role text, run_id text, step bigint, created_at bigint, body bytea"

var (
	messageRows  = columns("messages", keyColumns, messageColumns, "size bigint")
	messageShown = columns("messages", messageColumns)
)

func (r *rows) message(k session.Key, m *session.Message) *rows {
	return r.key(k).number(m.Ordinal).text(m.ID, m.Role, m.RunID).number(int64(m.Step), int64(m.CreatedAt)).bytes(m.Body).number(int64(len(m.Body)))
}

func (r *row) message() session.Message {
	return session.Message{
		Ordinal: r.number(), ID: r.text(), Role: r.text(), RunID: r.text(), Step: r.small(), CreatedAt: session.Millis(r.number()), Body: r.bytes(),
	}
}

const checkpointColumns = `checkpoint_id text, run_id text, step bigint, epoch bigint, version bigint, message_count bigint,
	status text, state_version bigint, state_base bigint, warnings text, created_at bigint`

var (
	checkpointRows  = columns("checkpoints", keyColumns, checkpointColumns, "record bytea")
	checkpointShown = columns("checkpoints", checkpointColumns)
)

func (r *rows) checkpoint(k session.Key, c *session.Checkpoint) *rows {
	return r.key(k).text(c.ID, c.RunID).number(int64(c.Step), c.Epoch, c.Version, c.MessageCount).
		text(string(c.Status)).number(c.StateVersion, c.StateBase).json(store.In(&c.Warnings)).number(int64(c.CreatedAt)).bytes(c.Record)
}

func (r *row) checkpoint() *session.Checkpoint {
	c := &session.Checkpoint{
		ID: r.text(), RunID: r.text(), Step: r.small(), Epoch: r.number(), Version: r.number(), MessageCount: r.number(),
		Status: session.Status(r.text()), StateVersion: r.number(), StateBase: r.number(),
	}
	r.json(store.In(&c.Warnings))
	c.CreatedAt = session.Millis(r.number())
	return c
}
