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
// wherever it stands. An approval that was asked for, and how it was answered, is shown
// to clients as far as they know such parts.
//
// The end of an interrupted run is a good one. The finish reason "interrupted" keeps apps
// that send on by themselves from doing so; older clients do not know it, and get
// "other". A call whose input never came whole is told to have been cut. That the reply
// was cut short stands in the metadata of the stored message, not in the stream: there
// an app would check it against a schema of its own, and fail.
//
// # What is taken back
//
// When an attempt at a step is lost, what it told is void, and readers are told
// `rewound{at}`. Version 7 of the client knows reset-step: it drops every part
// behind its last step-start and keeps that one. So
//
//   - if the whole step is void, the translator sends reset-step, and the
//     start-step of the next attempt is not sent again: the client still has one;
//   - if the step's beginning stands (the plan was recorded, tools are run
//     again), the parts up to `at` have to be sent again after the reset-step:
//     the caller reads the log again from the step's beginning;
//   - if only ends of calls are void that stood outside of a step, nothing has to be
//     taken back: they are told again, and take the place of what the client has;
//   - if more than the step in flight is void, or the client is older than
//     version 7, the parts cannot be taken back: the caller breaks the
//     connection, and the client resumes with a replay, in which nothing void is
//     left.
//
// The client's behaviour is that of the npm package ai in version 7.0.173
// (reset-step in process-ui-message-stream); versions 5 and 6 reject the part.
package uistream
