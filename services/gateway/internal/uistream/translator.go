package uistream

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/holdfast-run/holdfast/pkg/step"
	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// Major is a major version of the npm package ai.
type Major int

// UnknownMajor is the version of a client that does not tell it. Such a client receives what all
// versions from 5 on accept, and approvals, which 5 does not have.
const UnknownMajor Major = 0

// DefaultMajor is the newest major version. Stored messages are built with it.
const DefaultMajor Major = 7

// The methods below report which parts and values a client of the major version accepts.

func (m Major) resets() bool      { return m >= 7 }                      // reset-step, which drops the parts of a step
func (m Major) approves() bool    { return m >= 6 || m == UnknownMajor } // approval requests and denials
func (m Major) inputErrors() bool { return m >= 6 }                      // tool-input-error; 5.0.0 fails on it
func (m Major) reasons() bool     { return m >= 6 }                      // finish reasons; 5.0.0 fails on them
func (m Major) responds() bool    { return m >= 7 }                      // tool-approval-response
func (m Major) interrupts() bool  { return m >= 7 }                      // the finish reason "interrupted"

// The kinds of blocks with deltas, as in their part types.
const (
	text      = "text"
	reasoning = "reasoning"
)

// toolCalls is the finish reason of a run that waits for calls.
const (
	toolCalls = "tool-calls"
	other     = "other"
)

// interrupted is the finish reason of an interrupted run, and the metadata key of an incomplete
// stored message.
const interrupted = "interrupted"

// Translator translates the chunks of a message's runs into its parts. It needs every chunk in
// order. The caller sends all parts, or only those after the sequence up to which the client has
// the message. A Translator is not safe for concurrent use.
type Translator struct {
	messageID  string
	major      Major
	started    bool
	reason     string // finish reason of the run
	completion string // completion reason of the run
	usage      *Usage // of the run

	metadata *Metadata // nil: no metadata in the stream
	cutShort bool      // a run of the message was interrupted
	answered func(callID string) bool

	lastShown        int64 // the last sequence with a part
	lastUnrepeatable int64 // the last sequence whose parts must not be repeated
	step             openStep
	stepCount        int   // number of steps begun
	validSteps       int   // number of steps begun, without void ones
	stepNumber       int32 // number of the last step
	below            bool  // the last step has the calls of sessions below the root
	block            block
	calls            map[string]*call
	subAgents        map[string]int64 // calls whose sub-agents the message shows, with the sequences of their starts
}

// openStep is the current step of the client's message.
type openStep struct {
	open        bool  // start-step is sent, finish-step is not
	void        bool  // step_started is void; the next attempt, or the next step, reuses the start-step
	shown       bool  // the client has more of the step than its start-step
	sequence    int64 // of its step_started
	shownBefore int64 // Translator.lastShown when the step began
	number      int32
	blocks      int // number of blocks begun, for their ids
}

// block is the text or reasoning being streamed. Its kind is empty when there is none.
type block struct{ kind, id string }

// Ending is how a run ended without failing.
type Ending int

// How a run may end.
const (
	Completed Ending = iota
	Paused           // suspended: waits for answers or to be resumed
	Interrupted
)

// New returns a translator for the message.
func New(messageID string, major Major) *Translator {
	return &Translator{messageID: messageID, major: major, calls: map[string]*call{}, subAgents: map[string]int64{}}
}

// Start begins the message. Repeated calls return no parts.
func (t *Translator) Start() []Part {
	if t.started {
		return nil
	}
	t.started = true
	return []Part{start(t.messageID, t.metadata)}
}

// Chunk translates a chunk, usually into one part or none.
func (t *Translator) Chunk(sequence int64, c *eventv1.Chunk) []Part {
	if c.GetStepDiscarded() != nil {
		return t.discardStep()
	}
	parts := t.chunk(sequence, c)
	if slices.ContainsFunc(parts, func(p Part) bool { return !p.Transient && p.Type != "start" }) {
		t.step.shown = t.step.shown || c.GetStepStarted() == nil
		t.lastShown = sequence
		// Clients replace the end of a known call and its sub-agent, and merge metadata.
		repeatable := c.GetToolEnd() != nil || c.GetToolApprovalResponse() != nil || c.GetSubagentStart() != nil || c.GetSubagentEnd() != nil ||
			c.GetCustom().GetEventName() == agentMetadata
		if t.step.open || !repeatable {
			t.lastUnrepeatable = sequence
		}
	}
	return parts
}

func (t *Translator) chunk(sequence int64, c *eventv1.Chunk) []Part {
	if t.isOfEarlierMessage(c) {
		return nil
	}
	if begin := c.GetSubagentStart(); begin != nil {
		t.subAgents[begin.GetToolCallId()] = sequence
	}
	switch e := c.GetEvent().(type) {
	case *eventv1.Chunk_RunStarted, *eventv1.Chunk_RunResumed:
		t.reason, t.completion, t.usage = "", "", nil
		return t.Start()
	case *eventv1.Chunk_RunCompleted:
		t.reason, t.completion = e.RunCompleted.GetFinishReason(), e.RunCompleted.GetCompletionReason()
		t.usage = usageOf(e.RunCompleted.GetUsage())
	case *eventv1.Chunk_RunSuspended:
		t.reason = other
		if r := e.RunSuspended.GetReason(); r == step.SuspendedClientTool || r == step.SuspendedPartial {
			t.reason = toolCalls
		}
	case *eventv1.Chunk_RunInterrupted:
		t.cutShort = true
	case *eventv1.Chunk_StepStarted:
		return t.startStep(sequence, c.GetStep())
	case *eventv1.Chunk_StepCommitted:
		return t.commitStep()
	case *eventv1.Chunk_TextDelta:
		return t.grow(text, e.TextDelta.GetDelta())
	case *eventv1.Chunk_Thinking:
		parts := t.grow(reasoning, e.Thinking.GetContent())
		if e.Thinking.GetIsComplete() && t.block.kind == reasoning {
			parts = append(parts, t.closeBlock()...)
		}
		return parts
	case *eventv1.Chunk_ToolArgStreamStart:
		s := e.ToolArgStreamStart
		return t.startCall(sequence, s.GetToolCallId(), tool{s.GetToolName(), s.GetDynamic()})
	case *eventv1.Chunk_ToolArgStreamDelta:
		return t.growInput(e.ToolArgStreamDelta)
	case *eventv1.Chunk_ToolStart:
		id, of := e.ToolStart.GetToolCallId(), tool{e.ToolStart.GetToolName(), e.ToolStart.GetDynamic()}
		if e.ToolStart.GetAwaitsClient() && t.answered != nil && t.answered(id) {
			return t.sendInputSilently(sequence, id, of, e.ToolStart.GetArguments())
		}
		return t.sendInput(sequence, id, of, e.ToolStart.GetArguments())
	case *eventv1.Chunk_ToolEnd:
		return t.endCall(sequence, e.ToolEnd)
	case *eventv1.Chunk_ToolApprovalRequest:
		r := e.ToolApprovalRequest
		parts := t.sendInput(sequence, r.GetToolCallId(), tool{name: r.GetToolName()}, r.GetInput())
		return append(parts, t.sendApprovalRequest(r.GetToolCallId(), r.GetApprovalId())...)
	case *eventv1.Chunk_ToolApprovalResponse:
		r := e.ToolApprovalResponse
		if c, known := t.calls[r.GetToolCallId()]; known {
			return t.sendDecision(r.GetToolCallId(), cmp.Or(r.GetApprovalId(), c.approval), r.GetDecision() != "reject", r.GetReason())
		}
	default:
		return dataParts(c)
	}
	return nil
}

// Finish ends the message of a run that did not fail.
func (t *Translator) Finish(how Ending) []Part {
	return append(t.end(), finish(t.finishReason(how), t.finishMetadata(how)))
}

// FinishWithoutMessage ends the stream of a run without a message: it never began.
func (t *Translator) FinishWithoutMessage() []Part {
	return []Part{finish(t.finishReason(Interrupted), nil)}
}

func (t *Translator) finishReason(how Ending) string {
	switch {
	case !t.major.reasons():
		return ""
	case how == Interrupted && t.major.interrupts():
		return interrupted // with other reasons, some apps resend the message to continue it
	case how == Completed && t.reason == toolCalls: // its last calls have ended the run; only a suspension waits for calls
		return "stop"
	case how != Interrupted && finishReasons[t.reason]:
		return t.reason
	case t.reason == "" && how == Completed:
		return "stop"
	default:
		return other
	}
}

// Fail ends the message with an error. The user sees the sentence.
func (t *Translator) Fail(sentence string) []Part {
	return append(slices.Concat(t.end(), t.failMetadata()), Error(sentence))
}

func (t *Translator) end() []Part {
	return append(t.Start(), t.finishStep()...)
}

func (t *Translator) startStep(sequence int64, number int32) []Part {
	var parts []Part
	reuse := t.step.void && t.lastShown == t.step.shownBefore
	if !reuse {
		parts = append(t.finishStep(), startStep())
		t.stepCount++
	}
	t.validSteps++
	t.stepNumber = number
	t.step = openStep{open: true, sequence: sequence, shownBefore: t.lastShown, number: number}
	return parts
}

// finishStep ends the open step. A step without content has only a start-step, also in a replay without its void parts.
func (t *Translator) finishStep() []Part {
	parts := t.closeBlock()
	if t.step.open && !t.step.void {
		parts = append(parts, finishStep())
	}
	t.step = openStep{}
	return parts
}

// commitStep ends the step. Of a step without content, as after a refusal by the model, the client keeps the start-step for
// the next step.
func (t *Translator) commitStep() []Part {
	if t.step.open && !t.step.shown {
		t.emptyStep()
		return nil
	}
	return t.finishStep()
}

func (t *Translator) discardStep() []Part {
	if !t.step.open || t.step.void {
		return nil
	}
	if !t.major.resets() {
		return t.finishStep() // the client keeps the void parts until it reloads
	}
	parts := append(t.closeBlock(), resetStep())
	t.voidStep()
	return parts
}

// voidStep discards the step in flight. The client keeps its start-step.
func (t *Translator) voidStep() {
	t.validSteps--
	t.emptyStep()
}

// emptyStep leaves the start-step of the step in flight to the next one.
func (t *Translator) emptyStep() {
	t.forgetCalls(t.step.sequence)
	t.lastShown = t.step.shownBefore
	t.step = openStep{open: true, void: true, shownBefore: t.step.shownBefore}
}

// Rewind withdraws everything after the position. No position is inside a step. If ok is false,
// the client cannot drop the void parts, and the caller has to close the connection.
func (t *Translator) Rewind(at int64) (parts []Part, ok bool) {
	switch {
	case t.lastShown <= at:
		if t.step.sequence > at { // an attempt that reused a start-step and has shown nothing else
			t.voidStep()
		}
		return nil, true
	case !t.step.open && t.lastUnrepeatable <= at: // ends of calls, which the next attempt repeats
		t.lastShown = t.lastUnrepeatable
		return nil, true
	case t.step.open && t.step.sequence > at && t.lastShown == t.step.sequence && at >= t.step.shownBefore:
		t.voidStep() // its start-step is all that the client has of it
		return nil, true
	case !t.major.resets() || t.step.sequence == 0 || at < t.step.shownBefore || at >= t.step.sequence:
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

func (t *Translator) closeBlock() []Part {
	if t.block.kind == "" {
		return nil
	}
	end := blockEnd(t.block.kind, t.block.id)
	t.block = block{}
	return []Part{end}
}
