// Package writer tells the readers of one session what a run does: it appends
// to the session's stream as the one writer that an epoch allows.
//
//	Write ──▶ queue (bounded; neighbours merge) ──▶ one append in flight ──▶ stream service
//	  ▲ waits while the queue is full                 │ unknown? the same (epoch, number) again
//	  └──────────────────── Flush waits until all is acknowledged ◀────────┘
//
// One append is in flight at most. Deltas of one block that come meanwhile are
// merged, and the next append takes all chunks that wait, as far as a request may
// be long: an idle system adds no delay, and a loaded one writes fewer and larger
// chunks with fewer requests.
//
// # Several chunks in one append
//
// A chunk that was sent once keeps its number and its content until the log has
// acknowledged or refused it; it does not go back to the queue, where it might be
// merged. The log may take only the first of a request: then the number goes on by
// those, and the rest is sent again. It may have taken more than its lost answer said:
// the same request again finds that out. A request that the log refuses because of one
// of its chunks, which is before it takes any, is told chunk by chunk.
//
// # Ends
//
// A writer is fenced when the log has seen a newer epoch: every call fails with
// ErrFenced from then on, and the run has to stop without a word.
//
// A writer is lossy when the stream tier has not answered for the patience that
// it was given. Then it drops what it is told, and Flush answers at once with the
// last acknowledged sequence: the state service holds the truth, and the run goes
// on. One append may then be on its way or in the log, or a part of it. It is kept
// and settled, as the same append, before anything else is written: a different
// record under its number would be taken for its repetition.
//
// A writer is lossy at once, and with nothing unknown, when the log says that it
// was begun anew: the record that was refused took no number, and nothing that was
// told before stands. It is lossy as well when its caller says so (Lose), to take
// back what was told.
//
// Rewind ends that. What readers have to be told again is its caller's business.
//
// # Limits
//
// Large deltas are split before they are queued. A log whose chunks are smaller
// than expected refuses one before it takes a number: the delta is halved, the rest
// goes right behind, and later deltas are split to that size from the start.
// Of a chunk without a delta the part that readers find in the messages is left
// out.
package writer
