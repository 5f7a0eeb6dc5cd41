// Package render gives the chunks of stored steps as they were live, in the same order.
// It is pure.
//
//	step begins a run     run_started or run_resumed
//	the step              its chunks, numbered (step, Stored, 1..)
//	                      step_committed at Committed(step)
//	the run ended there   its last chunk and its end at Ended(step)-1 and Ended(step)
//
// The order of a step's chunks is that of its record. A step that an older release
// committed has none: its chunks come in the order in which most runs show them. The
// text, the thoughts and the arguments of a call come as one piece each.
//
// # When the step began
//
// The record has the time at which the step began and the times of its events. What a
// hook has emitted before that stands before step_started, and belongs to the last step
// before it. An event of the same millisecond stands behind step_started.
package render
