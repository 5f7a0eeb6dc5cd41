package sqlite

import (
	"context"
	"slices"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
	"github.com/holdfast-run/holdfast/services/state/internal/store"
)

// view reads what need names. It makes one query for each part: in one
// process a query costs microseconds.
func view(ctx context.Context, c *connection, key session.Key, need session.Need) (*session.View, error) {
	v := &session.View{}
	if need.AgentType != "" {
		if _, err := c.one(ctx, `SELECT EXISTS (SELECT 1 FROM agents WHERE agent_type = ?)`, arguments(need.AgentType), &v.AgentKnown); err != nil {
			return nil, err
		}
	}
	var err error
	if v.Session, err = readSession(ctx, c, key); err != nil || v.Session == nil {
		return v, err
	}
	steps := []func(context.Context, *connection, session.Key, session.Need, *session.View) error{
		viewRuns, viewJournal, viewCheckpoint, viewMessages, viewCalls, viewState,
	}
	for _, step := range steps {
		if err := step(ctx, c, key, need, v); err != nil {
			return nil, err
		}
	}
	return v, nil
}

func viewRuns(ctx context.Context, c *connection, key session.Key, need session.Need, v *session.View) (err error) {
	if need.RunID != "" {
		if v.Run, err = readRun(ctx, c, runByID, key, need.RunID); err != nil {
			return err
		}
	}
	if need.RequestKey != "" {
		if v.Keyed, err = readRun(ctx, c, runByKey, key, need.RequestKey); err != nil {
			return err
		}
	}
	if need.Current && v.Session.CurrentRunID != "" {
		if v.Current, err = readRun(ctx, c, runByID, key, v.Session.CurrentRunID); err != nil {
			return err
		}
	}
	if !need.Open {
		return nil
	}
	if v.Live, err = readRun(ctx, c, runLive, key); err != nil {
		return err
	}
	v.Unsettled, err = readRun(ctx, c, runUnsettled, key)
	return err
}

func viewJournal(ctx context.Context, c *connection, key session.Key, need session.Need, v *session.View) error {
	if !need.Journal {
		return nil
	}
	var j session.Journal
	found, err := c.one(ctx, `SELECT step, body, call_ids, stream_sequence, usage FROM plans WHERE tenant = ? AND session_id = ?`,
		arguments(key.Tenant, key.SessionID), &j.Step, &j.Plan, store.In(&j.CallIDs), &j.Sequence, store.In(&j.Usage))
	if !found {
		return err
	}
	v.Journal = &j
	return c.each(ctx, `SELECT call_id, body, ops, usage FROM results WHERE tenant = ? AND session_id = ? ORDER BY position`,
		arguments(key.Tenant, key.SessionID), func(row scanner) error {
			var r session.Result
			err := row.Scan(&r.CallID, &r.Body, store.In(&r.Ops), store.In(&r.Usage))
			j.Results = append(j.Results, r)
			return err
		})
}

func viewCheckpoint(ctx context.Context, c *connection, key session.Key, need session.Need, v *session.View) (err error) {
	switch {
	case need.CheckpointID != "":
		v.Checkpoint, err = readCheckpoint(ctx, c, key, `AND k.checkpoint_id = ?`, need.CheckpointID)
		if v.Checkpoint != nil {
			v.CheckpointState, err = readState(ctx, c, key, v.Checkpoint.StateBase, v.Checkpoint.StateVersion)
		}
	case need.CheckpointAt != 0 && need.CheckpointAt == v.Session.StepCount:
		v.Checkpoint, err = readCheckpoint(ctx, c, key, `AND k.step = ?`, need.CheckpointAt)
	}
	return err
}

func viewMessages(ctx context.Context, c *connection, key session.Key, need session.Need, v *session.View) error {
	if len(need.MessageIDs) > 0 {
		err := c.each(ctx, `SELECT message_id FROM messages WHERE tenant = ? AND session_id = ? AND message_id IN (SELECT value FROM json_each(?))`,
			arguments(key.Tenant, key.SessionID, list(need.MessageIDs)), func(row scanner) error {
				var id string
				err := row.Scan(&id)
				v.Taken = append(v.Taken, id)
				return err
			})
		if err != nil {
			return err
		}
	}
	if need.Tail.Messages == 0 {
		return nil
	}
	var err error
	v.Tail, err = readMessages(ctx, c, `SELECT `+messageColumns+` FROM
			(SELECT *, sum(size) OVER (ORDER BY ordinal DESC) AS total, row_number() OVER (ORDER BY ordinal DESC) AS place FROM
				(SELECT * FROM messages WHERE tenant = ? AND session_id = ? ORDER BY ordinal DESC LIMIT ?)) m
		WHERE m.total <= ? OR m.place = 1 ORDER BY m.ordinal DESC`, key.Tenant, key.SessionID, need.Tail.Messages, need.Tail.Bytes)
	slices.Reverse(v.Tail)
	return err
}

func viewCalls(ctx context.Context, c *connection, key session.Key, need session.Need, v *session.View) (err error) {
	if need.Calls {
		v.Calls, err = readCalls(ctx, c, `l.tenant = ? AND l.session_id = ? AND (l.consumed_at = 0 OR (l.late_at > 0 AND NOT l.told))
			ORDER BY l.created_at, l.call_id`, key.Tenant, key.SessionID)
		if err != nil {
			return err
		}
	}
	if len(need.CallIDs) > 0 {
		v.Named, err = readCalls(ctx, c, `l.tenant = ? AND l.root_id = ? AND l.call_id IN (SELECT value FROM json_each(?)) ORDER BY l.call_id`,
			key.Tenant, v.Session.RootID, list(need.CallIDs))
		if err != nil {
			return err
		}
	}
	if need.Children {
		v.Children, err = readChildren(ctx, c, key)
	}
	return err
}

func viewState(ctx context.Context, c *connection, key session.Key, need session.Need, v *session.View) (err error) {
	if need.State || need.Written && v.Journal.Writes() {
		v.Session.State, err = readState(ctx, c, key, v.Session.StateBase, v.Session.StateVersion)
	}
	return err
}
