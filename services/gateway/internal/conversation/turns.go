package conversation

import (
	"context"
	"errors"

	"github.com/holdfast-run/holdfast/pkg/fault"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// turns tells which runs have written one assistant message together, of messages that
// it is shown in their order. The state service is asked only where the answers of two
// runs follow each other without a message of a user between them.
type turns struct {
	reader  *Reader
	session *statev1.Session
	of      map[string]string // the first run of the message, by the runs that continue it
	ids     map[string]string // of the assistant messages, by run
	last    string            // the run whose answer is open
}

func (r *Reader) turns(s *statev1.Session) *turns {
	return &turns{reader: r, session: s, of: map[string]string{}, ids: map[string]string{}}
}

// take takes the next message.
func (t *turns) take(ctx context.Context, m *eventv1.Message) error {
	if aside(m) {
		return nil
	}
	if !uistream.Answers(m) {
		t.last = ""
		return nil
	}
	former, run := t.last, m.GetRunId()
	t.last = run
	if former == "" || run == "" || former == run || t.of[run] != "" {
		return nil
	}
	ids := [2]string{former, run}
	for i, id := range ids {
		var err error
		if ids[i], err = t.messageID(ctx, id); err != nil {
			return err
		}
	}
	if ids[0] == ids[1] { // of runs of another session nothing more is known than that they follow each other
		t.of[run] = t.turn(former)
	}
	return nil
}

func (t *turns) messageID(ctx context.Context, run string) (string, error) {
	if id, known := t.ids[run]; known {
		return id, nil
	}
	got, err := t.reader.Run(ctx, t.session.GetTenant(), &statev1.Run{SessionId: t.session.GetSessionId(), RunId: run})
	if err != nil && !errors.Is(err, fault.NotFound) { // a branch has messages of runs of another session
		return "", err
	}
	t.ids[run] = got.GetMessageId()
	return t.ids[run], nil
}

// turn is the run that began the message that the run has written.
func (t *turns) turn(run string) string {
	if first := t.of[run]; first != "" {
		return first
	}
	return run
}

// answers reports whether the message belongs to the answer of the turn.
func (t *turns) answers(m *eventv1.Message, turn string) bool {
	return turn != "" && t.turn(m.GetRunId()) == turn && uistream.Answers(m)
}

// answering names the turn whose answer is open at the end of the messages, "" for none.
func (t *turns) answering(messages []*eventv1.Message) string {
	for i := len(messages) - 1; i >= 0; i-- {
		m := messages[i]
		if uistream.Answers(m) {
			return t.turn(m.GetRunId())
		}
		if !aside(m) {
			return ""
		}
	}
	return ""
}
