// Package uistream turns what a run tells into the UI message stream of the AI
// SDK: parts, one JSON object each, from which the client builds a message.
//
// The translator is pure and exact about what the client holds. A part of the
// stream is a function of the chunks before it, so a replay from the start
// gives the same parts with the same ids, and a translator that has been fed
// the first chunks silently (see Translator) goes on where another stopped.
//
// # One message
//
//	run:     started  step_started  text  tool_start  tool_end  step_committed  …  completed, end
//	parts:   start    start-step    text-start,-delta,-end      finish-step        finish
//	                                tool-input-*, tool-output-*
//
// A run that continues a suspended one writes on at its message. It begins with the ends
// of calls of an earlier step, outside of any step; the client finds the call's part
// wherever it stands. Where the user has written instead of answering, those calls are of an
// earlier message than the run's: the stream of this one does not tell of them, and in the
// conversation they end where they stand. An approval that was asked for, and how it was answered, is shown
// to clients as far as they know such parts: version 5 knows none, version 6 knows the
// question and a refusal, version 7 all of it. A question that is told again is not asked
// again, and an answer whose question the log has lost comes with it.
//
// A call that ends in its step and was not told to be whole never began: there is no such
// tool, or the input is not what it takes. It gets the error of its input and nobody runs it;
// version 5, whose first release does not know that, is told the input as a text and the error.
// The input is what was told of it as it came, as it is where the arguments are too large to
// be told whole.
//
// # Calls of the client
//
// A client runs its tool when it is told tool-input-available, and again whenever it is
// told so. So a call that has been answered is told by its input as a text
// (tool-input-start, one tool-input-delta) and its output: the part becomes the same, and
// nobody runs anything. That goes for replays from the log, where Answered says which
// calls are meant, and for those from the store (Replay), where a call has ended. While no
// step has taken the answer, Pending tells it: the page that was loaded again can tell
// then that nothing is open any more, and sends on what it has.
//
// # Dynamic tools
//
// A tool that is known at run time only is dynamic. Clients keep its calls as parts of
// another type, and version 5 looks for a call among those of the type that the part says:
// so every part speaks of a call as the first one did, whatever later chunks say.
//
// # Calls that nobody will answer
//
// When a session is ended while it waits, the state service drops its calls, and neither
// the log nor the conversation tells of it. Stopped ends such a message for who reads its
// stream, and Close does where it is shown.
//
// # Metadata
//
// With Describe the start has the run and the agent, and the finish what the run has used
// and whether a run of the message was interrupted. A message that fails has no finish, and
// says it before its error. Stored messages have the same: see Metadata. An app may check
// that against a schema of its own, and fails where it does not fit; therefore it can be
// left out.
//
// # Why a run has failed
//
// An error part ends the stream, and nothing of it stays in the message. So the chunk that
// says how a run failed gives a data part before it (Failed), which the message keeps, live
// and stored.
//
// The end of an interrupted run is a good one. The finish reason "interrupted" keeps apps
// that send on by themselves from doing so; older clients do not know it, and get
// "other", or in version 5, whose first release knows no reasons, none. A call whose arguments
// were cut is not stored: readers are rewound to the begin of its step, and receive the step
// as it is stored.
//
// # What is taken back
//
// A new attempt shows the whole step in flight again, and readers are told `rewound` to
// before the step. A run's first attempt begins with run_started, which the next one sends
// again: the start part does not count as shown. Version 7 of the client knows reset-step:
// it drops every part behind its last step-start and keeps that one. So
//
//   - if the step in flight is void, the translator sends reset-step, and the
//     start-step of the next attempt is not sent again: the client still has one;
//   - if only ends of calls are void that stood outside of a step, nothing has to be
//     taken back: they are told again, and take the place of what the client has;
//   - if more than the step in flight is void, or the client is older than
//     version 7, the parts cannot be taken back: the caller breaks the
//     connection, and the client resumes with a replay, in which nothing void is
//     left.
//
// The client's behaviour is that of the npm package ai in version 7.0.173
// (process-ui-message-stream); what parts may have is what 5.0.0, 6.0.0 and 7.0.173 all
// take, of which the first two refuse every key that they do not know.
package uistream
