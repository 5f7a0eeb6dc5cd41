package uistream

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
)

// NumberedChunk is a chunk with its sequence.
type NumberedChunk struct {
	Sequence int64
	Chunk    *eventv1.Chunk
}

// Continue returns the message of a client that had m and then received the chunks of its run.
// Incomplete parts have the state "streaming" or "input-streaming". m is not changed.
func Continue(m UIMessage, chunks []NumberedChunk) UIMessage {
	t := New(m.ID, DefaultMajor)
	t.Replay(m) // the client's state
	t.commitStep()
	m.Parts = slices.Clone(m.Parts)
	a := assembly{message: m, openBlocks: map[string]int{}, deltas: map[int]*strings.Builder{}}
	for _, c := range chunks {
		for _, p := range t.Chunk(c.Sequence, c.Chunk) {
			a.apply(p)
		}
	}
	return a.build()
}

// EndCalls ends open calls of the message with chunks of a later run with its own message.
// That run ends such calls before its first step. m is not changed.
func EndCalls(m UIMessage, chunks []NumberedChunk) UIMessage {
	var ends []NumberedChunk
	for _, c := range chunks {
		if c.Chunk.GetStepStarted() != nil {
			break
		}
		if at := m.callIndex(callID(c.Chunk)); at >= 0 && m.Parts[at].isOpenCall() {
			ends = append(ends, c)
		}
	}
	if len(ends) == 0 {
		return m
	}
	return Continue(m, ends)
}

// assembly builds a message from stream parts, as the client of the AI SDK does.
type assembly struct {
	message    UIMessage
	openBlocks map[string]int           // indexes of streaming parts, by block id
	deltas     map[int]*strings.Builder // deltas so far, by index of the part
}

func (a *assembly) apply(p Part) {
	switch p.Type {
	case "start-step":
		a.add(UIPart{Type: "step-start"})
	case "reset-step":
		a.reset()
	case text + "-start", reasoning + "-start":
		a.openBlocks[p.ID] = len(a.message.Parts)
		a.add(UIPart{Type: strings.TrimSuffix(p.Type, "-start"), State: "streaming"})
	case text + "-delta", reasoning + "-delta":
		if at, open := a.openBlocks[p.ID]; open {
			a.grow(at, p.Delta)
		}
	case text + "-end", reasoning + "-end":
		if at, open := a.openBlocks[p.ID]; open {
			a.message.Parts[at].State = "done"
			delete(a.openBlocks, p.ID)
		}
	default:
		switch {
		case p.Type == "tool-approval-response":
			for i := range a.message.Parts {
				if part := &a.message.Parts[i]; part.Approval != nil && part.Approval.ID == p.ApprovalID {
					part.setApproval(Approval{ID: p.ApprovalID, Approved: p.Approved, Reason: cmp.Or(p.Reason, part.Approval.Reason)})
				}
			}
		case p.ToolCallID != "":
			a.applyCall(p)
		case p.Data != nil && !p.Transient:
			a.applyData(p)
		case p.Metadata != nil:
			a.message.Metadata = a.message.Metadata.withAgent(p.Metadata.agentJSON)
		}
	}
}

// applyData adds a data part, or replaces the one with the same type and id.
func (a *assembly) applyData(p Part) {
	if at := slices.IndexFunc(a.message.Parts, func(q UIPart) bool { return p.ID != "" && q.Type == p.Type && q.ID == p.ID }); at >= 0 {
		a.message.Parts[at].Data = p.Data
		return
	}
	a.add(UIPart{Type: p.Type, ID: p.ID, Data: p.Data})
}

func (a *assembly) add(p UIPart) { a.message.Parts = append(a.message.Parts, p) }

func (a *assembly) grow(at int, delta string) {
	if a.deltas[at] == nil {
		a.deltas[at] = &strings.Builder{}
	}
	a.deltas[at].WriteString(delta)
}

// reset drops the parts after the last step-start.
func (a *assembly) reset() {
	begin := len(a.message.Parts)
	for begin > 0 && a.message.Parts[begin-1].Type != "step-start" {
		begin--
	}
	a.message.Parts = a.message.Parts[:begin]
	maps.DeleteFunc(a.deltas, func(at int, _ *strings.Builder) bool { return at >= begin })
	clear(a.openBlocks)
}

func (a *assembly) applyCall(p Part) {
	at := a.message.callIndex(p.ToolCallID)
	if at < 0 {
		at = len(a.message.Parts)
		a.add(callPart(p.ToolCallID, tool{p.ToolName, p.Dynamic}))
	}
	part := &a.message.Parts[at]
	switch p.Type {
	case "tool-input-start":
		part.State = "input-streaming"
	case "tool-input-delta":
		a.grow(at, p.InputTextDelta)
	case "tool-input-available":
		part.State, part.Input = "input-available", p.Input
		delete(a.deltas, at)
	case "tool-input-error":
		part.Input = p.Input
		delete(a.deltas, at)
		part.setAnswer(Answer{Error: p.ErrorText})
	case "tool-output-available":
		a.endInput(at)
		part.setAnswer(Answer{Result: string(p.Output), Success: true})
	case "tool-output-error":
		a.endInput(at)
		part.setAnswer(Answer{Error: p.ErrorText})
	case "tool-output-denied":
		part.State = "output-denied"
	case "tool-approval-request":
		part.setApproval(Approval{ID: p.ApprovalID})
	}
}

// endInput parses a complete streamed input. An incomplete input stays text.
func (a *assembly) endInput(at int) {
	if grown := a.deltas[at]; grown != nil && json.Valid([]byte(grown.String())) {
		a.message.Parts[at].Input = json.RawMessage(grown.String())
		delete(a.deltas, at)
	}
}

// build returns the message with the deltas inserted.
func (a *assembly) build() UIMessage {
	for at, grown := range a.deltas {
		part := &a.message.Parts[at]
		if part.ToolCallID != "" {
			part.InputText = grown.String()
		} else {
			part.Text = grown.String()
		}
	}
	if a.message.Parts == nil {
		a.message.Parts = []UIPart{}
	}
	return a.message
}
