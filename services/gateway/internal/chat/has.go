package chat

import (
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// has is what a client has of a message that it has sent. The client receives the rest.
//
// It has all steps of some runs, and the first steps of the runs after them. The last of those may
// not be whole, so it is taken back and sent again. A step cannot be taken back if the client
// does not know how, or has answered calls of it. Then the client receives the calls of the step
// that it lacks, and the ends of all. If the step was cut in a text, the rest of the text comes as
// another text.
type has struct {
	runs  map[string]bool // the runs of which the client has all steps
	steps int             // how many steps it has of the runs after them
	reply *reply
	keeps bool // the last step must not be taken back

	met    bool            // the end of what the client has was passed
	within bool            // met, inside a step that is kept
	texts  int             // how many texts of that step have begun
	cut    map[string]*cut // by the id of the text
	more   bool            // the client received something new: a step, or the end of a call that it decided
}

// rest gives those parts of the run that the client lacks.
func (h *has) rest(run string, parts []uistream.Part, resets bool) []uistream.Part {
	switch {
	case h == nil:
		return parts
	case h.within:
		return h.kept(parts)
	case h.met:
		h.more = h.more || slices.ContainsFunc(parts, h.news)
		return parts
	case h.runs[run] || len(parts) == 0:
		return nil
	case h.steps == 0:
		h.met, h.more = true, slices.ContainsFunc(parts, h.news)
		return parts
	}
	for i, p := range parts {
		if !begins(p) {
			continue
		}
		if h.steps--; h.steps == 0 {
			return h.meet(parts[i+1:], resets && !h.keeps)
		}
	}
	return nil
}

func begins(p uistream.Part) bool { return p.Type == "start-step" }

func ends(p uistream.Part) bool {
	return strings.HasPrefix(p.Type, "tool-output-") || p.Type == "tool-input-error"
}

func (h *has) news(p uistream.Part) bool {
	return begins(p) || ends(p) && h.reply.calls[p.ToolCallID] == decided
}

// meet takes the client's last step back. The client keeps the start-step.
func (h *has) meet(behind []uistream.Part, resets bool) []uistream.Part {
	h.met = true
	if !resets {
		h.within = true
		return h.kept(behind)
	}
	return append([]uistream.Part{{Type: "reset-step"}}, behind...)
}

// kept gives those parts of the client's last step that it lacks, and all parts from the next step
// on. If the step is void, it gives all parts from there on.
func (h *has) kept(parts []uistream.Part) []uistream.Part {
	var lacks []uistream.Part
	for i, p := range parts {
		h.more = h.more || h.news(p)
		switch {
		case begins(p), p.Type == "reset-step":
			h.within = false
			return append(lacks, parts[i:]...)
		case p.Type == "finish" || p.Type == "error":
			return append(lacks, parts[i:]...)
		case p.ToolCallID != "" && h.lacks(p):
			lacks = append(lacks, p)
		case isText(p):
			lacks = append(lacks, h.text(p)...)
		}
	}
	return lacks
}

// cut is a text of which the client has the first part.
type cut struct {
	begin uistream.Part
	has   int // bytes
	told  bool
}

func isText(p uistream.Part) bool {
	return strings.HasPrefix(p.Type, "text-") || strings.HasPrefix(p.Type, "reasoning-")
}

// text gives what the client lacks of a text part.
func (h *has) text(p uistream.Part) []uistream.Part {
	if strings.HasSuffix(p.Type, "-start") {
		c := &cut{begin: p}
		if c.told = h.texts >= len(h.reply.texts); !c.told {
			c.has = h.reply.texts[h.texts]
		}
		h.texts++
		if h.cut == nil {
			h.cut = map[string]*cut{}
		}
		h.cut[p.ID] = c
		if c.told {
			return []uistream.Part{p}
		}
		return nil
	}
	c := h.cut[p.ID]
	switch {
	case c == nil:
		return nil
	case c.told:
		return []uistream.Part{p}
	case len(p.Delta) <= c.has:
		c.has -= len(p.Delta)
		return nil
	}
	p.Delta, c.told = strings.ToValidUTF8(p.Delta[c.has:], ""), true
	return []uistream.Part{c.begin, p}
}

// lacks reports whether the client lacks the part of a call.
func (h *has) lacks(p uistream.Part) bool {
	stands, told := h.reply.calls[p.ToolCallID]
	return !told || ends(p) || p.Type == "tool-approval-request" && stands == waits
}

// over gives the end of a message.
func (h *has) over(parts []uistream.Part) []uistream.Part {
	switch {
	case h == nil || h.met && !h.within:
		return parts
	case h.within:
		return h.kept(parts)
	default: // the client has closed its steps and texts itself
		return parts[len(parts)-1:]
	}
}

// next begins a run of which the client has nothing. A nil has stays nil.
func (h *has) next() {
	if h != nil {
		h.within = false
	}
}

// copy gives a copy; nil for nil.
func (h *has) copy() *has {
	if h == nil {
		return nil
	}
	c := *h
	return &c
}
