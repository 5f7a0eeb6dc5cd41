package sqlite

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store/table"
)

// loadView reads what need selects, with a query for each part. A query in the same
// process costs microseconds.
func loadView(ctx context.Context, c *connection, key session.Key, need session.Need) (*session.View, error) {
	v := &session.View{}
	if need.AgentType != "" {
		var err error
		if v.Agent, err = readAgent(ctx, c, key.Tenant, need.AgentType); err != nil {
			return nil, err
		}
	}
	if need.ExecutorID != "" {
		if _, err := c.queryRow(ctx, `SELECT EXISTS (SELECT 1 FROM executors WHERE executor_id = ?)`, arguments(need.ExecutorID),
			&v.ExecutorRegistered); err != nil {
			return nil, err
		}
	}
	planned, err := loadSession(ctx, c, key, need, v)
	if err != nil || v.Session == nil {
		return v, err
	}
	need.Journal = need.Journal && planned
	for _, step := range viewLoaders {
		if err := step(ctx, c, key, need, v); err != nil {
			return nil, err
		}
	}
	return v, nil
}

var viewLoaders = []func(context.Context, *connection, session.Key, session.Need, *session.View) error{
	loadRuns, loadJournal, loadCheckpoint, loadMessages, loadCalls, loadState, loadWaiting, loadUndo, loadRewindPoint, loadAnswer, loadAsked,
	loadFailedStep, countStored, loadStoredKeys,
}

const planExists = `, EXISTS (SELECT 1 FROM plans p WHERE p.tenant = s.tenant AND p.session_id = s.session_id)`

var (
	selectSession       = `SELECT ` + sessionColumns.Select("s") + planExists + ` FROM sessions s WHERE s.tenant = ? AND s.session_id = ?`
	selectSessionAndRun = `SELECT ` + sessionColumns.Select("s") + planExists + `, ` + runColumns.Select("r") + ` FROM sessions s
		JOIN runs r ON r.tenant = s.tenant AND r.session_id = s.session_id WHERE s.tenant = ? AND s.session_id = ? AND r.run_id = ?`
)

// loadSession loads the session and the run of need.RunID, and reports whether the step
// in flight has a plan. Most steps need no more.
func loadSession(ctx context.Context, c *connection, key session.Key, need session.Need, v *session.View) (planned bool, err error) {
	s := session.Session{Key: key}
	var r session.Run
	fields := append(sessionColumns.Destinations(nil, &s), &planned)
	found := false
	if need.RunID != "" {
		if found, err = c.queryRow(ctx, selectSessionAndRun, arguments(key.Tenant, key.SessionID, need.RunID),
			runColumns.Destinations(fields, &r)...); err != nil {
			return false, err
		}
	}
	if found {
		fillOutcome(&r)
		v.Session, v.Run = &s, &r
		return planned, nil
	}
	if found, err = c.queryRow(ctx, selectSession, arguments(key.Tenant, key.SessionID), fields...); found {
		v.Session = &s
	}
	return planned, err
}

func loadRuns(ctx context.Context, c *connection, key session.Key, need session.Need, v *session.View) (err error) {
	if need.RequestKey != "" {
		if v.KeyedRun, err = readRun(ctx, c, runByKey, key, need.RequestKey); err != nil {
			return err
		}
	}
	switch {
	case !need.Current || v.Session.CurrentRunID == "":
	case v.Run != nil && v.Run.RunID == v.Session.CurrentRunID:
		v.Current = v.Run
	default:
		if v.Current, err = readRun(ctx, c, runByID, key, v.Session.CurrentRunID); err != nil {
			return err
		}
	}
	if !need.Live {
		return nil
	}
	v.Live, err = readRun(ctx, c, liveRun, key)
	return err
}

var (
	planOf    = `SELECT ` + planColumns.Select("p") + ` FROM plans p WHERE p.tenant = ? AND p.session_id = ?`
	resultsOf = `SELECT ` + resultColumns.Select("r") + ` FROM results r WHERE r.tenant = ? AND r.session_id = ? ORDER BY r.position`
)

func loadJournal(ctx context.Context, c *connection, key session.Key, need session.Need, v *session.View) error {
	if !need.Journal {
		return nil
	}
	var j session.Journal
	found, err := c.queryRow(ctx, planOf, arguments(key.Tenant, key.SessionID), planColumns.Destinations(nil, &j)...)
	if !found {
		return err
	}
	v.Journal = &j
	return c.forEach(ctx, resultsOf, arguments(key.Tenant, key.SessionID), func(row scanner) error {
		var r table.Result
		err := row.Scan(resultColumns.Destinations(nil, &r)...)
		j.Results = append(j.Results, r.Result)
		return err
	})
}

func loadCheckpoint(ctx context.Context, c *connection, key session.Key, need session.Need, v *session.View) (err error) {
	switch {
	case need.CheckpointID != "":
		v.Checkpoint, err = readCheckpointNamed(ctx, c, key, need.CheckpointID)
		if v.Checkpoint != nil {
			v.CheckpointState, err = readState(ctx, c, key, v.Checkpoint.StateBase, v.Checkpoint.StateVersion)
		}
	case need.CheckpointBelow > 0:
		v.Checkpoint, err = readCheckpoint(ctx, c, key, `AND k.message_count < ?`, need.CheckpointBelow)
	case need.CheckpointStep != 0 && need.CheckpointStep == v.Session.StepCount:
		v.Checkpoint, err = readCheckpoint(ctx, c, key, `AND k.step = ?`, need.CheckpointStep)
	}
	return err
}

const selectExisting = `SELECT message_id, ordinal FROM messages WHERE tenant = ? AND session_id = ? AND message_id IN `

// existingQueries find messages by id, each for as many ids as its index. Separate
// arguments are faster than the list of selectExistingOfList.
var existingQueries = func() (texts [9]string) {
	for n := range texts {
		texts[n] = selectExisting + `(` + strings.TrimPrefix(strings.Repeat(`, ?`, n), `, `) + `)`
	}
	return texts
}()

const selectExistingOfList = selectExisting + `(SELECT value FROM json_each(?))`

func loadMessages(ctx context.Context, c *connection, key session.Key, need session.Need, v *session.View) error {
	if n := len(need.MessageIDs); n > 0 && v.Session.MessageCount > 0 {
		query, args := selectExistingOfList, arguments(key.Tenant, key.SessionID)
		if n < len(existingQueries) {
			query = existingQueries[n]
			for _, id := range need.MessageIDs {
				args = append(args, id)
			}
		} else {
			args = append(args, jsonList(need.MessageIDs))
		}
		err := c.forEach(ctx, query, args, func(row scanner) error {
			var id string
			var at int64
			err := row.Scan(&id, &at)
			v.TakenIDs, v.TakenOrdinals = append(v.TakenIDs, id), append(v.TakenOrdinals, at)
			return err
		})
		if err != nil {
			return err
		}
	}
	if need.Tail.MaxMessages == 0 {
		return nil
	}
	var err error
	v.Tail, err = readMessages(ctx, c, `SELECT `+messageFields+` FROM
			(SELECT *, sum(size) OVER (ORDER BY ordinal DESC) AS total, row_number() OVER (ORDER BY ordinal DESC) AS place FROM
				(SELECT * FROM messages WHERE tenant = ? AND session_id = ? ORDER BY ordinal DESC LIMIT 0 + ?)) m
		WHERE m.total <= ? OR m.place = 1 ORDER BY m.ordinal DESC`, key.Tenant, key.SessionID, need.Tail.MaxMessages, need.Tail.MaxBytes)
	slices.Reverse(v.Tail)
	return err
}

func loadCalls(ctx context.Context, c *connection, key session.Key, need session.Need, v *session.View) (err error) {
	if need.Calls {
		v.Calls, err = readCalls(ctx, c, `l.tenant = ? AND l.session_id = ? AND (l.consumed_at = 0 OR (l.late_at > 0 AND NOT l.told))
			ORDER BY l.created_at, l.call_id`, key.Tenant, key.SessionID)
		if err != nil {
			return err
		}
	}
	if len(need.CallIDs) > 0 {
		v.NamedCalls, err = readCalls(ctx, c, `l.tenant = ? AND l.root_id = ? AND l.call_id IN (SELECT value FROM json_each(?))
			ORDER BY l.call_id`,
			key.Tenant, v.Session.RootID, jsonList(need.CallIDs))
		if err != nil {
			return err
		}
	}
	if need.LiveBelow > 0 {
		if _, err := c.queryRow(ctx, countLiveBelow, arguments(key.Tenant, v.Session.RootID, need.LiveBelow), &v.LiveBelow); err != nil {
			return err
		}
	}
	if need.Children {
		v.Children, err = readChildren(ctx, c, key)
	}
	return err
}

const countLiveBelow = `SELECT count(*) FROM (SELECT 1 FROM sessions
	WHERE tenant = ? AND root_id = ? AND parent_id <> '' AND status NOT IN ('completed', 'failed') LIMIT 0 + ?)`

// countStored counts the rows of a session to delete.
func countStored(ctx context.Context, c *connection, key session.Key, need session.Need, v *session.View) error {
	if !need.Stored {
		return nil
	}
	v.Stored = session.Removed{}
	for _, name := range table.Counted() {
		var rows int64
		if _, err := c.queryRow(ctx, `SELECT count(*) FROM `+name+` WHERE tenant = ? AND session_id = ?`, arguments(key.Tenant, key.SessionID),
			&rows); err != nil {
			return err
		}
		v.Stored[name] = rows
	}
	return nil
}

// loadStoredKeys loads the entries of the private store that the command writes.
func loadStoredKeys(ctx context.Context, c *connection, key session.Key, need session.Need, v *session.View) error {
	if len(need.StoreKeys) == 0 {
		return nil
	}
	return c.forEach(ctx, `SELECT key, octet_length(key) + octet_length(value), CASE WHEN octet_length(value) <= ? THEN value ELSE '' END
		FROM store_entries WHERE tenant = ? AND session_id = ? AND key IN (SELECT value FROM json_each(?))`,
		arguments(session.MaxStoreNumber, key.Tenant, key.SessionID, jsonList(need.StoreKeys)), func(row scanner) error {
			var k session.StoredKey
			err := row.Scan(&k.Key, &k.Bytes, &k.Short)
			v.StoredKeys = append(v.StoredKeys, k)
			return err
		})
}

func loadState(ctx context.Context, c *connection, key session.Key, need session.Need, v *session.View) (err error) {
	if need.State || need.StateIfWritten && v.Journal.HasStateWrites() {
		v.Session.State, err = readState(ctx, c, key, v.Session.StateBase, v.Session.StateVersion)
	}
	return err
}

func loadWaiting(ctx context.Context, c *connection, key session.Key, need session.Need, v *session.View) error {
	if need.OwnAgent {
		own, err := readAgent(ctx, c, key.Tenant, v.Session.AgentType)
		if err != nil {
			return err
		}
		v.OwnAgent = cmp.Or(own, &session.Agent{})
	}
	if need.Definition {
		stored, err := readStored(ctx, c, key.Tenant, v.Session.AgentType)
		if err != nil {
			return err
		}
		if stored != nil {
			v.Definition = stored.Definition
		}
	}
	if !need.Waiting || v.Session.Waiting == 0 {
		return nil
	}
	runs, err := readWaiting(ctx, c, key)
	if err != nil {
		return err
	}
	for _, r := range runs {
		waiting := session.WaitingRun{Run: r}
		_, err := c.queryRow(ctx, `SELECT message_ids FROM held_runs WHERE tenant = ? AND session_id = ? AND run_id = ?`,
			arguments(key.Tenant, key.SessionID, r.RunID), table.AsJSON(&waiting.MessageIDs))
		if err != nil {
			return err
		}
		v.Waiting = append(v.Waiting, waiting)
	}
	if len(runs) == 0 {
		return nil
	}
	v.WaitingInput = &session.RunInput{}
	_, err = c.queryRow(ctx, `SELECT held FROM held_runs WHERE tenant = ? AND session_id = ? AND run_id = ?`,
		arguments(key.Tenant, key.SessionID, runs[0].RunID), table.AsJSON(v.WaitingInput))
	return err
}

// loadUndo loads what remains when the newest run is undone.
func loadUndo(ctx context.Context, c *connection, key session.Key, need session.Need, v *session.View) error {
	if !need.Undo || v.Session.CurrentRunID == "" {
		return nil
	}
	run, err := readRun(ctx, c, runByID, key, v.Session.CurrentRunID)
	if err != nil || run == nil {
		return err
	}
	before := v.Session.StepBefore(run)
	if v.FormerCheckpoint, err = readCheckpoint(ctx, c, key, `AND k.step <= ?`, before); err != nil {
		return err
	}
	v.KeptMessages, err = readMessages(ctx, c, `SELECT `+messageFields+` FROM messages m
		WHERE m.tenant = ?1 AND m.session_id = ?2 AND m.ordinal >= ?3
			AND (m.run_id <> ?4 OR (m.role = 'user' AND m.step = 0) OR (m.role = 'tool' AND EXISTS
			(SELECT 1 FROM calls l WHERE l.tenant = ?1 AND l.session_id = ?2 AND l.consumed_at > 0 AND l.consumed_step = m.step AND +l.step <= ?5)))
		ORDER BY m.ordinal`, key.Tenant, key.SessionID, run.StartMessageCount, run.RunID, before)
	if err != nil {
		return err
	}
	v.ReportedLate, err = readCalls(ctx, c, `l.tenant = ? AND l.session_id = ? AND l.told_step > 0 AND l.told_step > ? ORDER BY l.call_id`,
		key.Tenant, key.SessionID, before)
	if err != nil || run.StartStateVersion == 0 {
		return err
	}
	if v.StartState, err = readState(ctx, c, key, run.StartStateBase, run.StartStateVersion); errors.Is(err, errNoState) {
		err = nil
	}
	return err
}

// loadRewindPoint loads the rows around the target of a rewind.
func loadRewindPoint(ctx context.Context, c *connection, key session.Key, need session.Need, v *session.View) error {
	if need.RewindToMessage == "" {
		return nil
	}
	found, err := readMessages(ctx, c, `SELECT `+messageFields+` FROM messages m WHERE m.tenant = ? AND m.session_id = ? AND m.message_id = ?`,
		key.Tenant, key.SessionID, need.RewindToMessage)
	if err != nil || len(found) == 0 {
		return err
	}
	b := &session.RewindPoint{Message: found[0]}
	if b.Run, err = readRun(ctx, c, runByID, key, b.Message.RunID); err != nil {
		return err
	}
	if _, err := c.queryRow(ctx, `SELECT step FROM messages
		WHERE tenant = ? AND session_id = ? AND ordinal < ? AND step > 0 ORDER BY ordinal DESC LIMIT 1`,
		arguments(key.Tenant, key.SessionID, b.Message.Ordinal), &b.StepBefore); err != nil {
		return err
	}
	newest := int64(math.MaxInt64) // version of the custom state
	if b.Run != nil && b.Run.StartStateVersion > 0 {
		newest = b.Run.StartStateVersion
	}
	if b.Checkpoint, err = readCheckpoint(ctx, c, key, `AND k.message_count <= ? AND k.state_version <= ?`, b.Message.Ordinal,
		newest); err != nil {
		return err
	}
	if version, base, known := b.StateOrigin(); known {
		if b.State, err = readState(ctx, c, key, base, version); err != nil && !errors.Is(err, errNoState) {
			return err
		}
	}
	b.Results, err = readMessages(ctx, c, `SELECT `+messageFields+` FROM messages m
		WHERE m.tenant = ?1 AND m.session_id = ?2 AND m.ordinal > ?3 AND m.role = 'tool' AND EXISTS
			(SELECT 1 FROM calls l WHERE l.tenant = ?1 AND l.session_id = ?2 AND l.consumed_at > 0 AND l.consumed_step = m.step AND +l.step <= ?4)
		ORDER BY m.ordinal`, key.Tenant, key.SessionID, b.Message.Ordinal, b.StepBefore)
	if err != nil {
		return err
	}
	b.ReportedLate, err = readCalls(ctx, c,
		`l.tenant = ?1 AND l.session_id = ?2 AND l.told_step > 0 AND l.told_step > ?3 AND +l.step <= ?3 ORDER BY l.call_id`,
		key.Tenant, key.SessionID, b.StepBefore)
	v.RewindPoint = b
	return err
}
