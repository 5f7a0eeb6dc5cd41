// Package view serves what a page loads before it follows a session: the snapshot of the
// session, and pages of its chunks.
//
// # One moment out of two services
//
//	state   ── messages ── step N committed ──┐ read first: the session's position
//	log     … chunks of N │ chunks of step N+1 …
//	                      │◀──── folded ─────▶│
//	                   position         streamSequence
//
// The state service has the conversation up to the session's position. The log has the step in
// flight. It is read second, and may be further: an attempt that began at another position is
// left out, and so is everything after a boundary. streamSequence is the sequence of the last
// chunk in the snapshot. A client that reads on from there misses no chunk and receives none
// twice.
//
// If the log cannot be read, or has lost a part of the step in flight, the snapshot ends before
// that part, and streamSequence says so.
//
// # What a client does
//
// It shows the messages and reads on from streamSequence. After `rewound` to a position below
// streamSequence it loads the snapshot again. run_started begins the message that it names
// anew, even if the client has it. run_resumed continues the message that it names. The ends of
// calls before a run's first step belong to the message that has the calls, which may be an
// earlier one. The status is that at streamSequence: while it is active, the end of the run is
// still to come.
package view
