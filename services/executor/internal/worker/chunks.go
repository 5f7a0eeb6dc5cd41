package worker

import (
	"encoding/json"

	"github.com/holdfast-run/holdfast/pkg/step"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
	"github.com/holdfast-run/holdfast/services/executor/internal/tool"
)

// The chunks of a run, without the fields set by view.stamp.

// replyChunk returns the chunk of an event of the reply; nil for events without one.
func replyChunk(event model.Event, reply *loop.Reply) *eventv1.Chunk {
	switch e := event.(type) {
	case model.TextDelta:
		return step.Text(clean(e.Text))
	case model.ReasoningDelta:
		return step.Thinking(clean(e.Text), false)
	case model.ReasoningEnd:
		return step.Thinking("", true)
	case model.CallStart:
		return step.InputStart(e.ID, clean(e.Name), reply.Dynamic(e.Index))
	case model.CallDelta:
		return step.InputDelta(reply.CallID(e.Index), clean(e.Text))
	case model.CallEnd:
		return step.InputEnd(reply.CallID(e.Index))
	}
	return nil
}

func custom(e tool.Event) *eventv1.Chunk {
	return step.Custom(&eventv1.Custom{EventName: clean(e.Name), Data: clean(string(e.Data)), Id: e.ID, Transient: e.Transient})
}

// notice returns the custom event about a refusal of a model.
func notice(n loop.Notice) *eventv1.Chunk {
	data, _ := json.Marshal(map[string]string{"kind": "refusal", "text": n.Text}) // texts always marshal
	return custom(tool.Event{Name: "notice", ID: n.ID, Data: data})
}

// terminal returns the end of the run for its readers.
func terminal(runID string, o loop.Outcome, usage *eventv1.Usage) *streamv2.Terminal {
	if f := o.Failure; f != nil {
		return &streamv2.Terminal{RunId: runID, Outcome: &streamv2.Terminal_Fail{Fail: &streamv2.Fail{Error: clean(f.Error), Code: f.Code}}}
	}
	status := streamv2.EndStatus_END_STATUS_COMPLETED
	switch {
	case o.Status == loop.StatusInterrupted:
		status = streamv2.EndStatus_END_STATUS_INTERRUPTED
	case isSuspended(o):
		status = streamv2.EndStatus_END_STATUS_PAUSED
	}
	return &streamv2.Terminal{RunId: runID, Outcome: &streamv2.Terminal_End{End: &streamv2.End{
		Status: status, Output: clean(string(o.Output)), Usage: usage, CompletionReason: o.CompletionReason,
	}}}
}

// lastChunk returns the last chunk of the run.
func lastChunk(o loop.Outcome, usage *eventv1.Usage) *eventv1.Chunk {
	switch {
	case o.Failure != nil:
		return &eventv1.Chunk{Event: &eventv1.Chunk_Error{Error: &eventv1.Error{Error: clean(o.Failure.Error), Code: o.Failure.Code}}}
	case o.Status == loop.StatusInterrupted:
		return &eventv1.Chunk{Event: &eventv1.Chunk_RunInterrupted{RunInterrupted: &eventv1.RunInterrupted{Reason: clean(o.Reason)}}}
	case isSuspended(o):
		return &eventv1.Chunk{Event: &eventv1.Chunk_RunSuspended{RunSuspended: &eventv1.RunSuspended{Reason: suspensionReasons[o.Status]}}}
	}
	return &eventv1.Chunk{Event: &eventv1.Chunk_RunCompleted{RunCompleted: &eventv1.RunCompleted{
		Output: clean(string(o.Output)), FinishReason: string(o.FinishReason), Usage: usage, CompletionReason: o.CompletionReason,
	}}}
}

// suspensionReasons has the reason of a suspension, for readers.
var suspensionReasons = map[loop.Status]string{
	loop.StatusSuspendedClientTool: step.SuspendedClientTool,
	loop.StatusSuspendedChildren:   step.SuspendedChildren,
	loop.StatusSuspendedPartial:    step.SuspendedPartial,
}

// isSuspended reports whether the run waits for a client, a human or a sub-agent.
func isSuspended(o loop.Outcome) bool { return suspensionReasons[o.Status] != "" }
