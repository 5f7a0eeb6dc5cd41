package sqlite

import (
	"context"
	"errors"
	"math"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// loadAnswer loads the newest run of an assistant's message.
func loadAnswer(ctx context.Context, c *connection, key session.Key, need session.Need, v *session.View) error {
	if need.AnswerID == "" {
		return nil
	}
	v.Answer = &session.AnswerRun{}
	run, err := readRun(ctx, c, runByMessage, key, need.AnswerID)
	if err != nil || run == nil {
		return err
	}
	a := &session.AnswerRun{Run: run, QuestionInPlace: true}
	_, err = c.queryRow(ctx, `SELECT run_id = ? FROM messages WHERE tenant = ? AND session_id = ? AND ordinal = ?`,
		arguments(run.RunID, key.Tenant, key.SessionID, run.StartMessageCount), &a.QuestionInPlace)
	if err != nil {
		return err
	}
	before := int64(math.MaxInt64)
	_, err = c.queryRow(ctx, `SELECT ordinal FROM messages
		WHERE tenant = ? AND session_id = ? AND ordinal >= ? AND (run_id <> ? OR step > 0) ORDER BY ordinal LIMIT 1`,
		arguments(key.Tenant, key.SessionID, run.StartMessageCount, run.RunID), &before)
	if err != nil {
		return err
	}
	a.Questions, err = readMessages(ctx, c, `SELECT `+messageFields+` FROM messages m WHERE m.tenant = ? AND m.session_id = ? AND m.ordinal < ?
		AND m.role = 'user' AND m.step = 0 ORDER BY m.ordinal DESC LIMIT 0 + ?`, key.Tenant, key.SessionID, before, session.MaxQuestions)
	v.Answer = a
	return err
}

// loadAsked loads users' messages from a place in the conversation on.
func loadAsked(ctx context.Context, c *connection, key session.Key, need session.Need, v *session.View) error {
	if need.AskedFrom == 0 {
		return nil
	}
	messages, err := readMessages(ctx, c, `SELECT `+messageFields+` FROM messages m WHERE m.tenant = ? AND m.session_id = ? AND m.ordinal >= ?
		AND m.role = 'user' AND m.step = 0 AND m.run_id <> ''
		ORDER BY m.ordinal LIMIT 0 + ?`, key.Tenant, key.SessionID, need.AskedFrom, session.MaxQuestions)
	v.Asked = make([]session.Asked, 0, len(messages))
	for _, m := range messages {
		if err != nil {
			return err
		}
		var run *session.Run
		if run, err = readRun(ctx, c, runByID, key, m.RunID); run != nil {
			v.Asked = append(v.Asked, session.Asked{Message: m, StartedBy: run.StartedBy})
		}
	}
	return err
}

// loadFailedStep loads the checkpoint for a retry of the newest run.
func loadFailedStep(ctx context.Context, c *connection, key session.Key, need session.Need, v *session.View) error {
	if !need.FailedStep || v.Session.CurrentRunID == "" {
		return nil
	}
	run, err := readRun(ctx, c, runByID, key, v.Session.CurrentRunID)
	if err != nil || run == nil {
		return err
	}
	f := &session.FailedStep{}
	f.Checkpoint, err = readCheckpoint(ctx, c, key, `AND k.step > ? AND k.run_id = ? AND k.status <> 'failed'`, v.Session.StepBefore(run),
		run.RunID)
	if err != nil {
		return err
	}
	if f.Checkpoint != nil {
		if f.State, err = readState(ctx, c, key, f.Checkpoint.StateBase, f.Checkpoint.StateVersion); err != nil && !errors.Is(err, errNoState) {
			return err
		}
	}
	v.Failed = f
	if run.FinishStep == 0 {
		return nil
	}
	f.Messages, err = readMessages(ctx, c, `SELECT `+messageFields+` FROM messages m WHERE m.tenant = ? AND m.session_id = ? AND m.ordinal >= ?
		AND m.run_id = ? AND m.step = ? ORDER BY m.ordinal`, key.Tenant, key.SessionID, run.StartMessageCount, run.RunID, run.FinishStep)
	return err
}
