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
// # What readers are told
//
// A runner keeps what has to stand in the stream behind the last step that stands
// whole in it (tale.go): the committed steps since, as messages, and the chunks of
// the step in flight. That is the text of one step, beside the conversation that it
// has anyway. What is told goes there and, in the same order, to the writer.
//
//	tell ──▶ tale ──▶ writer ──▶ stream
//	           │        │ lossy: the stream tier was away, the log was begun anew,
//	           │        ▼        or an attempt at a step is to be taken back
//	           └────▶ mender: rewinds to the last whole step, writes the tale again
//
// The mender works beside the run, in the middle of a model call as well, so that
// readers see what there is as soon as the stream tier takes it. Nobody is told
// anything twice or in another order: from the loss on until the mender has written
// the tale the runner's chunks go into the tale only, and the rewind voids whatever
// stands of it. A step that is being committed as one that stands is not taken back
// before the commit is through.
//
// In a log that was begun anew, and in a stream that was reset because too much stood
// in it to be told, nothing of the run stands. Then the whole run is told again, from
// run_started on, with its committed steps from the conversation: a reader of a run
// wants its beginning. A new owner finds out as well, even if the former one was lost
// before or in the middle of telling again (begunAnew).
//
// # Without the stream tier
//
// A run waits for the stream tier as long as the stream patience, and then goes on
// without it: steps commit, readers see nothing, and the mender tries on. A finished
// run that still waits has given its slot back.
//
// # Shutdown
//
// When the context of Run ends, the worker claims nothing more. A runner goes on
// to the end of its step and releases its run; after the drain grace it is cut
// and releases its run where it stands. Heartbeats go on until the last runner
// has ended, so that nobody takes runs away that are about to be finished.
package worker
