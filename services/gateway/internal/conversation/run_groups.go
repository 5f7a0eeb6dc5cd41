package conversation

import (
	"context"
	"errors"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// runGroups groups the runs of each assistant message. It receives the stored messages in order. It
// reads runs from the state service only where the answers of two runs are adjacent, without a
// user's message between them.
type runGroups struct {
	reader     *Reader
	session    *statev1.Session
	first      map[string]string // the first run of the group, by the runs that continue it
	messageIDs map[string]string // of the assistant messages, by run
	last       string            // run of the open answer
}

func (r *Reader) newRunGroups(s *statev1.Session) *runGroups {
	return &runGroups{reader: r, session: s, first: map[string]string{}, messageIDs: map[string]string{}}
}

// add adds the next message.
func (t *runGroups) add(ctx context.Context, m *eventv1.Message) error {
	if isInvisible(m) {
		return nil
	}
	if !uistream.IsPartOfAnswer(m) {
		t.last = ""
		return nil
	}
	previous, run := t.last, m.GetRunId()
	t.last = run
	if previous == "" || run == "" || previous == run || t.first[run] != "" {
		return nil
	}
	ids := [2]string{previous, run}
	for i, id := range ids {
		var err error
		if ids[i], err = t.messageID(ctx, id); err != nil {
			return err
		}
	}
	if ids[0] == ids[1] { // runs of another session have no message id here, so adjacent ones count as one group
		t.first[run] = t.groupOf(previous)
	}
	return nil
}

func (t *runGroups) messageID(ctx context.Context, run string) (string, error) {
	if id, known := t.messageIDs[run]; known {
		return id, nil
	}
	got, err := t.reader.Run(ctx, t.session.GetTenant(), &statev1.Run{SessionId: t.session.GetSessionId(), RunId: run})
	if err != nil && !errors.Is(err, fault.NotFound) { // a branch has messages of runs of another session
		return "", err
	}
	t.messageIDs[run] = got.GetMessageId()
	return t.messageIDs[run], nil
}

// groupOf returns the first run of the run's group. It identifies the group.
func (t *runGroups) groupOf(run string) string {
	if first := t.first[run]; first != "" {
		return first
	}
	return run
}

// contains reports whether the message belongs to the group's answer.
func (t *runGroups) contains(m *eventv1.Message, group string) bool {
	return group != "" && t.groupOf(m.GetRunId()) == group && uistream.IsPartOfAnswer(m)
}

// openGroup returns the group whose answer ends the messages; "" for none.
func (t *runGroups) openGroup(messages []*eventv1.Message) string {
	for i := len(messages) - 1; i >= 0; i-- {
		m := messages[i]
		if uistream.IsPartOfAnswer(m) {
			return t.groupOf(m.GetRunId())
		}
		if !isInvisible(m) {
			return ""
		}
	}
	return ""
}
