package chat

import "github.com/holdfast-run/holdfast/services/gateway/internal/sse"

// events is an Out of server-sent events.
type events struct{ w *sse.Writer }

func (e events) Begin()                           { e.w.Begin() }
func (e events) Part(sequence int64, text []byte) { e.w.Event(sequence, text) }
func (e events) Done()                            { e.w.Event(0, []byte("[DONE]")) }
func (e events) Flush() error                     { return e.w.Flush() }
func (e events) Beat() error                      { return e.w.Beat() }
