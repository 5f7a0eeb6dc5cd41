package agent

// Span is a span of the trace of a run.
type Span interface {
	// SetAttribute sets an attribute. The value is a string, a bool, an int, an int64, a float64 or a list of strings; any other
	// value is written as text. Attributes leave the process unencrypted if the collector does not use TLS, and whoever reads
	// traces reads them.
	SetAttribute(key string, value any)
}

// Span returns the span of the run, or of the tool call that the hook is for. Without tracing, its methods do nothing.
func (h *HookCall) Span() Span {
	if host, ok := h.Host.(interface{ Span() Span }); ok && host.Span() != nil {
		return host.Span()
	}
	return noSpan{}
}

type noSpan struct{}

func (noSpan) SetAttribute(string, any) {}
