// Package view serves the routes that show a session: /snapshot, /history, /messages, /status, and
// /agents.
//
// # A consistent snapshot of two services
//
//	state   ── messages ── step N committed ──┐ read first: the session's position
//	log     … chunks of N │ chunks of step N+1 …
//	                      │◀──── added ──────▶│
//	                   position         streamSequence
//
// The state service has the conversation up to the session's position. The log has the step in
// flight. It is read second and may be ahead: attempts with another start, and chunks behind a
// boundary, are omitted. streamSequence is the sequence of the snapshot's last chunk. A client that
// reads on from there gets every later chunk exactly once.
//
// If the log is unavailable, or lost a part of the step in flight, the snapshot and streamSequence
// end before that part.
//
// # Clients
//
// A client shows the messages and reads on from streamSequence. After `rewound` to a position below
// streamSequence it reloads the snapshot. run_started begins the named message from nothing, even
// if the client has it. run_resumed continues the named message. The ends of calls before a run's
// first step belong to the message with the calls, possibly an earlier one. The status is the
// status at streamSequence: while it is active, the end of the run follows.
package view
