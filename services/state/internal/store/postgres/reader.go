package postgres

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
	"github.com/holdfast-run/holdfast/services/state/internal/store/table"
)

// ownedReader implements store.Reader for the sessions of one user, or of all if the owner is empty.
type ownedReader struct {
	*Store
	owner string
}

// OwnedBy implements store.Reader.
func (s ownedReader) OwnedBy(user string) store.Reader { return ownedReader{s.Store, user} }

// hides reports whether the session of a user does not exist for the reader.
func (s ownedReader) hides(user string) bool { return s.owner != "" && user != s.owner }

// readRetrying runs read-only queries. The database may have closed an idle connection
// unnoticed. As long as no query has returned a row, it retries on another connection,
// as often as the pool has connections.
func (s *Store) readRetrying(ctx context.Context, f func(*pipeline)) error {
	for tries := int32(0); ; tries++ {
		var p pipeline
		ended := false
		err := s.withConn(ctx, func(conn *pgx.Conn) error {
			f(&p)
			err := p.run(ctx, conn)
			if ended = conn.IsClosed(); err != nil && !ended {
				rollBack(ctx, conn)
			}
			return err
		})
		if err == nil || !ended || p.gotRow || ctx.Err() != nil || tries == s.pool.Stat().MaxConns() {
			return asUnavailable(err)
		}
	}
}

// query runs a read-only query, and scans each row of the result.
func (s *Store) query(ctx context.Context, query *statement, scan func(pgx.CollectableRow) error, args ...any) error {
	return s.readRetrying(ctx, func(p *pipeline) { p.queue(query, args, scan) })
}

// scanEach returns a scan into a new T, followed by take.
func scanEach[T any](destinations func([]any, *T) []any, take func(*T)) func(pgx.CollectableRow) error {
	return func(row pgx.CollectableRow) error {
		item := new(T)
		err := row.Scan(destinations(nil, item)...)
		take(item)
		return err
	}
}

// scanRuns is scanEach for columns of runs.
func scanRuns(columns table.Columns[session.Run], take func(*session.Run)) func(pgx.CollectableRow) error {
	return scanEach(columns.Destinations, func(run *session.Run) {
		fillOutcome(run)
		take(run)
	})
}

// scanInto returns a scan into fixed destinations.
func scanInto(to ...any) func(pgx.CollectableRow) error {
	return func(row pgx.CollectableRow) error { return row.Scan(to...) }
}

// execute runs the statements queued by f as one transaction, in one round trip. It
// retries conflicts with other transactions.
func (s *Store) execute(ctx context.Context, f func(*pipeline)) error {
	return s.withConn(ctx, func(conn *pgx.Conn) (err error) {
		for range attempts {
			var p pipeline
			f(&p)
			if err = p.run(ctx, conn); !isConflict(err) {
				break
			}
		}
		return asUnavailable(err)
	})
}

func (s *Store) withConn(ctx context.Context, f func(*pgx.Conn) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	return f(conn.Conn())
}

var ofSession = `sessions s WHERE s.tenant = $1::text AND s.session_id = $2::text`

// head is the first query of a union for readOf.
var head = query{`s.message_count, s.user_id`, ofSession}

// readOf runs a union of head and other queries for rows of a session. It returns the number of the session's
// messages. NotFound (SESSION_NOT_FOUND).
func (s ownedReader) readOf(
	ctx context.Context,
	key session.Key,
	union *statement,
	args []any,
	scans ...func(pgx.CollectableRow) error,
) (messages int64, err error) {
	known, user := false, ""
	scanHead := func(row pgx.CollectableRow) error {
		known = true
		return row.Scan(&messages, &user)
	}
	err = s.query(ctx, union, scanParts(append([]func(pgx.CollectableRow) error{scanHead}, scans...)...), arguments(key, args...)...)
	if err == nil && (!known || s.hides(user)) {
		err = session.SessionNotFound(key)
	}
	return messages, err
}

// arguments returns the key of a session, and more, as arguments.
func arguments(key session.Key, more ...any) []any {
	return append([]any{key.Tenant, key.SessionID}, more...)
}

var (
	sessionQuery = query{sessionColumns.Select("s"), ofSession}
	newestQuery  = query{runColumns.Select("r"), `sessions s
		CROSS JOIN LATERAL (SELECT * FROM runs WHERE tenant = s.tenant AND session_id = s.session_id
			AND run_id >= s.current_run_id AND run_id <= s.current_run_id ORDER BY run_id LIMIT 1) r
		WHERE s.tenant = $1::text AND s.session_id = $2::text`}
	waitingQuery = query{runColumns.Select("r"), `runs r
		WHERE r.tenant = $1::text AND r.session_id = $2::text AND r.status = 'waiting' ORDER BY r.place`}
	ofFamily = `sessions s
		CROSS JOIN LATERAL (SELECT * FROM calls WHERE tenant = s.tenant AND root_id = s.root_id AND consumed_at = 0 OFFSET 0) c
		WHERE s.tenant = $1::text AND s.session_id = $2::text`

	readSession = union(
		"",
		sessionQuery,
		query{
			`st.whole, st.state`,
			`sessions s` + joinStates("s") + ` WHERE s.tenant = $1::text AND s.session_id = $2::text ORDER BY st.version`,
		},
		newestQuery,
		query{
			callColumns.Select("c"),
			ofFamily + ` AND (s.session_id = s.root_id OR c.session_id = s.session_id) ORDER BY c.created_at, c.call_id`,
		},
		query{`count(*)`, ofFamily + ` AND c.answer = '' AND c.run_id <> '' AND c.kind <> 'sub_agent'`},
		waitingQuery,
		query{childColumns.Select("c"), `sub_sessions c WHERE c.tenant = $1::text AND c.session_id = $2::text ORDER BY c.child_id`},
	)
)

// Session implements store.Reader.
func (s ownedReader) Session(ctx context.Context, key session.Key) (*store.Snapshot, error) {
	found := false
	shot := &store.Snapshot{Session: session.Session{Key: key}}
	var state stateRows
	err := s.query(ctx, readSession, scanParts(
		func(row pgx.CollectableRow) error {
			found = true
			return row.Scan(sessionColumns.Destinations(nil, &shot.Session)...)
		},
		state.scan,
		scanRuns(runColumns, func(run *session.Run) { shot.Current = run }),
		scanEach(callColumns.Destinations, func(c *session.Call) { shot.Calls = append(shot.Calls, *c) }),
		scanInto(&shot.AwaitedCalls),
		scanRuns(runColumns, func(run *session.Run) { shot.Waiting = append(shot.Waiting, *run) }),
		scanEach(childColumns.Destinations, func(c *session.Child) { shot.Children = append(shot.Children, *c) }),
	), arguments(key)...)
	if err == nil && (!found || s.hides(shot.Session.UserID)) {
		err = session.SessionNotFound(key)
	}
	if err == nil {
		shot.Session.State, err = state.fold()
	}
	if err != nil {
		return nil, wrap(ctx, err, "read session %q of tenant %q", key.SessionID, key.Tenant)
	}
	return shot, nil
}

var readRun = union("", head, query{runColumns.Select("r"), selectRow("runs", "run_id", "text") + ` r`})

// Run implements store.Reader.
func (s ownedReader) Run(ctx context.Context, key session.Key, runID string) (run *session.Run, err error) {
	_, err = s.readOf(ctx, key, readRun, []any{runID}, scanRuns(runColumns, func(found *session.Run) { run = found }))
	if err == nil && run == nil {
		err = session.RunNotFound(runID)
	}
	return run, wrap(ctx, err, "read run %q", runID)
}

var readRunsPage = union("", head, query{runListed.Select("r"), `runs r
	WHERE r.tenant = $1::text AND r.session_id = $2::text AND r.turn > 0 AND r.turn < $3::bigint ORDER BY r.turn DESC LIMIT $4::bigint`})

// orUnbounded returns the exclusive upper bound of a page; 0 is none.
func orUnbounded(bound int32) int64 {
	if bound == 0 {
		return math.MaxInt64
	}
	return int64(bound)
}

// Runs implements store.Reader.
func (s ownedReader) Runs(ctx context.Context, key session.Key, beforeTurn int32, limit int) (page []session.Run, err error) {
	_, err = s.readOf(
		ctx,
		key,
		readRunsPage,
		[]any{orUnbounded(beforeTurn), limit},
		scanRuns(runListed, func(run *session.Run) { page = append(page, *run) }),
	)
	return page, wrap(ctx, err, "read runs of session %q", key.SessionID)
}

var readAllWaiting = union("", head, waitingQuery)

// Waiting implements store.Reader.
func (s ownedReader) Waiting(ctx context.Context, key session.Key) (runs []session.Run, err error) {
	_, err = s.readOf(ctx, key, readAllWaiting, nil, scanRuns(runColumns, func(run *session.Run) { runs = append(runs, *run) }))
	return runs, wrap(ctx, err, "read the waiting runs of session %q", key.SessionID)
}

var readMessages = union("", head, query{messageRead.Select("m"), `
		(SELECT *, sum(size) OVER (ORDER BY ordinal) AS total FROM
			(SELECT * FROM messages WHERE tenant = $1::text AND session_id = $2::text AND ordinal >= $3::bigint ORDER BY ordinal LIMIT $4::bigint) page) m
	WHERE m.total <= $5::bigint OR m.ordinal = $3 ORDER BY m.ordinal`})

// Messages implements store.Reader.
func (s ownedReader) Messages(ctx context.Context, key session.Key, page store.Page) (messages []session.Message, total int64, err error) {
	total, err = s.readOf(ctx, key, readMessages, []any{page.From, page.Limit, page.MaxBytes},
		scanEach(messageRead.Destinations, func(m *session.Message) { messages = append(messages, *m) }))
	return messages, total, wrap(ctx, err, "read messages of session %q", key.SessionID)
}

// The entries of a page, and how many there are without the bound on their bytes.
const storePage = `e.key, CASE WHEN e.keys_only THEN '' ELSE e.value END, e.bytes, e.found`

const storeSums = `(SELECT *, $%[1]d::boolean AS keys_only, octet_length(key) + octet_length(value)::bigint AS bytes, count(*) OVER () AS found,
		row_number() OVER (ORDER BY key) AS place,
		sum(octet_length(key) + CASE WHEN $%[1]d THEN 0 ELSE octet_length(value) END) OVER (ORDER BY key) AS total FROM (%[2]s) page) e
	WHERE e.total <= $%[3]d::bigint OR e.place = 1 ORDER BY e.key`

var (
	readStoreRange = union("", head, query{storePage, fmt.Sprintf(storeSums, 6, `SELECT key, value FROM store_entries
		WHERE tenant = $1::text AND session_id = $2::text AND key >= $3::text AND key < $4::text ORDER BY key LIMIT $5::bigint`, 7)})
	readStoreKeys = union("", head, query{storePage, fmt.Sprintf(storeSums, 4, `SELECT s.key, s.value FROM unnest($3::text[]) AS v (key)
		CROSS JOIN LATERAL (SELECT * FROM store_entries WHERE tenant = $1::text AND session_id = $2::text
			AND key >= v.key AND key <= v.key ORDER BY key LIMIT 1) s`, 5)})
)

// StoreEntries implements store.Reader.
func (s ownedReader) StoreEntries(
	ctx context.Context, key session.Key, q store.StoreQuery,
) (page []store.StoredEntry, more bool, err error) {
	found := 0
	scan := scanEach(func(to []any, e *store.StoredEntry) []any { return append(to, &e.Key, &e.Value, &e.Bytes, &found) },
		func(e *store.StoredEntry) { page = append(page, *e) })
	if q.Keys != nil {
		_, err = s.readOf(ctx, key, readStoreKeys, []any{q.Keys, q.KeysOnly, q.MaxBytes}, scan)
	} else {
		from, before := q.Range()
		_, err = s.readOf(ctx, key, readStoreRange, []any{from, before, q.Limit + 1, q.KeysOnly, q.MaxBytes}, scan)
		page = page[:min(len(page), q.Limit)]
	}
	return page, found > len(page), wrap(ctx, err, "read the store of session %q", key.SessionID)
}

// A checkpoint is found by the step in its id. Without an id the newest is found.
var (
	checkpointByID = `(SELECT * FROM checkpoints WHERE tenant = $1::text AND session_id = $2::text
		AND step >= $4::bigint AND step <= $5::bigint AND checkpoint_id = $3::text ORDER BY step LIMIT 1)`
	checkpointLast = `(SELECT * FROM checkpoints WHERE tenant = $1::text AND session_id = $2::text
		AND step >= $4::bigint AND step <= $5::bigint AND $3::text = '' ORDER BY step DESC LIMIT 1)`

	readCheckpoint     = unionOfCheckpoint(checkpointByID)
	readLastCheckpoint = unionOfCheckpoint(checkpointLast)
)

func unionOfCheckpoint(found string) *statement {
	return union(
		"",
		head,
		query{checkpointRead.Select("c"), found + ` c`},
		query{`st.whole, st.state`, found + ` c` + joinStates("c") + ` ORDER BY st.version`},
	)
}

// Checkpoint implements store.Reader.
func (s ownedReader) Checkpoint(ctx context.Context, key session.Key, id string) (checkpoint *session.Checkpoint, state string, err error) {
	read := readCheckpoint
	if id == "" {
		read = readLastCheckpoint
	}
	var texts stateRows
	first, last := session.CheckpointSteps(id)
	_, err = s.readOf(ctx, key, read, []any{id, first, last},
		scanEach(checkpointRead.Destinations, func(c *session.Checkpoint) { checkpoint = c }), texts.scan)
	switch {
	case err != nil:
	case checkpoint == nil:
		err = noCheckpoint(id)
	default:
		state, err = texts.fold()
	}
	if err != nil {
		return nil, "", wrap(ctx, err, "read checkpoint %q of session %q", id, key.SessionID)
	}
	return checkpoint, state, nil
}

func noCheckpoint(id string) error {
	if id == "" {
		return fault.New(fault.NotFound, "CHECKPOINT_NOT_FOUND", "the session has no checkpoint; its first committed step writes one")
	}
	return fault.New(fault.NotFound, "CHECKPOINT_NOT_FOUND", "the session has no checkpoint %q", id)
}

var readCheckpointsPage = union("", head,
	query{checkpointRead.Select("c"), `checkpoints c
		WHERE c.tenant = $1::text AND c.session_id = $2::text AND c.step < $3::bigint
		ORDER BY c.step DESC OFFSET $4::bigint LIMIT $5::bigint`},
	query{`count(*)`, `checkpoints WHERE tenant = $1::text AND session_id = $2::text`})

// Checkpoints implements store.Reader.
func (s ownedReader) Checkpoints(
	ctx context.Context,
	key session.Key,
	beforeStep int32,
	offset, limit int,
) (page []session.Checkpoint, total int64, err error) {
	_, err = s.readOf(ctx, key, readCheckpointsPage, []any{orUnbounded(beforeStep), offset, limit},
		scanEach(checkpointRead.Destinations, func(c *session.Checkpoint) { page = append(page, *c) }), scanInto(&total))
	return page, total, wrap(ctx, err, "read checkpoints of session %q", key.SessionID)
}

var readOwners = union("", head, query{`c.call_id, c.session_id`, `sessions s
	CROSS JOIN unnest($3::text[]) wanted (call_id)
	CROSS JOIN LATERAL (SELECT * FROM calls WHERE tenant = s.tenant AND root_id = s.root_id
		AND call_id >= wanted.call_id AND call_id <= wanted.call_id ORDER BY call_id LIMIT 1) c
	WHERE s.tenant = $1::text AND s.session_id = $2::text`})

// Owners implements store.Reader.
func (s ownedReader) Owners(ctx context.Context, key session.Key, callIDs []string) (map[string]string, error) {
	owners := map[string]string{}
	_, err := s.readOf(ctx, key, readOwners, []any{callIDs}, func(row pgx.CollectableRow) error {
		var call, owner string
		err := row.Scan(&call, &owner)
		owners[call] = owner
		return err
	})
	if err != nil {
		return nil, wrap(ctx, err, "find the owners of %d calls", len(callIDs))
	}
	return owners, nil
}

// familyOf selects a session and all sub-sessions below it, found by facet.
var familyOf = `WITH RECURSIVE family (session_id, depth) AS (
		SELECT s.session_id COLLATE "C", 0 FROM sessions s WHERE s.tenant = $1::text AND s.session_id = $2::text
		UNION
		SELECT f.session_id, above.depth + 1 FROM family above
		JOIN session_facets f ON f.tenant = $1::text AND f.facet = convert_to('` + parentFacet + `' || above.session_id, 'UTF8'))`

// parentFacet is the prefix of a sub-session's facet, before the id of its parent.
var parentFacet = strings.TrimSuffix(string(session.ParentFacet("x")), "x")

var readFamily = union(familyOf, head, query{`f.session_id`, `family f ORDER BY f.depth, f.session_id LIMIT $3::bigint`})

// Family implements store.Reader.
func (s ownedReader) Family(ctx context.Context, key session.Key, limit int) (family []session.Key, err error) {
	_, err = s.readOf(ctx, key, readFamily, []any{limit}, scanEach(single[string], func(id *string) {
		family = append(family, session.Key{Tenant: key.Tenant, SessionID: *id})
	}))
	return family, wrap(ctx, err, "read the family of session %q", key.SessionID)
}
