package loop

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
	"github.com/holdfast-run/holdfast/services/executor/internal/model"
)

// convert returns the messages as the lessons demand. Messages keep their ids.
func (s learned) convert(messages []agent.Message) []agent.Message {
	if len(s.files)+len(s.results)+len(s.plain) == 0 {
		return messages
	}
	out := make([]agent.Message, 0, len(messages))
	for _, m := range messages {
		m.Parts = s.convertParts(m.Parts)
		if s.plain[strings.TrimSuffix(m.ID, resultsSuffix)] {
			if m = plainMessage(m); len(m.Parts) == 0 {
				continue
			}
		}
		out = append(out, m)
	}
	return out
}

// convertParts replaces files and results by texts.
func (s learned) convertParts(parts []agent.Part) []agent.Part {
	out := slices.Clone(parts)
	for i, part := range out {
		switch part := part.(type) {
		case agent.File:
			if why, omitted := s.files[digestOf(part.URL)]; omitted {
				out[i] = agent.Text{Text: fileLeftOut(part, why)}
			}
		case agent.ToolResult:
			if s.results[digestOf(part.CallID)] {
				part.Result = quote("[This result was left out: the content policy of the model's provider refuses it.]")
				part.Error = ""
				part.Success = true
				out[i] = part
			}
		}
	}
	return out
}

func fileLeftOut(f agent.File, why string) string {
	text := fmt.Sprintf("[Here was the file %q of type %q. It was left out, because the model does not accept it", f.Filename, f.MediaType)
	if why != "" {
		text += ": " + why
	}
	return text + ".]"
}

// plainMessage returns a message of texts alone, of the user or the assistant. It may be empty.
func plainMessage(m agent.Message) agent.Message {
	var texts []agent.Part
	add := func(text string) {
		if strings.TrimSpace(text) != "" {
			texts = append(texts, agent.Text{Text: text})
		}
	}
	for _, part := range m.Parts {
		switch part := part.(type) {
		case agent.Text:
			add(part.Text)
		case agent.ToolCall:
			add(fmt.Sprintf("[Called %s with %s]", part.Name, part.Arguments))
		case agent.ToolResult:
			add(fmt.Sprintf("[Result of %s: %s%s]", part.Name, part.Result, part.Error))
		case agent.File:
			add(fileLeftOut(part, ""))
		}
	}
	m.Parts = texts
	if m.Role != agent.RoleAssistant && m.Role != agent.RoleUser {
		m.Role = agent.RoleUser
		m.Hidden = true
	}
	return m
}

// join merges adjacent messages of one author sent as text, with the message behind them.
func (s learned) join(messages []agent.Message) []agent.Message {
	if len(s.plain) == 0 {
		return messages
	}
	var out []agent.Message
	for _, m := range messages {
		if isSummary(m) { // some servers accept one system message
			m = plainMessage(m)
		}
		if n := len(out); n > 0 && out[n-1].Role == m.Role && (m.Role == agent.RoleUser || s.plain[m.ID]) && s.joins(out[n-1]) {
			joined := m
			joined.Parts = slices.Concat(out[n-1].Parts, m.Parts)
			out[n-1] = joined
			continue
		}
		out = append(out, m)
	}
	return out
}

func (s learned) joins(m agent.Message) bool {
	return s.plain[strings.TrimSuffix(m.ID, resultsSuffix)] || isSummary(m)
}

// Sizes of shortened texts in bytes.
const (
	longestShortened = 64 << 10
	leastShortened   = 256
)

// shorten shortens long texts, arguments and results until the messages fit, except in the last question. It is for
// conversations with too much in one turn.
func (c *compaction) shorten(messages []agent.Message, budget int) []agent.Message {
	question, out := beginOfQuestion(messages), messages
	for most := longestShortened; sumOf(c.estimateTokens(out)) > budget && most >= leastShortened; most /= 2 {
		out = slices.Clone(messages)
		for i, m := range out {
			if m.Role != agent.RoleUser || m.Hidden || i < question {
				out[i].Parts = shortenParts(m.Parts, most)
			}
		}
	}
	return out
}

func shortenParts(parts []agent.Part, most int) []agent.Part {
	out := slices.Clone(parts)
	for i, part := range out {
		switch part := part.(type) {
		case agent.Text:
			part.Text = shortenText(part.Text, most)
			out[i] = part
		case agent.ToolCall:
			if len(part.Arguments) > most {
				part.Arguments = []byte(`{"shortened":` + string(quote(shortenText(string(part.Arguments), most))) + `}`)
				out[i] = part
			}
		case agent.ToolResult:
			if len(part.Result) > most {
				part.Result = quote(shortenText(model.PlainText(part.Result), most))
			}
			part.Error = shortenText(part.Error, most)
			out[i] = part
		}
	}
	return out
}

// shortenText keeps three quarters of the length from the beginning of a text and a quarter from its end.
func shortenText(text string, most int) string {
	if len(text) <= most {
		return text
	}
	head, tail := text[:most*3/4], text[len(text)-most/4:]
	omitted := fmt.Sprintf("\n[… %d bytes were left out …]\n", len(text)-len(head)-len(tail))
	return strings.ToValidUTF8(head, "") + omitted + strings.ToValidUTF8(tail, "")
}
