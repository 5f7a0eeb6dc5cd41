package snapshot_test

import (
	"encoding/json"
	"slices"

	eventv1 "github.com/holdfast-run/holdfast/proto/holdfast/event/v1"
	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// reader is a client of the native stream: it loads the snapshot, reads on from its
// streamSequence, and builds its messages by itself.
type reader struct {
	base   shown
	cursor int64
	held   int64
	given  bool
	told   []record // chunks after the snapshot that stand
}

// attach loads the snapshot and begins to read.
func (r *reader) attach(s shown) {
	*r = reader{base: s, cursor: s.StreamSequence, held: s.StreamSequence, given: s.StreamSequence > 0}
}

// follow takes what the log tells at the moment. It reports whether the snapshot has
// to be loaded again.
func (r *reader) follow(m *moment) (again bool) {
	if m.away {
		return false
	}
	if _, gone := m.gone(r.cursor); gone {
		return true
	}
	for _, rec := range m.log {
		if rec.sequence <= r.cursor {
			continue
		}
		r.cursor = rec.sequence
		switch {
		case rec.chunk.GetRunResumed() != nil && r.has(rec.chunk.GetAgentId()):
			return true
		case rec.chunk != nil:
			r.told, r.held, r.given = append(r.told, rec), rec.sequence, true
		case rec.marker && rec.told(r.held, r.given):
			if rec.at < r.base.StreamSequence {
				return true
			}
			r.told = slices.DeleteFunc(r.told, func(former record) bool { return former.sequence > rec.at })
			r.held = rec.at
		case !rec.marker:
			r.given = true
		}
	}
	return false
}

// has reports whether the run has written at a message that the client shows.
func (r *reader) has(run string) bool {
	return slices.ContainsFunc(r.messages(), func(m uistream.UIMessage) bool { return m.Metadata != nil && m.Metadata.RunID == run })
}

// messages are what the client shows.
func (r *reader) messages() []uistream.UIMessage {
	all := slices.Clone(r.base.Messages)
	for i := range all {
		all[i].Parts = slices.Clone(all[i].Parts)
	}
	for _, rec := range r.told {
		all = apply(all, rec.chunk)
	}
	return all
}

// apply adds a chunk to the messages, as a client does that knows the vocabulary.
func apply(all []uistream.UIMessage, c *eventv1.Chunk) []uistream.UIMessage {
	i := slices.IndexFunc(all, func(m uistream.UIMessage) bool { return writtenBy(m, c) })
	if i < 0 {
		i = len(all)
		all = append(all, uistream.UIMessage{ID: "msg-" + c.GetAgentId(), Role: "assistant", Parts: []uistream.UIPart{}})
	}
	all[i].Metadata = all[i].Metadata.By(c.GetAgentId())
	m := messageOf(all, i, c)
	switch e := c.GetEvent().(type) {
	case *eventv1.Chunk_RunStarted:
		m.Parts = []uistream.UIPart{}
	case *eventv1.Chunk_StepStarted:
		m.Parts = append(done(m.Parts), uistream.UIPart{Type: "step-start"})
	case *eventv1.Chunk_StepCommitted:
		m.Parts = done(m.Parts)
	case *eventv1.Chunk_StepDiscarded:
		for len(m.Parts) > 0 && m.Parts[len(m.Parts)-1].Type != "step-start" {
			m.Parts = m.Parts[:len(m.Parts)-1]
		}
		m.Parts = m.Parts[:len(m.Parts)-1]
	case *eventv1.Chunk_TextDelta:
		m.Parts = grow(m.Parts, "text", e.TextDelta.GetDelta())
	case *eventv1.Chunk_Thinking:
		m.Parts = grow(m.Parts, "reasoning", e.Thinking.GetContent())
		if e.Thinking.GetIsComplete() {
			m.Parts = done(m.Parts)
		}
	case *eventv1.Chunk_ToolArgStreamStart:
		m.Parts = append(done(m.Parts), uistream.UIPart{Type: "tool-" + e.ToolArgStreamStart.GetToolName(), ToolCallID: e.ToolArgStreamStart.GetToolCallId(), State: "input-streaming"})
	case *eventv1.Chunk_ToolArgStreamDelta:
		toolOf(m, e.ToolArgStreamDelta.GetToolCallId()).InputText += e.ToolArgStreamDelta.GetDelta()
	case *eventv1.Chunk_ToolStart:
		p := toolOf(m, e.ToolStart.GetToolCallId())
		p.State, p.InputText, p.Input = "input-available", "", json.RawMessage(e.ToolStart.GetArguments())
	case *eventv1.Chunk_ToolEnd:
		p := toolOf(m, e.ToolEnd.GetToolCallId())
		if p.Approval != nil && p.Approval.Approved == nil {
			p.Approval = nil // nobody is asked any more
		}
		if p.State == "input-streaming" {
			p.InputText, p.Input = "", json.RawMessage(p.InputText)
		}
		if p.Approval != nil && p.Approval.Approved != nil && !*p.Approval.Approved {
			p.State = "output-denied"
			break
		}
		if p.State, p.Output = "output-available", json.RawMessage(e.ToolEnd.GetResult()); !e.ToolEnd.GetSuccess() {
			p.State, p.Output, p.ErrorText = "output-error", nil, e.ToolEnd.GetError()
		}
	case *eventv1.Chunk_ToolApprovalRequest:
		p := toolOf(m, e.ToolApprovalRequest.GetToolCallId())
		p.State, p.Approval = "approval-requested", &uistream.Approval{ID: e.ToolApprovalRequest.GetApprovalId()}
	case *eventv1.Chunk_ToolApprovalResponse:
		p, r := toolOf(m, e.ToolApprovalResponse.GetToolCallId()), e.ToolApprovalResponse
		yes := r.GetDecision() == "approve"
		p.State, p.Approval = "approval-responded", &uistream.Approval{ID: r.GetApprovalId(), Approved: &yes, Reason: r.GetReason()}
	}
	return all
}

// messageOf gives the message that the chunk concerns: that of its run, or the one of the call
// that it ends.
func messageOf(all []uistream.UIMessage, i int, c *eventv1.Chunk) *uistream.UIMessage {
	for j := range all {
		if slices.ContainsFunc(all[j].Parts, func(p uistream.UIPart) bool {
			return p.ToolCallID != "" && (p.ToolCallID == c.GetToolEnd().GetToolCallId() || p.ToolCallID == c.GetToolApprovalResponse().GetToolCallId())
		}) {
			return &all[j]
		}
	}
	return &all[i]
}

// writtenBy reports whether the run of the chunk writes the message: it names it when it
// begins.
func writtenBy(m uistream.UIMessage, c *eventv1.Chunk) bool {
	return m.Metadata != nil && m.Metadata.RunID == c.GetAgentId() || c.GetRunResumed() != nil && m.ID == c.GetRunResumed().GetMessageId() ||
		m.ID == "msg-"+c.GetAgentId()
}

func grow(parts []uistream.UIPart, kind, delta string) []uistream.UIPart {
	if delta == "" {
		return parts
	}
	if n := len(parts); n == 0 || parts[n-1].Type != kind || parts[n-1].State != "streaming" {
		parts = append(done(parts), uistream.UIPart{Type: kind, State: "streaming"})
	}
	parts[len(parts)-1].Text += delta
	return parts
}

// done ends the text that grows.
func done(parts []uistream.UIPart) []uistream.UIPart {
	for i := range parts {
		if parts[i].State == "streaming" {
			parts[i].State = "done"
		}
	}
	return parts
}

func toolOf(m *uistream.UIMessage, call string) *uistream.UIPart {
	for i := range m.Parts {
		if m.Parts[i].ToolCallID == call {
			return &m.Parts[i]
		}
	}
	m.Parts = append(done(m.Parts), uistream.UIPart{Type: "tool-unknown", ToolCallID: call})
	return &m.Parts[len(m.Parts)-1]
}

func text(messages []uistream.UIMessage) string {
	b, err := json.Marshal(messages)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
