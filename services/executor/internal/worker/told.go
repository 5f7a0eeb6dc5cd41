package worker

import (
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	streamv1 "github.com/holdfast-run/holdfast/proto/holdfast/stream/v1"
	"github.com/holdfast-run/holdfast/services/executor/internal/loop"
)

// told is what of a run stands in the stream already, behind the last commit: what
// a new owner must not say again.
type told struct {
	started     bool            // run_started or run_resumed
	ended       bool            // a chunk that says how the run ended
	half        map[int32]bool  // steps that say more than the ends of their calls: of the end of the step
	patched     int32           // the step whose state the last chunk has changed; 0 for another chunk
	terminal    int64           // the sequence of the terminal record; 0 without one
	committed   map[int32]int64 // step_committed, with the sequence that the rest of its step reaches
	stepStarted map[int32]bool
	toolStart   map[string]bool // by call id
	awaits      map[string]bool // a client has to answer the call
	toolEnd     map[string]bool
	asked       map[string]bool            // for an approval
	judged      map[string]bool            // what a human has decided
	text        map[int32]*strings.Builder // by step
	thinking    map[int32]*strings.Builder
}

// read learns from the records that a rewind has kept. Records of other runs do
// not count.
func read(runID string, kept []*streamv1.Record) told {
	t := told{
		committed: map[int32]int64{}, stepStarted: map[int32]bool{}, toolStart: map[string]bool{}, awaits: map[string]bool{}, toolEnd: map[string]bool{},
		asked: map[string]bool{}, judged: map[string]bool{}, half: map[int32]bool{},
		text: map[int32]*strings.Builder{}, thinking: map[int32]*strings.Builder{},
	}
	for i, r := range kept {
		if r.GetTerminal().GetRunId() == runID {
			t.terminal = r.GetSequence()
		}
		if r.GetChunk().GetAgentId() == runID {
			t.hear(r.GetChunk(), below(kept, i))
		}
	}
	return t
}

// below is the sequence of the record before the one; where retention has taken
// that, one of no record of the stream.
func below(kept []*streamv1.Record, i int) int64 {
	if i == 0 {
		return kept[i].GetSequence() - 1
	}
	return kept[i-1].GetSequence()
}

func (t *told) hear(chunk *eventv1.Chunk, below int64) {
	step := chunk.GetStep()
	t.ended = t.ended || last(chunk)
	t.hearWrites(step, chunk)
	switch e := chunk.GetEvent().(type) {
	case *eventv1.Chunk_RunStarted, *eventv1.Chunk_RunResumed:
		t.started = true
	case *eventv1.Chunk_StepStarted:
		t.stepStarted[step] = true
	case *eventv1.Chunk_StepCommitted:
		if !t.commits(step) {
			t.committed[step] = below
		}
	case *eventv1.Chunk_TextDelta:
		grow(t.text, step, e.TextDelta.GetDelta())
	case *eventv1.Chunk_Thinking:
		grow(t.thinking, step, e.Thinking.GetContent())
	case *eventv1.Chunk_ToolStart:
		t.toolStart[e.ToolStart.GetToolCallId()] = true
		t.awaits[e.ToolStart.GetToolCallId()] = e.ToolStart.GetAwaitsClient()
	case *eventv1.Chunk_ToolEnd:
		t.toolEnd[e.ToolEnd.GetToolCallId()] = true
	case *eventv1.Chunk_ToolApprovalRequest:
		t.asked[e.ToolApprovalRequest.GetToolCallId()] = true
	case *eventv1.Chunk_ToolApprovalResponse:
		t.judged[e.ToolApprovalResponse.GetToolCallId()] = true
	}
}

// hearWrites learns where a step has told of writes to the state without the end of their
// call behind it, or of its output: of what it would tell once more.
func (t *told) hearWrites(step int32, chunk *eventv1.Chunk) {
	if t.patched > 0 && chunk.GetToolEnd() == nil || chunk.GetOutput() != nil {
		t.half[max(t.patched, step)] = true
	}
	t.patched = 0
	if chunk.GetStatePatch() != nil {
		t.patched = step
	}
}

// continues reports whether the step can go on behind what stands of it.
func (t *told) continues(step int32) bool { return !t.half[step] && t.patched != step }

// answers reports whether the journal has every call whose end stands.
func (t told) answers(j *loop.Journal) bool {
	recorded := map[string]bool{}
	for _, r := range j.Results {
		recorded[r.Result.CallID] = true
	}
	for id := range t.toolEnd {
		if !recorded[id] {
			return false
		}
	}
	return true
}

func grow(texts map[int32]*strings.Builder, step int32, delta string) {
	if texts[step] == nil {
		texts[step] = &strings.Builder{}
	}
	texts[step].WriteString(delta)
}

// has reports whether the chunk that ends a step stands.
func (t told) has(head *eventv1.Chunk) bool {
	if head.GetRunStarted() != nil || head.GetRunResumed() != nil {
		return t.started
	}
	return t.commits(head.GetStep())
}

// commits reports whether the step_committed of the step stands.
func (t told) commits(step int32) bool {
	_, ok := t.committed[step]
	return ok
}

// last reports whether the chunk says how a run ended.
func last(chunk *eventv1.Chunk) bool {
	switch e := chunk.GetEvent().(type) {
	case *eventv1.Chunk_RunCompleted, *eventv1.Chunk_RunInterrupted, *eventv1.Chunk_RunSuspended:
		return true
	case *eventv1.Chunk_Error:
		return !e.Error.GetRecoverable()
	}
	return false
}

// says reports whether everything of the step up to its plan stands. It does, unless
// the stream tier was away when the plan was recorded, or the agent now leaves other calls
// to a client, or to nobody.
func (t told) says(step int32, plan agent.Message, calls fate) bool {
	var text, thinking strings.Builder
	for _, p := range plan.Parts {
		switch part := p.(type) {
		case agent.Text:
			text.WriteString(clean(part.Text))
		case agent.Reasoning:
			thinking.WriteString(clean(part.Text))
		case agent.ToolCall:
			if t.toolStart[part.ID] == calls.refused(part.ID) || t.awaits[part.ID] != calls.awaitsClient(part.ID) {
				return false
			}
		}
	}
	return t.stepStarted[step] && spoken(t.text, step) == text.String() && spoken(t.thinking, step) == thinking.String()
}

func spoken(texts map[int32]*strings.Builder, step int32) string {
	if texts[step] == nil {
		return ""
	}
	return texts[step].String()
}
