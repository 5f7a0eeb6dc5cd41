package chat

import (
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// clientCopy is the client's part of a message, for a client that has sent the message. The client
// receives the rest.
//
// It has all steps of some runs, and the first steps of the runs after them. Its last step may be
// incomplete, so the step is reset and sent again. Without support for resets, or with answers to
// calls of the step, the client keeps the step, and receives its missing calls and the ends of all
// its calls. If a text of the step is cut, the rest comes as another text.
//
// With untilEnd it has everything before the first end of a call that waits at the client: the root has
// waited for its sub-agents.
type clientCopy struct {
	runs     map[string]bool // all of whose steps the client has
	steps    int             // how many steps the client has of later runs
	untilEnd bool
	reply    *reply
	noReset  bool // the last step must not be reset

	passed       bool                    // the stream is past the client's parts
	inKeptStep   bool                    // passed, in a step that was not reset
	texts        int                     // how many texts of that step have begun
	partialTexts map[string]*partialText // by text id
	sentNew      bool                    // a new step, or the end of a call that the client decided, was sent
}

// rest returns the missing parts of the run.
func (h *clientCopy) rest(run string, parts []uistream.Part, resets bool) []uistream.Part {
	switch {
	case h == nil:
		return parts
	case h.inKeptStep:
		return h.missing(parts)
	case h.passed:
		h.sentNew = h.sentNew || slices.ContainsFunc(parts, h.isNew)
		return parts
	case h.runs[run] || len(parts) == 0:
		return nil
	case h.untilEnd:
		at := slices.IndexFunc(parts, func(p uistream.Part) bool { return isCallEnd(p) && h.reply.calls[p.ToolCallID] == callWaiting })
		if at < 0 {
			return nil
		}
		h.passed, h.sentNew = true, true
		return parts[at:]
	case h.steps == 0:
		h.passed, h.sentNew = true, slices.ContainsFunc(parts, h.isNew)
		return parts
	}
	for i, p := range parts {
		if !isStepStart(p) {
			continue
		}
		if h.steps--; h.steps > 0 {
			continue
		}
		h.passed = true
		if !resets || h.noReset {
			h.inKeptStep = true
			return h.missing(parts[i+1:])
		}
		return append([]uistream.Part{{Type: "reset-step"}}, parts[i+1:]...) // the client keeps the start-step
	}
	return nil
}

func isStepStart(p uistream.Part) bool { return p.Type == "start-step" }

func isCallEnd(p uistream.Part) bool {
	return strings.HasPrefix(p.Type, "tool-output-") || p.Type == "tool-input-error"
}

func (h *clientCopy) isNew(p uistream.Part) bool {
	return isStepStart(p) || isCallEnd(p) && h.reply.calls[p.ToolCallID] == callDecided
}

// missing returns the missing parts of the client's last step, and all parts from the next step or
// reset on.
func (h *clientCopy) missing(parts []uistream.Part) []uistream.Part {
	var lacks []uistream.Part
	for i, p := range parts {
		h.sentNew = h.sentNew || h.isNew(p)
		switch {
		case isStepStart(p), p.Type == "reset-step":
			h.inKeptStep = false
			return append(lacks, parts[i:]...)
		case p.Type == "finish" || p.Type == "error":
			return append(lacks, parts[i:]...)
		case p.ToolCallID != "" && h.lacksPart(p):
			lacks = append(lacks, p)
		case isText(p):
			lacks = append(lacks, h.missingText(p)...)
		}
	}
	return lacks
}

// partialText is a text with only its beginning at the client.
type partialText struct {
	start uistream.Part
	size  int // bytes that the client has
	sent  bool
}

func isText(p uistream.Part) bool {
	return strings.HasPrefix(p.Type, "text-") || strings.HasPrefix(p.Type, "reasoning-")
}

// missingText returns the missing part of a text.
func (h *clientCopy) missingText(p uistream.Part) []uistream.Part {
	if strings.HasSuffix(p.Type, "-start") {
		c := &partialText{start: p}
		if c.sent = h.texts >= len(h.reply.texts); !c.sent {
			c.size = h.reply.texts[h.texts]
		}
		h.texts++
		if h.partialTexts == nil {
			h.partialTexts = map[string]*partialText{}
		}
		h.partialTexts[p.ID] = c
		if c.sent {
			return []uistream.Part{p}
		}
		return nil
	}
	c := h.partialTexts[p.ID]
	switch {
	case c == nil:
		return nil
	case c.sent:
		return []uistream.Part{p}
	case len(p.Delta) <= c.size:
		c.size -= len(p.Delta)
		return nil
	}
	p.Delta, c.sent = strings.ToValidUTF8(p.Delta[c.size:], ""), true
	return []uistream.Part{c.start, p}
}

// lacksPart reports whether the client lacks the part of a call.
func (h *clientCopy) lacksPart(p uistream.Part) bool {
	state, known := h.reply.calls[p.ToolCallID]
	return !known || isCallEnd(p) || p.Type == "tool-approval-request" && state == callWaiting
}

// end returns the end of a message.
func (h *clientCopy) end(parts []uistream.Part) []uistream.Part {
	switch {
	case h == nil || h.passed && !h.inKeptStep:
		return parts
	case h.inKeptStep:
		return h.missing(parts)
	default: // the client has closed its steps and texts itself
		return parts[len(parts)-1:]
	}
}

// nextRun begins a run without parts at the client. nil is allowed.
func (h *clientCopy) nextRun() {
	if h != nil {
		h.inKeptStep = false
	}
}

// clone returns a copy, nil for nil.
func (h *clientCopy) clone() *clientCopy {
	if h == nil {
		return nil
	}
	c := *h
	return &c
}
