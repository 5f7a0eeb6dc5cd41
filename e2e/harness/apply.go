package harness

// Apply adds a chunk of the native stream to an answer.
func (m *UIMessage) Apply(c NativeChunk) {
	switch c.Type {
	case "run_started": // the run writes its message from the beginning
		m.Parts = nil
	case "step_started":
		m.Parts = append(m.Parts, UIPart{Type: "step-start"})
	case "text_delta":
		if n := len(m.Parts); n == 0 || m.Parts[n-1].Type != "text" {
			m.Parts = append(m.Parts, UIPart{Type: "text"})
		}
		m.Parts[len(m.Parts)-1].Text += c.Delta
	case "tool_start":
		p := m.call(c)
		p.State, p.Input = "input-available", c.Arguments
	case "tool_end":
		p := m.call(c)
		p.State, p.Output = "output-available", c.Result
		if c.Error != "" {
			p.State, p.Output, p.ErrorText = "output-error", nil, c.Error
		}
	}
}

// call finds or adds the part of a call.
func (m *UIMessage) call(c NativeChunk) *UIPart {
	for i := range m.Parts {
		if m.Parts[i].ToolCallID == c.ToolCallID {
			return &m.Parts[i]
		}
	}
	m.Parts = append(m.Parts, UIPart{Type: "tool-" + c.ToolName, ToolCallID: c.ToolCallID})
	return &m.Parts[len(m.Parts)-1]
}
