package worker

import (
	"slices"
	"time"

	"github.com/holdfast-run/holdfast/pkg/agent"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
)

// callerInput returns what the message brings that began the turn: the newest user message that belongs to a run, outside
// of steps. So the input is the same for each claim of each run of the turn, also after it is resumed or answered again.
func callerInput(conversation []*statev1.StoredMessage) loop.CallerInput {
	for _, stored := range slices.Backward(conversation) {
		m := stored.GetMessage()
		if m.GetRole() != eventv1.Role_ROLE_USER || m.GetStep() != 0 || m.GetRunId() == "" {
			continue
		}
		in := loop.CallerInput{Instructions: m.GetCaller().GetInstructions()}
		for _, t := range m.GetCaller().GetTools() {
			in.Tools = append(in.Tools, agent.Tool{
				Name: t.GetName(), Description: t.GetDescription(), InputSchema: toJSON(t.GetInputSchema()),
				OutputSchema: toJSON(t.GetOutputSchema()), Strict: t.GetStrict(),
				AnswerWithin: time.Duration(t.GetAnswerWithinMs()) * time.Millisecond, Client: true,
			})
		}
		return in
	}
	return loop.CallerInput{}
}
