// Package render gives the frames of stored steps. They have the chunks that readers saw live, in
// the same order (see uistream.StepChunks). It is pure.
//
//	the step begins a run     run_started or run_resumed
//	the step                  its chunks, numbered (step, Stored, 1..)
//	                          step_committed at Committed(step)
//	the run ended there       its last chunk and its end at Ended(step)-1 and Ended(step)
package render
