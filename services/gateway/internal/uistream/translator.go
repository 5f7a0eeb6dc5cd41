package uistream

import (
	"slices"
	"strconv"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// Major is a major version of the npm package ai.
type Major int

// Newest is the major version that is assumed of a client that does not say.
const Newest Major = 7

// What clients of a major version know.
func (m Major) resets() bool      { return m >= 7 } // to take back the parts of a step
func (m Major) approves() bool    { return m >= 6 } // approvals that are asked for, and refused
func (m Major) inputErrors() bool { return m >= 6 } // calls that could not begin; 5.0.0 fails on them
func (m Major) reasons() bool     { return m >= 6 } // why a message has finished; 5.0.0 fails on it
func (m Major) responds() bool    { return m >= 7 } // answers to approvals
func (m Major) interrupts() bool  { return m >= 7 } // the finish reason "interrupted"

// The kinds of blocks that grow by deltas; the names are those of the parts.
const (
	text      = "text"
	reasoning = "reasoning"
)

// interrupted is the finish reason of a run that was interrupted, and the key of the
// metadata of a message that was cut short.
const interrupted = "interrupted"

// Translator makes the parts of one message out of one run's chunks. Feed it
// every chunk of the run in order, and hand every part on, or, for a client
// that has the message up to a sequence already, drop the parts up to there. It
// is not safe for concurrent use.
type Translator struct {
	messageID string
	major     Major
	started   bool
	reason    string // the finish reason that the run gave
	usage     *Usage // what the run has used

	described *Metadata // nil: the stream has no metadata
	cutShort  bool      // a run of the message was interrupted
	answered  func(callID string) bool

	shown int64 // the last sequence that had a part
	firm  int64 // the last one whose parts cannot just be sent again
	step  step
	steps int   // begun so far
	begun int32 // the number of the last one
	block block
	calls map[string]call
}

// step is the step that the client is in.
type step struct {
	open   bool  // start-step was sent, finish-step was not
	void   bool  // the chunk behind the start-step is void; the next attempt uses it again
	at     int64 // sequence of its step_started
	before int64 // the last sequence that had a part before the step
	number int32
	blocks int // blocks begun so far, for their ids
}

// block is the text or reasoning that grows; its kind is empty when none does.
type block struct{ kind, id string }

// Ending is how a run ended that has not failed.
type Ending int

// The endings.
const (
	Completed Ending = iota
	Paused           // it waits for answers, or for whoever resumes it
	Interrupted
)

// New returns a translator for the message.
func New(messageID string, major Major) *Translator {
	return &Translator{messageID: messageID, major: major, calls: map[string]call{}}
}

// Start begins the message, once; a repetition gives no parts.
func (t *Translator) Start() []Part {
	if t.started {
		return nil
	}
	t.started = true
	return []Part{start(t.messageID, t.described)}
}

// Chunk gives the parts of a chunk; most have none or one. Chunks that user
// interfaces have no part for give none.
func (t *Translator) Chunk(sequence int64, c *eventv1.Chunk) []Part {
	if c.GetStepDiscarded() != nil {
		return t.discardStep()
	}
	parts := t.chunk(sequence, c)
	if slices.ContainsFunc(parts, func(p Part) bool { return !p.Transient && p.Type != "start" }) {
		t.shown = sequence
		if t.step.open || !again(c) {
			t.firm = sequence
		}
	}
	return parts
}

// again reports whether the parts of the chunk may be sent twice: what a client has
// of the end of a call takes the place of what it had.
func again(c *eventv1.Chunk) bool {
	return c.GetToolEnd() != nil || c.GetToolApprovalResponse() != nil || c.GetSubagentStart() != nil || c.GetSubagentEnd() != nil
}

func (t *Translator) chunk(sequence int64, c *eventv1.Chunk) []Part {
	if t.foreign(c) {
		return nil
	}
	switch e := c.GetEvent().(type) {
	case *eventv1.Chunk_RunStarted, *eventv1.Chunk_RunResumed:
		t.reason, t.usage = "", nil
		return t.Start()
	case *eventv1.Chunk_RunCompleted:
		t.reason, t.usage = e.RunCompleted.GetFinishReason(), usageOf(e.RunCompleted.GetUsage())
	case *eventv1.Chunk_RunSuspended:
		t.reason = suspendedReason(e.RunSuspended.GetReason())
	case *eventv1.Chunk_RunInterrupted:
		t.cutShort = true
	case *eventv1.Chunk_StepStarted:
		return t.startStep(sequence, c.GetStep())
	case *eventv1.Chunk_StepCommitted:
		return t.finishStep()
	case *eventv1.Chunk_TextDelta:
		return t.grow(text, e.TextDelta.GetDelta())
	case *eventv1.Chunk_Thinking:
		return t.think(e.Thinking)
	case *eventv1.Chunk_ToolArgStreamStart:
		s := e.ToolArgStreamStart
		return t.callStart(sequence, s.GetToolCallId(), tool{s.GetToolName(), s.GetDynamic()})
	case *eventv1.Chunk_ToolArgStreamDelta:
		return t.callDelta(e.ToolArgStreamDelta)
	case *eventv1.Chunk_ToolStart:
		return t.toolStarted(sequence, e.ToolStart)
	case *eventv1.Chunk_ToolEnd:
		return t.callEnd(sequence, e.ToolEnd)
	case *eventv1.Chunk_ToolApprovalRequest:
		return t.approvalAsked(sequence, e.ToolApprovalRequest)
	case *eventv1.Chunk_ToolApprovalResponse:
		return t.approvalAnswered(e.ToolApprovalResponse)
	default:
		return aside(c)
	}
	return nil
}

// Finish ends the message well.
func (t *Translator) Finish(how Ending) []Part {
	return append(t.end(), finish(t.finishReason(how), t.conclusion(how)))
}

// GiveUp ends the stream of a run that never began: there is no message.
func (t *Translator) GiveUp() []Part { return []Part{finish(t.finishReason(Interrupted), nil)} }

func (t *Translator) finishReason(how Ending) string {
	switch {
	case !t.major.reasons():
		return ""
	case how == Interrupted && t.major.interrupts():
		return interrupted // with another reason some apps would send the message back to go on with it
	case how != Interrupted && finishReasons[t.reason]:
		return t.reason
	case t.reason == "" && how == Completed:
		return "stop"
	default:
		return "other"
	}
}

// Fail ends the message with an error that the user sees.
func (t *Translator) Fail(sentence string) []Part {
	return append(slices.Concat(t.end(), t.concluded()), Error(sentence))
}

func (t *Translator) end() []Part {
	return append(t.Start(), t.finishStep()...)
}

func (t *Translator) startStep(sequence int64, number int32) []Part {
	var parts []Part
	reuse := t.step.void && t.shown == t.step.before
	if !reuse {
		parts = append(t.finishStep(), startStep())
		t.steps++
	}
	t.begun = number
	t.step = step{open: true, at: sequence, before: t.shown, number: number}
	return parts
}

func (t *Translator) finishStep() []Part {
	parts := t.closeBlock()
	if t.step.open {
		parts = append(parts, finishStep())
	}
	t.step = step{}
	return parts
}

func (t *Translator) discardStep() []Part {
	if !t.step.open || t.step.void {
		return nil
	}
	if !t.major.resets() {
		return t.finishStep() // the client keeps what is void; a reload drops it
	}
	parts := append(t.closeBlock(), resetStep())
	t.voidStep()
	return parts
}

// voidStep forgets the step in flight; its start-step still stands at the client.
func (t *Translator) voidStep() {
	t.forgetCalls(t.step.at)
	t.shown = t.step.before
	t.step = step{open: true, void: true, before: t.step.before}
}

// Rewound takes back everything after the position, which is never inside a step. When
// ok is false, the client cannot be made to drop what is void: break the connection.
func (t *Translator) Rewound(at int64) (parts []Part, ok bool) {
	switch {
	case t.shown <= at:
		if t.step.at > at { // an attempt that has used a start-step again, and nothing else
			t.voidStep()
		}
		return nil, true
	case !t.step.open && t.firm <= at: // ends of calls, which will be sent again
		t.shown = t.firm
		return nil, true
	case !t.major.resets() || t.step.at == 0 || at < t.step.before || at >= t.step.at:
		return nil, false
	}
	parts = append(t.closeBlock(), resetStep())
	t.reason = ""
	t.voidStep()
	return parts, true
}

func (t *Translator) grow(kind, delta string) []Part {
	if delta == "" {
		return nil
	}
	var parts []Part
	if t.block.kind != kind {
		parts = append(parts, t.closeBlock()...)
		t.step.blocks++
		t.block = block{kind, kind + "-" + strconv.Itoa(int(t.step.number)) + "-" + strconv.Itoa(t.step.blocks)}
		parts = append(parts, blockStart(kind, t.block.id))
	}
	return append(parts, blockDelta(kind, t.block.id, delta))
}

func (t *Translator) think(e *eventv1.Thinking) []Part {
	parts := t.grow(reasoning, e.GetContent())
	if e.GetIsComplete() && t.block.kind == reasoning {
		parts = append(parts, t.closeBlock()...)
	}
	return parts
}

func (t *Translator) closeBlock() []Part {
	if t.block.kind == "" {
		return nil
	}
	end := blockEnd(t.block.kind, t.block.id)
	t.block = block{}
	return []Part{end}
}

func suspendedReason(reason string) string {
	if reason == "client_tool" || reason == "step_partial" {
		return "tool-calls"
	}
	return "other"
}
