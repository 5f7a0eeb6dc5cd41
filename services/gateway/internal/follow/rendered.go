package follow

import (
	"github.com/holdfast-run/holdfast/pkg/position"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	statev1 "github.com/holdfast-run/holdfast/proto/holdfast/state/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/frame"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// renderStep returns the frames of a stored step. They have the same chunks as the live stream, in
// the same order: see uistream.StepChunks. previous is the run that this run resumes or continues,
// needed only with the step that begins such a run.
//
//	the step begins a run     run_started or run_resumed
//	the step                  its chunks, numbered (step, Stored, 1..)
//	                          step_committed at Committed(step)
//	the run ended there       its last chunk and its end at Ended(step)-1 and Ended(step)
func renderStep(run *statev1.Run, previous string, step *statev1.StoredStep) []*frame.Frame {
	number := step.GetStep()
	chunks := uistream.StepChunks(number, step.GetMessages(), step.GetRecord())
	if step.GetBeginsRun() {
		at := step.GetCommittedAt()
		if len(chunks) > 0 {
			at = chunks[0].GetTimestamp()
		}
		chunks = append([]*eventv1.Chunk{stamp(run, number-1, at, firstChunk(run, previous))}, chunks...)
	}
	frames := make([]*frame.Frame, 0, len(chunks)+3) // plus the commit, the last chunk and the end
	for i, c := range chunks[:min(len(chunks), position.MaxChunks)] {
		at := position.Position{Step: number, Attempt: position.Stored, N: int32(i + 1)} //nolint:gosec // see MaxChunks
		frames = append(frames, frame.Chunk("", at.Sequence(), stamp(run, c.GetStep(), c.GetTimestamp(), c)))
	}
	committed := &eventv1.Chunk{Event: &eventv1.Chunk_StepCommitted{StepCommitted: &eventv1.StepCommitted{CheckpointId: step.GetCheckpointId()}}}
	frames = append(frames, frame.Chunk("", position.Committed(number), stamp(run, number, step.GetCommittedAt(), committed)))
	if run.GetFinishStep() != number {
		return frames
	}
	return append(frames, renderEnd(run, position.Ended(number), number)...)
}

// stamp sets the common fields of a chunk.
func stamp(run *statev1.Run, step int32, at int64, c *eventv1.Chunk) *eventv1.Chunk {
	c.AgentId, c.AgentType, c.Timestamp, c.Step = run.GetRunId(), run.GetAgentType(), at, step
	return c
}

// resumes reports whether the run resumes or continues an earlier run.
func resumes(run *statev1.Run) bool {
	e := run.GetEntry()
	return e == statev1.RunEntry_RUN_ENTRY_RESUME || e == statev1.RunEntry_RUN_ENTRY_CONTINUATION
}
