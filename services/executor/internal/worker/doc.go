// Package worker executes runs: it claims them from the state service, performs
// what the planner (package loop) decides, tells the stream, and commits.
//
//	state ──ClaimRuns──▶ claims ──▶ one runner per claim ──┬─▶ model, tools
//	  ▲                                                    ├─▶ stream (package writer)
//	  ├──Heartbeat── one per process                       │
//	  └──RecordPlan, RecordResult, CommitStep, FinishRun, SettleRun, ReleaseRun
//
// # Order
//
// Within a step: chunks acknowledged → plan recorded → calls run, each result
// recorded before its chunk → chunks acknowledged → step committed → chunk
// step_committed. At the end: outcome committed → chunk run_completed or error →
// terminal record → settled. So whatever a reader has seen of an effect is
// durable, and a new owner learns from the journal and from the records that
// its rewind keeps what it must not do or say again.
//
// # Ownership
//
// A runner owns its run as long as nobody answers EPOCH_STALE, RUN_FINISHED or
// WRITER_FENCED. Then it stops without another word. It never gives a run up
// because a service is away: it tries again until it is told something else, or
// until the state service says that the executor was forgotten.
//
// # Without the stream tier
//
// A run waits for the stream tier as long as the stream patience, and then goes on
// without it: the writer is lossy, steps commit, readers see nothing. Between
// steps, and at the end, the runner tries to restore the stream: it rewinds to the
// last step that was told whole and tells what was committed since. A finished run
// that still waits has given its slot back.
//
// # Shutdown
//
// When the context of Run ends, the worker claims nothing more. A runner goes on
// to the end of its step and releases its run; after the drain grace it is cut
// and releases its run where it stands. Heartbeats go on until the last runner
// has ended, so that nobody takes runs away that are about to be finished.
package worker
