// Package snapshot gives a page that loads what it needs before it follows a session:
// the snapshot of the session, and its chunks by pages.
//
// # One moment out of two services
//
//	state   ── messages ── step N committed ──┐ read first: the session's position
//	log     … chunks of N │ chunks of step N+1 …
//	                      │◀──── folded ─────▶│
//	                   position         streamSequence
//
// The state service owns the conversation up to the session's position, and the log what
// the step in flight has shown behind that. The log is read second and may be further: an
// attempt that began at another position, and everything behind a boundary, is left out. So
// streamSequence is the place of the last chunk that was folded, and what comes after it is
// what the snapshot does not have, no less and no more.
//
// A log that cannot be read, or has lost a part of the step in flight, costs the snapshot the
// rest of that step. It comes after streamSequence.
//
// # What a client does
//
// It shows the messages and reads on from streamSequence. `rewound` to a place below the
// streamSequence means that the snapshot has to be loaded again. run_started begins
// the message that it names anew, also one that is there; run_resumed goes on in the message
// that it names. What a run tells of calls before its first step concerns the message that
// has them: calls that were given up end in an earlier one. The status is that at
// streamSequence: while it is active, the end of the run comes after it.
package snapshot
