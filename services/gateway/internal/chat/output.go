package chat

import "github.com/holdfast-run/holdfast/services/gateway/internal/sse"

// sseOutput is an Output of server-sent events.
type sseOutput struct{ w *sse.Writer }

func (e sseOutput) Begin()                           { e.w.Begin() }
func (e sseOutput) Part(sequence int64, text []byte) { e.w.Event(sequence, text) }
func (e sseOutput) Done()                            { e.w.Event(0, []byte("[DONE]")) }
func (e sseOutput) Flush() error                     { return e.w.Flush() }
func (e sseOutput) Beat() error                      { return e.w.Beat() }
