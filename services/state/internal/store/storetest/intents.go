package storetest

import (
	"slices"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// intent is a client's command to start a run in a session.
type intent interface {
	Need() session.Need
	Decide(...*session.View) (*session.Change, session.Started, error)
}

// retry adapts a command on one session to intent.
type retry struct{ session.Retry }

// Decide decides on the session's own view.
func (c retry) Decide(views ...*session.View) (*session.Change, session.Started, error) {
	return c.Retry.Decide(views[0])
}

// keyOf returns the session of the intent.
func keyOf(c intent) session.Key {
	switch c := c.(type) {
	case session.Send:
		return c.Key
	case session.Edit:
		return c.Key
	case session.Regenerate:
		return c.Key
	case session.Resume:
		return c.Key
	case retry:
		return c.Key
	default:
		panic("keyOf: an intent of an unknown type")
	}
}

// bodies reads the messages of the tests. Users see every message but the one with the id
// "hidden". A step with a message of the role tool has run a tool.
var bodies = session.BodyFuncs{
	SameContent: func(a, b session.Message) (bool, error) {
		return a.Role == b.Role && string(a.Body) == string(b.Body), nil
	},
	IsVisible: func(m session.Message) (bool, error) { return m.ID != "hidden", nil },
	MoveToRun: func(m session.Message, runID string) (session.Message, error) { m.RunID = runID; return m, nil },
	RanTool: func(step []session.Message) (bool, error) {
		return slices.ContainsFunc(step, func(m session.Message) bool { return m.Role == "tool" }), nil
	},
}

// resumeOf returns a command to resume the session without messages.
func (h *harness) resumeOf(key session.Key) session.Resume {
	c := h.startOf(key).RunRequest
	c.Messages, c.Limits = nil, limits
	return session.Resume{RunRequest: c}
}

// resumeAt returns a command to resume the session at a checkpoint with one message.
func (h *harness) resumeAt(key session.Key, checkpointID string) session.Resume {
	c := h.resumeOf(key)
	c.Messages, c.CheckpointID = h.startOf(key).Messages, checkpointID
	return c
}

// retryOf returns a command to retry the session's newest run without messages.
func (h *harness) retryOf(key session.Key) retry {
	return retry{session.Retry{RunRequest: h.resumeOf(key).RunRequest}}
}

// editOf returns a command to replace a message.
func (h *harness) editOf(key session.Key, messageID string) session.Edit {
	return session.Edit{Send: h.startOf(key), Target: messageID}
}

// regenerateOf returns a command to answer a message again.
func (h *harness) regenerateOf(key session.Key, messageID string) session.Regenerate {
	c := h.startOf(key)
	c.Messages = nil
	return session.Regenerate{Send: c, Target: messageID}
}
