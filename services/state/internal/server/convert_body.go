package server

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/agent"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// bodies reads messages for commands, to which they are opaque.
var bodies = session.Bodies{Same: sameBody, Shown: shownBody, Adopt: adoptBody, Ran: ranIn}

func bodyOf(row session.Message) (*eventv1.Message, error) {
	m := &eventv1.Message{}
	if err := proto.Unmarshal(row.Body, m); err != nil {
		return nil, fmt.Errorf("decode message %q: %w", row.ID, err)
	}
	return m, nil
}

// sameBody reports whether both messages say the same, whenever and by whatever run they
// were said.
func sameBody(stored, posted session.Message) (bool, error) {
	a, err := bodyOf(stored)
	if err != nil {
		return false, err
	}
	b, err := bodyOf(posted)
	same := a.GetRole() == b.GetRole() && a.GetUiMetadata() == b.GetUiMetadata() &&
		slices.EqualFunc(a.GetParts(), b.GetParts(), func(a, b *eventv1.Part) bool { return proto.Equal(a, b) })
	return same, err
}

func shownBody(row session.Message) (bool, error) {
	m, err := bodyOf(row)
	return !m.GetHidden(), err
}

func adoptBody(row session.Message, runID string) (session.Message, error) {
	m, err := bodyOf(row)
	if err != nil {
		return session.Message{}, err
	}
	m.RunId, row.RunID = runID, runID
	row.Body, err = encode(m)
	return row, err
}

// finishTool is the call by which a model hands its output in. Nothing runs for it.
const finishTool = "__finish__"

// ranIn reports whether the messages of a step have the end of a call that a tool has run
// for. In a step whose reply has failed, no call ran.
func ranIn(step []session.Message) (bool, error) {
	for _, row := range step {
		m, err := bodyOf(row)
		switch {
		case err != nil:
			return false, err
		case m.GetMetadata()[agent.MetadataFailed] != "":
			return false, nil
		case slices.ContainsFunc(m.GetParts(), ran):
			return true, nil
		}
	}
	return false, nil
}

func ran(p *eventv1.Part) bool {
	result := p.GetToolResult()
	return result != nil && result.GetToolName() != finishTool
}
