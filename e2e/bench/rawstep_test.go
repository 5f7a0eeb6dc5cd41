package bench_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "modernc.org/sqlite" // the driver of the raw SQLite baseline
)

// rawConnections is a sensible connection pool on this machine: a larger one was slower.
const rawConnections = 32

// The rows of a step in an application without a state service.
const rawStepSchema = `
CREATE TABLE raw_step_sessions (tenant text, id text, status text NOT NULL, version bigint NOT NULL, epoch bigint NOT NULL, step_count int NOT NULL,
	message_count bigint NOT NULL, stream_sequence bigint NOT NULL, updated_at bigint NOT NULL, PRIMARY KEY (tenant, id)) %[1]s;
CREATE TABLE raw_step_runs (tenant text, session_id text, run_id text, status text NOT NULL, step_count int NOT NULL, PRIMARY KEY (tenant, session_id, run_id)) %[1]s;
CREATE TABLE raw_step_messages (tenant text, session_id text, ordinal bigint, message_id text NOT NULL, role text NOT NULL, run_id text NOT NULL,
	step int NOT NULL, created_at bigint NOT NULL, body %[2]s NOT NULL, PRIMARY KEY (tenant, session_id, ordinal), UNIQUE (tenant, session_id, message_id));
CREATE TABLE raw_step_checkpoints (tenant text, session_id text, step int, checkpoint_id text NOT NULL, run_id text NOT NULL, version bigint NOT NULL,
	message_count bigint NOT NULL, stream_sequence bigint NOT NULL, status text NOT NULL, created_at bigint NOT NULL, PRIMARY KEY (tenant, session_id, step));
CREATE TABLE raw_step_usage (tenant text, session_id text, run_id text, step int, position int, recorded_at bigint NOT NULL, model text NOT NULL,
	prompt bigint NOT NULL, completion bigint NOT NULL, total bigint NOT NULL, PRIMARY KEY (tenant, session_id, run_id, step, position));`

// rawStatement is a statement of a step commit; $1 is the session, $2 the step.
type rawStatement struct {
	text string
	args func(session string, n int) []any
}

var rawBody = make([]byte, bodyBytes)

func keyAnd(extra ...any) func(string, int) []any {
	return func(session string, n int) []any { return append([]any{session, n}, extra...) }
}

var rawStatements = []rawStatement{
	{`UPDATE raw_step_sessions SET version = version + 1, step_count = CAST($2 AS bigint), message_count = message_count + 2, stream_sequence = CAST($2 AS bigint), updated_at = CAST($2 AS bigint)
		WHERE tenant = 'bench' AND id = $1`, keyAnd()},
	{`UPDATE raw_step_runs SET step_count = CAST($2 AS bigint) WHERE tenant = 'bench' AND session_id = $1 AND run_id = 'run'`, keyAnd()},
	{`INSERT INTO raw_step_messages VALUES ('bench', $1, 2 * CAST($2 AS bigint), 'a' || CAST($2 AS bigint), 'assistant', 'run', CAST($2 AS bigint), CAST($2 AS bigint), $3), ('bench', $1, 2 * CAST($2 AS bigint) + 1, 't' || CAST($2 AS bigint), 'tool', 'run', CAST($2 AS bigint), CAST($2 AS bigint), $3)`, keyAnd(rawBody)},
	{`INSERT INTO raw_step_checkpoints VALUES ('bench', CAST($1 AS text), CAST($2 AS bigint), 'cpv1-' || CAST($1 AS text) || '-s' || CAST($2 AS bigint), 'run', CAST($2 AS bigint), 2 * CAST($2 AS bigint), CAST($2 AS bigint), 'active', CAST($2 AS bigint))`, keyAnd()},
	{`INSERT INTO raw_step_usage VALUES ('bench', $1, 'run', CAST($2 AS bigint), 0, CAST($2 AS bigint), 'm', 10, 5, 15)`, keyAnd()},
}

// rawLock reads what an application must know before it writes.
const rawLock = `SELECT s.epoch, s.step_count, r.status FROM raw_step_sessions s JOIN raw_step_runs r ON r.tenant = s.tenant AND r.session_id = s.id
	WHERE s.tenant = 'bench' AND s.id = $1`

type rawStore struct {
	pool  *pgxpool.Pool
	round int
}

func newRawStore(b *testing.B, address string) *rawStore {
	b.Helper()
	u, err := url.Parse(address)
	if err != nil {
		b.Fatal(err)
	}
	q := u.Query()
	q.Set("pool_max_conns", fmt.Sprint(rawConnections))
	u.RawQuery = q.Encode()
	pool, err := pgxpool.New(b.Context(), u.String())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(pool.Close)
	if _, err := pool.Exec(b.Context(), fmt.Sprintf(rawStepSchema, "WITH (fillfactor = 80)", "bytea")); err != nil {
		b.Fatal(err)
	}
	return &rawStore{pool: pool}
}

// commits lets n clients commit steps, each in its own session.
func (r *rawStore) commits(b *testing.B, n int, commit func(ctx context.Context, session string, n int) error) *measured {
	b.Helper()
	r.round++
	names, steps := make([]string, n), make([]int, n)
	for i := range names {
		names[i] = fmt.Sprintf("raw-%d-%d", r.round, i)
		for _, insert := range []string{
			`INSERT INTO raw_step_sessions VALUES ('bench', $1, 'active', 1, 1, 0, 0, 0, 0)`,
			`INSERT INTO raw_step_runs VALUES ('bench', $1, 'run', 'running', 0)`,
		} {
			if _, err := r.pool.Exec(b.Context(), insert, names[i]); err != nil {
				b.Fatal(err)
			}
		}
	}
	return measure(b, n, func(ctx context.Context, client int) error {
		steps[client]++
		return commit(ctx, names[client], steps[client])
	})
}

// statements is a transaction with one round trip per statement.
func (r *rawStore) statements(ctx context.Context, session string, n int) error {
	return pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
		var epoch, steps int64
		var status string
		if err := tx.QueryRow(ctx, rawLock+` FOR UPDATE OF s`, session).Scan(&epoch, &steps, &status); err != nil {
			return err
		}
		for _, s := range rawStatements {
			if _, err := tx.Exec(ctx, s.text, s.args(session, n)...); err != nil {
				return err
			}
		}
		return nil
	})
}

// pipelined is the same transaction in one round trip: no decision depends on the read rows.
func (r *rawStore) pipelined(ctx context.Context, session string, n int) error {
	var batch pgx.Batch
	batch.Queue(rawLock+` FOR UPDATE OF s`, session)
	for _, s := range rawStatements {
		batch.Queue(s.text, s.args(session, n)...)
	}
	return r.pool.SendBatch(ctx, &batch).Close() // an implicit transaction
}

// rawLite is the same on SQLite, through one writing connection with statements prepared once.
type rawLite struct {
	db    *sql.DB
	lock  *sql.Stmt
	write []*sql.Stmt
	round int
}

func newRawLite(b *testing.B, path string) *rawLite {
	b.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		b.Fatal(err)
	}
	db.SetMaxOpenConns(1)
	b.Cleanup(func() { _ = db.Close() })
	if _, err := db.ExecContext(b.Context(), fmt.Sprintf(rawStepSchema, "", "blob")); err != nil {
		b.Fatal(err)
	}
	r := &rawLite{db: db}
	if r.lock, err = db.PrepareContext(b.Context(), numbered(rawLock)); err != nil {
		b.Fatal(err)
	}
	for _, s := range rawStatements {
		stmt, err := db.PrepareContext(b.Context(), numbered(s.text)) //nolint:sqlclosecheck // goes with the database
		if err != nil {
			b.Fatal(err)
		}
		r.write = append(r.write, stmt)
	}
	return r
}

// numbered rewrites the parameters to SQLite's numbered form.
func numbered(statement string) string { return strings.ReplaceAll(statement, "$", "?") }

func (r *rawLite) commits(b *testing.B, n int) *measured {
	b.Helper()
	r.round++
	names, steps := make([]string, n), make([]int, n)
	for i := range names {
		names[i] = fmt.Sprintf("raw-%d-%d", r.round, i)
		_, err := r.db.ExecContext(b.Context(), `INSERT INTO raw_step_sessions VALUES ('bench', $1, 'active', 1, 1, 0, 0, 0, 0);
			INSERT INTO raw_step_runs VALUES ('bench', $1, 'run', 'running', 0)`, names[i])
		if err != nil {
			b.Fatal(err)
		}
	}
	return measure(b, n, func(ctx context.Context, client int) error {
		steps[client]++
		return r.commit(ctx, names[client], steps[client])
	})
}

func (r *rawLite) commit(ctx context.Context, session string, n int) error {
	ctx = context.WithoutCancel(ctx) // watching a context costs the driver time at each statement
	tx, err := r.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // no effect after a commit
	var epoch, steps int64
	var status string
	//nolint:sqlclosecheck // goes with the transaction, as those below
	if err := tx.StmtContext(ctx, r.lock).QueryRowContext(ctx, session).Scan(&epoch, &steps, &status); err != nil {
		return err
	}
	for i, s := range rawStatements {
		//nolint:sqlclosecheck // see above
		if _, err := tx.StmtContext(ctx, r.write[i]).ExecContext(ctx, s.args(session, n)...); err != nil {
			return err
		}
	}
	return tx.Commit()
}
