// Package uistream translates the chunks of runs into the UI message stream of the AI SDK. The
// stream consists of parts, one JSON object each, and the client builds a message from them. The
// package also builds the same message from stored steps.
//
// A translator does no I/O. It tracks the exact state of the client, and its parts depend only on
// the chunks so far. A replay from the start therefore gives the same parts with the same ids, and
// a new translator can silently consume the chunks that the client has and continue from there.
//
// # One message
//
//	run:     started  step_started  text  tool_start  tool_end  step_committed  …  completed, end
//	parts:   start    start-step    text-start,-delta,-end      finish-step        finish
//	                                tool-input-*, tool-output-*
//
// A run that continues a suspended run extends the same message. It first ends calls of an earlier
// step, outside of any step. The client finds such calls anywhere in the message. If the user wrote
// a new message instead of answering, the calls belong to an earlier message. The stream of the new
// message omits their ends, and the stored conversation shows them in the earlier message.
//
// The approval parts depend on the version of the client. Version 5 has none, version 6 has
// requests and denials, version 7 has all. A repeated request is dropped. If the log lost the
// request, it is sent with the decision.
//
// A call may end in its step without tool_start: the tool does not exist or rejects the input. The
// client then receives tool-input-error, and the call never runs. Version 5.0.0 fails on that part,
// so version 5 receives the input as text deltas, then an error. If arguments are too large for a
// chunk, the input is the sum of its deltas.
//
// # Client tools
//
// A client runs its tool when it receives tool-input-available. An answered call is therefore sent
// as tool-input-start, one tool-input-delta and its output. The resulting part is the same, and no
// tool runs. SetAnswered names such calls in a replay of chunks. Replay, for stored messages, does the
// same for ended calls. Until a step takes the answer, Pending sends it, so a reloaded page sees
// that no call is open and continues the conversation.
//
// # Dynamic tools
//
// A dynamic tool is known only at run time. Clients store its calls as a separate type of part, and
// version 5 searches calls by type. So all parts of a call are dynamic if its first part is, even
// if later chunks differ.
//
// # Unanswered calls
//
// If a session is stopped while it waits, the state service drops its calls without a chunk or a
// message. FailStopped ends these calls in a stream, EndUnanswered in stored messages.
//
// # Sub-agents
//
// A sub-agent is a data part with the id of its call, so that its end replaces its begin. Open calls of sessions below
// the root form a step of their own at the end of the message while they wait: apps continue by themselves when all
// calls of the last step are answered.
//
// # Metadata
//
// With SetMetadata, the start part carries the run, its agent and its creation time. The finish part
// carries the usage, and whether a run of the message was interrupted. A failed message has no
// finish part, so the same metadata precedes its error. Stored messages have the same metadata: see
// Metadata. An app may validate metadata against its own schema and fail on a mismatch, so metadata
// is optional.
//
// # Failures
//
// An error part ends the stream and leaves nothing in the message. The chunk with the failure
// therefore also gives a data part (Failed). The message keeps it, live and stored.
//
// An interrupted run ends with a finish part. The finish reason "interrupted" keeps apps from
// continuing automatically. Version 6 does not know it and receives "other". Version 5.0.0 fails on
// finish reasons, so version 5 receives none. A call with incomplete arguments is not stored:
// readers are rewound to the beginning of its step and receive the stored step.
//
// # Void parts
//
// A new attempt repeats the whole step in flight, after `rewound` to before the step. The first
// attempt of a run begins with run_started, and so does the next attempt. The start part therefore
// does not count as shown. Version 7 of the client has reset-step: it drops all parts after its
// last step-start and keeps that step-start. So
//
//   - if the step in flight is void, the translator sends reset-step and omits the start-step of
//     the next attempt, since the client still has one;
//   - if the client has only the start-step of the void step, the translator sends nothing and omits
//     the start-step of the next attempt;
//   - if only ends of calls outside of a step are void, the translator sends nothing: the next
//     attempt repeats them, and the client replaces them;
//   - until the next attempt or the next step begins, the client is in no step: calls of an earlier message that come again
//     before the step are omitted, and the start-step has no finish-step;
//   - if a run ends with a void step, the start-step stays at the client. It has no content, and the stored message omits it;
//   - if more than the step in flight is void, or the client is older than version 7, the parts
//     cannot be withdrawn. The caller closes the connection, and the client resumes with a replay
//     without the void parts.
//
// This follows the client of the npm package ai 7.0.173 (process-ui-message-stream). Parts have
// only keys that 5.0.0, 6.0.0 and 7.0.173 all accept: the first two reject unknown keys.
package uistream
