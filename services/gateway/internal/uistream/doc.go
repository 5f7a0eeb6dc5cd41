// Package uistream turns the chunks of a run into the UI message stream of the AI SDK: parts,
// one JSON object each, from which the client builds a message. It also builds the same
// message out of stored steps.
//
// The translator is pure, and knows exactly what the client has. The parts depend only on the
// chunks so far. So a replay from the start gives the same parts with the same ids, and a
// translator that has taken the first chunks silently goes on where another one stopped.
//
// # One message
//
//	run:     started  step_started  text  tool_start  tool_end  step_committed  …  completed, end
//	parts:   start    start-step    text-start,-delta,-end      finish-step        finish
//	                                tool-input-*, tool-output-*
//
// A run that continues a suspended run writes on at its message. It begins with the ends of
// calls of an earlier step, outside of any step. The client finds such a call anywhere in the
// message. If the user wrote again instead of answering, those calls are of an earlier
// message. The stream of the new message leaves them out, and the stored conversation ends
// them where they stand.
//
// Clients receive approvals as far as they know such parts. Version 5 knows none, version 6
// knows the request and a refusal, version 7 knows all. A repeated request is dropped. If the log
// has lost the request, it is sent together with the decision.
//
// A call that ends in its step without tool_start never began: there is no such tool, or it
// refuses the input. The client receives tool-input-error, and nobody runs the call. The first
// release of version 5 does not know that part, so version 5 receives the input as a text, and an
// error. The input is what the deltas had. So it is where the arguments are too large for
// tool_start.
//
// # Calls of the client
//
// A client runs its tool whenever it receives tool-input-available. So a call that was answered
// comes as a text (tool-input-start, one tool-input-delta) and its output: the part becomes
// the same, and no tool runs. Answered names such calls in a replay of chunks. In a replay of
// a stored message (Replay) they are the calls that have ended. While no step has taken the
// answer, Pending sends it. Then a page that was loaded again can see that no call is open,
// and continues the conversation.
//
// # Dynamic tools
//
// A tool that is known only at run time is dynamic. Clients keep its calls as parts of another
// type, and version 5 looks a call up among the parts of one type. So all parts of a call
// are dynamic if the first one was, whatever later chunks say.
//
// # Calls that nobody will answer
//
// If a session is ended while it waits, the state service drops its calls, and neither a chunk
// nor a message says so. Stopped ends such calls in a stream, and Close in stored messages.
//
// # Metadata
//
// With Describe the start part names the run, its agent and its time of creation. The finish part
// has the usage, and whether a run of the message was interrupted. A message that fails has no
// finish part, and sends the same before its error. Stored messages have the same metadata: see
// Metadata. An app may check metadata against a schema of its own and fail where it does not
// fit, so it can be left out.
//
// # Why a run has failed
//
// An error part ends the stream and leaves nothing in the message. So the chunk that says why a
// run failed also gives a data part (Failed), which the message keeps, live and stored.
//
// An interrupted run ends with a finish part. The finish reason "interrupted" keeps apps from
// continuing by themselves. Version 6 does not know it and receives "other". Version 5, whose
// first release knows no reasons, receives none. A call whose arguments were cut is not stored:
// readers are rewound to the beginning of its step, and receive the step as it is stored.
//
// # What is taken back
//
// A new attempt shows the whole step in flight again, after `rewound` to before the step. The
// first attempt of a run begins with run_started, which the next attempt repeats, so the start
// part does not count as shown. Version 7 of the client knows reset-step: it drops every part
// after its last step-start and keeps that one. So
//
//   - if the step in flight is void, the translator sends reset-step, and leaves out the
//     start-step of the next attempt, since the client still has one;
//   - if only ends of calls outside of a step are void, nothing has to be taken back: they
//     come again, and the client replaces them;
//   - if more than the step in flight is void, or the client is older than version 7, the
//     parts cannot be taken back: the caller breaks the connection, and the client resumes
//     with a replay that has nothing void.
//
// The client's behaviour is that of the npm package ai in version 7.0.173
// (process-ui-message-stream). Parts have only keys that 5.0.0, 6.0.0 and 7.0.173 all take: the
// first two refuse keys that they do not know.
package uistream
