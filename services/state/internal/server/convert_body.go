package server

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/pkg/agent"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// bodies lets commands read message bodies. Package session does not decode them.
var bodies = session.BodyFuncs{SameContent: sameContent, IsVisible: isVisible, MoveToRun: adoptMessage, RanTool: anyToolRan}

func decodeBody(row session.Message) (*eventv1.Message, error) {
	m := &eventv1.Message{}
	if err := proto.Unmarshal(row.Body, m); err != nil {
		return nil, fmt.Errorf("decode message %q: %w", row.ID, err)
	}
	return m, nil
}

// sameContent reports whether both messages have the same role, parts, UI metadata, UI parts and input of a caller.
func sameContent(stored, posted session.Message) (bool, error) {
	a, err := decodeBody(stored)
	if err != nil {
		return false, err
	}
	b, err := decodeBody(posted)
	same := a.GetRole() == b.GetRole() && a.GetUiMetadata() == b.GetUiMetadata() && a.GetUiParts() == b.GetUiParts() &&
		proto.Equal(a.GetCaller(), b.GetCaller()) &&
		slices.EqualFunc(a.GetParts(), b.GetParts(), func(a, b *eventv1.Part) bool { return proto.Equal(a, b) })
	return same, err
}

func isVisible(row session.Message) (bool, error) {
	m, err := decodeBody(row)
	return !m.GetHidden(), err
}

func adoptMessage(row session.Message, runID string) (session.Message, error) {
	m, err := decodeBody(row)
	if err != nil {
		return session.Message{}, err
	}
	m.RunId, row.RunID = runID, runID
	row.Body, err = encode(m)
	return row, err
}

// finishTool is the call with the model's output. No tool runs for it.
const finishTool = "__finish__"

// anyToolRan reports whether the messages of a step contain the result of a tool. In a step
// with a failed reply, no tool ran.
func anyToolRan(step []session.Message) (bool, error) {
	for _, row := range step {
		m, err := decodeBody(row)
		switch {
		case err != nil:
			return false, err
		case m.GetMetadata()[agent.MetadataFailed] != "":
			return false, nil
		case slices.ContainsFunc(m.GetParts(), isToolEnd):
			return true, nil
		}
	}
	return false, nil
}

func isToolEnd(p *eventv1.Part) bool {
	result := p.GetToolResult()
	return result != nil && result.GetToolName() != finishTool
}
