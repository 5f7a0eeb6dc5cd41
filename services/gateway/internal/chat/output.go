package chat

import "github.com/holdfast-run/holdfast/services/gateway/internal/sse"

// sseOutput is an Output of server-sent events.
type sseOutput struct{ w *sse.Writer }

func (e sseOutput) Begin()                          { e.w.Begin() }
func (e sseOutput) Part(behind Cursor, text []byte) { e.w.Event(behind.String(), text) }
func (e sseOutput) Done(behind Cursor)              { e.w.Event(behind.String(), []byte("[DONE]")) }
func (e sseOutput) Flush() error                    { return e.w.Flush() }
func (e sseOutput) Beat() error                     { return e.w.Beat() }
