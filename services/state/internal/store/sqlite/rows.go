package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

var sessionByID = `SELECT ` + sessionColumns.Select("s") + ` FROM sessions s WHERE s.tenant = ? AND s.session_id = ?`

// readSession returns the session without its custom state, and nil when there
// is none.
func readSession(ctx context.Context, c *connection, key session.Key) (*session.Session, error) {
	s := session.Session{Key: key}
	found, err := c.one(ctx, sessionByID, arguments(key.Tenant, key.SessionID), sessionColumns.Destinations(nil, &s)...)
	if !found {
		return nil, err
	}
	return &s, nil
}

var errNotKept = errors.New("the custom state is not kept")

// readState returns the custom state of a version, made of the whole one of
// the version base and the writes after it.
func readState(ctx context.Context, c *connection, key session.Key, base, version int64) (string, error) {
	var texts []string
	err := c.each(ctx, `SELECT state FROM states WHERE tenant = ? AND session_id = ? AND version BETWEEN ? AND ? ORDER BY version`,
		arguments(key.Tenant, key.SessionID, base, version), func(row scanner) error {
			var text string
			err := row.Scan(&text)
			texts = append(texts, text)
			return err
		})
	switch {
	case err != nil:
		return "", err
	case len(texts) == 0:
		return "", fmt.Errorf("version %d: %w", version, errNotKept)
	case len(texts) == 1:
		return texts[0], nil
	default:
		return session.Fold(texts[0], texts[1:])
	}
}

// ended fills in what a run's row keeps once.
func ended(r *session.Run) {
	if r.Status.Over() {
		r.Outcome.Status = r.Status
	}
}

// readWaiting returns the runs that wait, in the order in which they will begin.
func readWaiting(ctx context.Context, c *connection, key session.Key) (runs []session.Run, err error) {
	err = c.each(ctx, runsWaiting, arguments(key.Tenant, key.SessionID), func(row scanner) error {
		var r session.Run
		err := row.Scan(runColumns.Destinations(nil, &r)...)
		runs = append(runs, r)
		return err
	})
	return runs, err
}

// The queries of single runs are whole texts, so that they are not put together
// for every command.
var (
	runByID     = `SELECT ` + runColumns.Select("r") + ` FROM runs r WHERE r.tenant = ? AND r.session_id = ? AND r.run_id = ?`
	runByKey    = `SELECT ` + runColumns.Select("r") + ` FROM runs r WHERE r.tenant = ? AND r.session_id = ? AND r.request_key = ? AND r.request_key <> ''`
	runAnswers  = `SELECT ` + runColumns.Select("r") + ` FROM runs r WHERE r.tenant = ? AND r.session_id = ? AND r.message_id = ? AND r.turn > 0 ORDER BY r.turn DESC LIMIT 1`
	runsWaiting = `SELECT ` + runColumns.Select("r") + ` FROM runs r WHERE r.tenant = ? AND r.session_id = ? AND r.status = 'waiting' ORDER BY r.place`
	runLive     = `SELECT ` + runColumns.Select("r") + ` FROM runs r WHERE r.tenant = ? AND r.session_id = ? AND r.status IN ('queued', 'running')`
)

// readRun returns the run that one of the queries above finds, or nil. which is
// empty for those without a third argument.
func readRun(ctx context.Context, c *connection, query string, key session.Key, which ...any) (*session.Run, error) {
	var r session.Run
	found, err := c.one(ctx, query, append(arguments(key.Tenant, key.SessionID), which...), runColumns.Destinations(nil, &r)...)
	if !found {
		return nil, err
	}
	ended(&r)
	return &r, nil
}

// messageFields are the columns of messages m.
var messageFields = messageColumns.Select("m")

func readMessages(ctx context.Context, c *connection, query string, args ...any) ([]session.Message, error) {
	var messages []session.Message
	err := c.each(ctx, query, args, func(row scanner) error {
		var m session.Message
		err := row.Scan(messageColumns.Destinations(nil, &m)...)
		messages = append(messages, m)
		return err
	})
	return messages, err
}

// checkpointFields are the columns of checkpoints k, but for the records.
var checkpointFields = checkpointListed.Select("k")

// readCheckpoint returns the newest checkpoint that fits a condition on k, or
// nil.
func readCheckpoint(ctx context.Context, c *connection, key session.Key, condition string, which ...any) (*session.Checkpoint, error) {
	var k session.Checkpoint
	found, err := c.one(ctx, `SELECT `+checkpointFields+` FROM checkpoints k WHERE k.tenant = ? AND k.session_id = ? `+condition+` ORDER BY k.step DESC LIMIT 1`,
		append(arguments(key.Tenant, key.SessionID), which...), checkpointListed.Destinations(nil, &k)...)
	if !found {
		return nil, err
	}
	return &k, nil
}

// readCheckpointNamed finds a checkpoint by the step that its id tells.
func readCheckpointNamed(ctx context.Context, c *connection, key session.Key, id string) (*session.Checkpoint, error) {
	first, last := session.CheckpointSteps(id)
	return readCheckpoint(ctx, c, key, `AND k.step BETWEEN ? AND ? AND k.checkpoint_id = ?`, first, last, id)
}

// callFields are the columns of calls l.
var callFields = callColumns.Select("l")

// readCalls returns the calls that fit a condition on l, which has the order
// too.
func readCalls(ctx context.Context, c *connection, condition string, args ...any) ([]session.Call, error) {
	var calls []session.Call
	err := c.each(ctx, `SELECT `+callFields+` FROM calls l WHERE `+condition, args, func(row scanner) error {
		var l session.Call
		err := row.Scan(callColumns.Destinations(nil, &l)...)
		calls = append(calls, l)
		return err
	})
	return calls, err
}

var childrenOf = `SELECT ` + childColumns.Select("c") + ` FROM sub_sessions c WHERE c.tenant = ? AND c.session_id = ? ORDER BY c.child_id`

// readChildren returns the sub-sessions by session id.
func readChildren(ctx context.Context, c *connection, key session.Key) ([]session.Child, error) {
	var children []session.Child
	err := c.each(ctx, childrenOf, arguments(key.Tenant, key.SessionID), func(row scanner) error {
		var d session.Child
		err := row.Scan(childColumns.Destinations(nil, &d)...)
		children = append(children, d)
		return err
	})
	return children, err
}

// list passes strings as one argument, for json_each.
func list[T ~string](items []T) string {
	text, err := json.Marshal(items)
	if err != nil || items == nil {
		return "[]" // strings always encode
	}
	return string(text)
}
