package follow

import (
	"github.com/holdfast-run/holdfast/pkg/position"
	"github.com/holdfast-run/holdfast/pkg/step"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	streamv2 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v2"
	"github.com/holdfast-run/holdfast/services/gateway/internal/frame"
)

// renderStep returns the frames of a stored step. They have the same chunks as the live stream, in
// the same order: see step.Replay. previous is the run that this run resumes or continues,
// needed only with the step that begins such a run.
//
//	the step begins a run     run_started or run_resumed
//	the step                  its chunks, numbered (step, Stored, 1..)
//	                          step_committed at Committed(step)
//	the run ended there       its last chunk and its end at Ended(step)-1 and Ended(step)
func renderStep(run *statev1.Run, previous string, stored *statev1.StoredStep) []*frame.Frame {
	number := stored.GetStep()
	chunks := step.Replay(number, stored.GetMessages(), stored.GetRecord())
	if stored.GetBeginsRun() {
		chunks = append([]*eventv1.Chunk{stamp(run, number-1, run.GetStartedAt(), firstChunk(run, previous))}, chunks...)
	}
	frames := make([]*frame.Frame, 0, len(chunks)+3) // plus the commit, the last chunk and the end
	for i, c := range chunks[:min(len(chunks), position.MaxChunks)] {
		at := position.Position{Step: number, Attempt: position.Stored, N: int32(i + 1)} //nolint:gosec // see MaxChunks
		frames = append(frames, frame.Chunk("", at.Sequence(), stamp(run, c.GetStep(), c.GetTimestamp(), c)))
	}
	committed := stamp(run, number, stored.GetCommittedAt(), step.Committed(stored.GetCheckpointId()))
	frames = append(frames, frame.Chunk("", position.Committed(number), committed))
	if run.GetFinishStep() != number {
		return frames
	}
	return append(frames, renderEnd(run, position.Ended(number), number)...)
}

func stamp(run *statev1.Run, step int32, at int64, c *eventv1.Chunk) *eventv1.Chunk {
	c.AgentId, c.AgentType, c.Timestamp, c.Step = run.GetRunId(), run.GetAgentType(), at, step
	return c
}

func resumes(run *statev1.Run) bool {
	e := run.GetEntry()
	return e == statev1.RunEntry_RUN_ENTRY_RESUME || e == statev1.RunEntry_RUN_ENTRY_CONTINUATION
}

// renderEnd returns the last chunk of an ended run, and its terminal frame at the sequence. step is
// the last committed step.
func renderEnd(run *statev1.Run, sequence int64, step int32) []*frame.Frame {
	last := stamp(run, step, run.GetCompletedAt(), lastChunk(run))
	return []*frame.Frame{frame.Chunk("", sequence-1, last), frame.Terminal("", sequence, terminalOf(run))}
}

// renderOutside returns the end of a run without a step, after its first chunk if it has started. previous is as in
// renderStep, and step is the last committed step.
func renderOutside(run *statev1.Run, previous string, step int32) []*frame.Frame {
	end := renderEnd(run, run.GetEndPosition(), step)
	if run.GetStartedAt() == 0 {
		return end
	}
	begin := stamp(run, step, run.GetStartedAt(), firstChunk(run, previous))
	return append([]*frame.Frame{frame.Chunk("", run.GetEndPosition()-2, begin)}, end...)
}

func firstChunk(run *statev1.Run, previous string) *eventv1.Chunk {
	turn, message := run.GetTurn(), run.GetMessageId()
	if resumes(run) {
		return step.RunResumed(previous, turn, message)
	}
	return step.RunStarted(turn, message)
}

var suspensions = map[statev1.RunStatus]string{
	statev1.RunStatus_RUN_STATUS_SUSPENDED_CLIENT_TOOL:       step.SuspendedClientTool,
	statev1.RunStatus_RUN_STATUS_SUSPENDED_AWAITING_CHILDREN: step.SuspendedChildren,
	statev1.RunStatus_RUN_STATUS_SUSPENDED_STEP_PARTIAL:      step.SuspendedPartial,
}

func lastChunk(run *statev1.Run) *eventv1.Chunk {
	switch run.GetStatus() {
	case statev1.RunStatus_RUN_STATUS_COMPLETED:
		return &eventv1.Chunk{Event: &eventv1.Chunk_RunCompleted{RunCompleted: &eventv1.RunCompleted{
			Output: run.GetOutput(), FinishReason: run.GetFinishReason(), Usage: run.GetUsage(), CompletionReason: run.GetCompletionReason(),
		}}}
	case statev1.RunStatus_RUN_STATUS_FAILED:
		failure := &eventv1.Error{Error: run.GetFailure().GetError(), Code: run.GetFailure().GetCode()}
		return &eventv1.Chunk{Event: &eventv1.Chunk_Error{Error: failure}}
	case statev1.RunStatus_RUN_STATUS_INTERRUPTED:
		return &eventv1.Chunk{Event: &eventv1.Chunk_RunInterrupted{RunInterrupted: &eventv1.RunInterrupted{Reason: run.GetStop().GetReason()}}}
	default:
		return &eventv1.Chunk{Event: &eventv1.Chunk_RunSuspended{RunSuspended: &eventv1.RunSuspended{Reason: suspensions[run.GetStatus()]}}}
	}
}

func terminalOf(run *statev1.Run) *streamv2.Terminal {
	end := &streamv2.End{Output: run.GetOutput(), Usage: run.GetUsage(), CompletionReason: run.GetCompletionReason()}
	switch run.GetStatus() {
	case statev1.RunStatus_RUN_STATUS_FAILED:
		fail := &streamv2.Fail{Error: run.GetFailure().GetError(), Code: run.GetFailure().GetCode()}
		return &streamv2.Terminal{RunId: run.GetRunId(), Outcome: &streamv2.Terminal_Fail{Fail: fail}}
	case statev1.RunStatus_RUN_STATUS_COMPLETED:
		end.Status = streamv2.EndStatus_END_STATUS_COMPLETED
	case statev1.RunStatus_RUN_STATUS_INTERRUPTED:
		end.Status = streamv2.EndStatus_END_STATUS_INTERRUPTED
	default:
		end.Status = streamv2.EndStatus_END_STATUS_PAUSED
	}
	return &streamv2.Terminal{RunId: run.GetRunId(), Outcome: &streamv2.Terminal_End{End: end}}
}
