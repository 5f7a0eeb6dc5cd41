// Package tool runs one call of a tool: with a time limit, with panics caught, with a
// draft of the custom state, and with a result that the rest of the system can carry.
//
// A tool is somebody else's code, and may not return. Each call therefore runs in a
// goroutine of its own, and Execute goes on without it when its time is up. From that
// moment the call is over for everybody: its host takes no state, no events and
// no usage, so that a late tool cannot write into a later step, and its end is thrown
// away. Such calls are counted by tool; a tool of which too many do not end is refused, so
// that what is left behind is bounded. Wait is for the end of the process.
//
//	caller     Execute ─────────── ctx ends ─ a moment ─► Outcome{Cut}      End of the host
//	tool               └─ Execute ────────────────────────────────────── … ─ return: dropped
//
// A value that the tool returns within that moment counts: the effect is known, and
// keeping it is better than asking again.
package tool
