package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

var sessionByID = `SELECT ` + sessionColumns.Select("s") + ` FROM sessions s WHERE s.tenant = ? AND s.session_id = ?`

// readSession returns the session without its custom state; nil if there is none.
func readSession(ctx context.Context, c *connection, key session.Key) (*session.Session, error) {
	s := session.Session{Key: key}
	found, err := c.queryRow(ctx, sessionByID, arguments(key.Tenant, key.SessionID), sessionColumns.Destinations(nil, &s)...)
	if !found {
		return nil, err
	}
	return &s, nil
}

var errNoState = errors.New("the custom state is not stored")

// readState returns the custom state of a version: the whole state of version base with
// the writes up to version. errNoState when it is not stored.
func readState(ctx context.Context, c *connection, key session.Key, base, version int64) (string, error) {
	var texts []string
	err := c.forEach(ctx, `SELECT state FROM states WHERE tenant = ? AND session_id = ? AND version BETWEEN ? AND ? ORDER BY version`,
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
		return "", fmt.Errorf("version %d: %w", version, errNoState)
	case len(texts) == 1:
		return texts[0], nil
	default:
		return session.FoldState(texts[0], texts[1:])
	}
}

// fillOutcome sets the outcome's status. The row stores it once, as the run's.
func fillOutcome(r *session.Run) {
	if r.Status.Ended() {
		r.Outcome.Status = r.Status
	}
}

// readWaiting returns the waiting runs in the order of the queue.
func readWaiting(ctx context.Context, c *connection, key session.Key) (runs []session.Run, err error) {
	err = c.forEach(ctx, waitingRuns, arguments(key.Tenant, key.SessionID), func(row scanner) error {
		var r session.Run
		err := row.Scan(runColumns.Destinations(nil, &r)...)
		runs = append(runs, r)
		return err
	})
	return runs, err
}

// The queries for single runs.
var (
	runByID  = `SELECT ` + runColumns.Select("r") + ` FROM runs r WHERE r.tenant = ? AND r.session_id = ? AND r.run_id = ?`
	runByKey = `SELECT ` + runColumns.Select("r") + ` FROM runs r
		WHERE r.tenant = ? AND r.session_id = ? AND r.request_key = ? AND r.request_key <> ''`
	runByMessage = `SELECT ` + runColumns.Select("r") + ` FROM runs r
		WHERE r.tenant = ? AND r.session_id = ? AND r.message_id = ? AND r.turn > 0 ORDER BY r.turn DESC LIMIT 1`
	waitingRuns = `SELECT ` + runColumns.Select("r") + ` FROM runs r
		WHERE r.tenant = ? AND r.session_id = ? AND r.status = 'waiting' ORDER BY r.place`
	liveRun = `SELECT ` + runColumns.Select("r") + ` FROM runs r
		WHERE r.tenant = ? AND r.session_id = ? AND r.status IN ('queued', 'running')`
)

// readRun returns the run found by one of these queries; nil for none. more is the third argument of a query with
// three.
func readRun(ctx context.Context, c *connection, query string, key session.Key, more ...any) (*session.Run, error) {
	var r session.Run
	found, err := c.queryRow(ctx, query, append(arguments(key.Tenant, key.SessionID), more...), runColumns.Destinations(nil, &r)...)
	if !found {
		return nil, err
	}
	fillOutcome(&r)
	return &r, nil
}

// messageFields are the columns of messages m.
var messageFields = messageColumns.Select("m")

func readMessages(ctx context.Context, c *connection, query string, args ...any) ([]session.Message, error) {
	var messages []session.Message
	err := c.forEach(ctx, query, args, func(row scanner) error {
		var m session.Message
		err := row.Scan(messageColumns.Destinations(nil, &m)...)
		messages = append(messages, m)
		return err
	})
	return messages, err
}

// checkpointFields are the columns of checkpoints k without their records.
var checkpointFields = checkpointListed.Select("k")

// readCheckpoint returns the newest checkpoint k that meets a condition; nil for none.
func readCheckpoint(ctx context.Context, c *connection, key session.Key, condition string, more ...any) (*session.Checkpoint, error) {
	var k session.Checkpoint
	found, err := c.queryRow(ctx, `SELECT `+checkpointFields+` FROM checkpoints k
		WHERE k.tenant = ? AND k.session_id = ? `+condition+` ORDER BY k.step DESC LIMIT 1`,
		append(arguments(key.Tenant, key.SessionID), more...), checkpointListed.Destinations(nil, &k)...)
	if !found {
		return nil, err
	}
	return &k, nil
}

// readCheckpointNamed returns a checkpoint by its id. The id contains the step.
func readCheckpointNamed(ctx context.Context, c *connection, key session.Key, id string) (*session.Checkpoint, error) {
	first, last := session.CheckpointSteps(id)
	return readCheckpoint(ctx, c, key, `AND k.step BETWEEN ? AND ? AND k.checkpoint_id = ?`, first, last, id)
}

// callFields are the columns of calls l.
var callFields = callColumns.Select("l")

// readCalls returns the calls l that meet a condition. The condition ends with the order.
func readCalls(ctx context.Context, c *connection, condition string, args ...any) ([]session.Call, error) {
	var calls []session.Call
	err := c.forEach(ctx, `SELECT `+callFields+` FROM calls l WHERE `+condition, args, func(row scanner) error {
		var l session.Call
		err := row.Scan(callColumns.Destinations(nil, &l)...)
		calls = append(calls, l)
		return err
	})
	return calls, err
}

var childrenOf = `SELECT ` + childColumns.Select("c") + ` FROM sub_sessions c WHERE c.tenant = ? AND c.session_id = ? ORDER BY c.child_id`

// readChildren returns the children in the order of their session ids.
func readChildren(ctx context.Context, c *connection, key session.Key) ([]session.Child, error) {
	var children []session.Child
	err := c.forEach(ctx, childrenOf, arguments(key.Tenant, key.SessionID), func(row scanner) error {
		var d session.Child
		err := row.Scan(childColumns.Destinations(nil, &d)...)
		children = append(children, d)
		return err
	})
	return children, err
}

// jsonList returns strings as one argument, for json_each.
func jsonList[T ~string](items []T) string {
	text, err := json.Marshal(items)
	if err != nil || items == nil {
		return "[]" // strings always encode
	}
	return string(text)
}
