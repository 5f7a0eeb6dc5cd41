// Package snapshot gives a page that loads what it needs before it follows a stream:
// the snapshot of a session, and stored chunks by pages.
//
// # One moment out of two services
//
// The state service has the conversation up to the last commit, the stream has what
// was told since. They are read one after the other, so the stream may be further
// than the state. A snapshot is as the state was read, and the stream is taken only
// as far as that state knows of it:
//
//	state   ── messages ── step N committed ──┐ read first
//	stream  … chunks of N │ step_committed N, chunks of N+1 │ step_committed N+1 …
//	                      │◀───────── folded ──────────────▶│
//	                  boundary                       streamSequence
//
// The boundary is the session's stream_sequence: up to it the steps up to stream_step
// stand in the stream, whole. They are shown from the messages, later steps from the
// stream alone. streamSequence is the last record that was folded: what comes after
// it is what the snapshot does not have, no less and no more. A commit that came
// between the two reads needs no second look: its step_committed, the end of a run
// that was still executing, and every record of a run that the state did not know come
// after streamSequence, and with them all that they announce.
//
// # Steps that the stream was not told
//
// When the stream was away, steps were committed that it does not have (stream_step
// below step_count), and it will be told of them. Until it was, the snapshot
// does not show them: it has of the run what the stream has, and the rest comes
// after streamSequence.
//
// When the log was begun anew, the run is told again from its run_started on. Its
// message is then folded from the stream alone, from there on.
//
// # Without the stream
//
// While the log cannot be read, the snapshot has no partial content, and
// streamSequence is the boundary: everything else comes after it.
//
// Where records after the boundary are gone, the session is read until it did not change
// meanwhile. The messages are shown whole, nothing is folded, and streamSequence is where the log can be read from. Of the step in flight
// the client then hears what is left; the messages have it once it is committed. If
// the log was lost, the run is told again with a new run_started, with which the
// client begins the run's message anew.
//
// # What a client does
//
// It shows the messages and reads on from streamSequence. `rewound` to a place below
// the streamSequence, and `truncated`, mean that the snapshot has to be loaded again.
// run_started begins the message that it names anew, also one that is there. run_resumed
// goes on in the message that it names. Where that has the run already (metadata.runId),
// the log was lost and the run is told again: the snapshot has to be loaded again, since
// what earlier runs wrote at the message is not. What a run tells of calls before its first
// step concerns the message that has them: calls that were given up end in an earlier one.
// The status is that at streamSequence: while it is active, the end of the run comes
// after it.
package snapshot
