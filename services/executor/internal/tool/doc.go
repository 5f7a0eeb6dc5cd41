// Package tool runs one call of a tool: with a time limit, recovered panics, a draft of the custom state, and a
// result that can be stored and sent.
//
// A tool is user code and may never return. Each call therefore runs in its own goroutine, and Execute returns
// without it when its time is up. From then on the call has ended: its host accepts no state, events or usage,
// so a late tool cannot write into a later step, and its result is dropped. Such calls are counted per tool. A
// tool with too many unfinished calls is refused, which bounds the abandoned work. Wait serves the end of the
// process.
//
//	caller     Execute ─────────── ctx ends ─ a moment ─► Outcome{Canceled} End of the host
//	tool               └─ Execute ────────────────────────────────────── … ─ return: dropped
//
// A value returned within that moment counts: its effect is known, and keeping it is better than calling again.
package tool
