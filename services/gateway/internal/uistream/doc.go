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
//   - if more than the step in flight is void, or the client is older than
//     version 7, the parts cannot be taken back: the caller breaks the
//     connection, and the client resumes with a replay, in which nothing void is
//     left.
//
// The client's behaviour is that of the npm package ai in version 7.0.173
// (reset-step in process-ui-message-stream); versions 5 and 6 reject the part.
package uistream
