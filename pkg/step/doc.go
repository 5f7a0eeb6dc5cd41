// Package step makes the chunks of a step, records the live ones, and replays a stored step as chunks.
//
//	executor   constructors ──▶ live chunks ──▶ Recorder ──▶ StepRecord ─┐
//	                                                                   ├─ stored with the step
//	           the step's messages ────────────────────────────────────┘
//	gateway    StepRecord and messages ──▶ Replay ──▶ the live chunks
//
// A chunk about the content of a message is made from the part of that message, live and in a replay. The record has
// only the place of such a chunk. It holds the content of all other chunks.
//
// # How a replay differs
//
// A replay has the live chunks in their order, except that
//
//   - the chunks of the reply come together, at the place of the first one. Each text, reasoning and input is one delta;
//   - the reasoning of a reply without text or calls comes with step_started. Readers of a reply in a JSON output format
//     see no more of it, so the record has no place for the reply;
//   - transient events are missing, and so are custom events and state patches above the limit of a record;
//   - times never contradict the order: see Recorder.
//
// step_committed and the chunks of the run are not part of a record.
package step
