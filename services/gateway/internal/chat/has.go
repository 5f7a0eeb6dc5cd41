package chat

import (
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/services/gateway/internal/uistream"
)

// has is what a client has of a message that it has sent: it is told the rest.
//
// It has all that some runs have told, and of the runs behind them some steps, of which
// the last may not be whole: that one is taken back and told again. Where it cannot be
// taken back, because the client does not know how or has answered calls of it, the
// client is told the calls that it lacks, and the ends of all; should the step have been
// cut in a text, the rest of that comes as another text.
type has struct {
	runs  map[string]bool
	steps int
	reply *reply
	keeps bool // the last step is not to be taken back

	met    bool            // the end of what the client has has been passed
	within bool            // met, and the step is one that is kept
	texts  int             // those of the kept step that have begun
	cut    map[string]*cut // by the id of the text
	more   bool            // something was told that lets the client go on: a step, or what became of its decision
}

// rest gives what the client lacks of parts of the run.
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

// meet takes the client's last step back, whose start-step it keeps.
func (h *has) meet(behind []uistream.Part, resets bool) []uistream.Part {
	h.met = true
	if !resets {
		h.within = true
		return h.kept(behind)
	}
	return append([]uistream.Part{{Type: "reset-step"}}, behind...)
}

// kept gives what the client lacks of its last step, and all from the next one on, or from
// where the step is void.
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

// text gives what the client lacks of a part of a text.
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

// lacks reports whether the client does not know what a part says of a call.
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
	default: // what is before it closes what the client has closed
		return parts[len(parts)-1:]
	}
}

// next says that a run goes on that the client knows nothing of. nil does nothing.
func (h *has) next() {
	if h != nil {
		h.within = false
	}
}

// copy gives a has of the same; nil of nil.
func (h *has) copy() *has {
	if h == nil {
		return nil
	}
	c := *h
	return &c
}
