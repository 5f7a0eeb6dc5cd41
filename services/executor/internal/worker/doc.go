// Package worker executes runs: it claims them from the state service, performs
// what the planner (package loop) decides, tells the stream, and commits.
//
//	state ──ClaimRuns──▶ claims ──▶ one runner per claim ──┬─▶ model, tools, guards, hooks
//	  ▲  └──stops──────▶ halt  ───────────┘ cuts           ├─▶ stream (package writer)
//	  ├──Heartbeat── one per process                       │
//	  └──RecordPlan, RecordResult, CommitStep, FinishRun, SettleRun, ReleaseRun
//
// # Order
//
// Within a step: chunks acknowledged → plan recorded → calls run, each result
// recorded before its chunk → chunks acknowledged → step committed → chunk
// step_committed. At the end: outcome committed → the chunk that says how the run ended →
// terminal record → settled. So whatever a reader has seen of an effect is
// durable, and a new owner learns from the journal and from the records that
// its rewind keeps what it must not do or say again.
//
// # Points
//
// Between two effects lie the points of point.go, which Peers.Passed is told of. What
// the death of the process costs at each:
//
//	claimed, opened, drained       nothing; the run is claimed again, answers are read again
//	model_called, replied, flushed the reply, whose tokens nobody counts: the model is asked again,
//	                               and readers are told that what they have seen is void
//	plan_recorded                  a call without a result runs again where its tool is safe; of any other
//	                               nobody knows whether it had begun
//	call_begins, call_ended        a safe call runs again, under its key; the result of a call that is
//	                               never repeated is that its outcome is not known, which the model is told
//	call_recorded, call_told,
//	calls_ended, commit_begins     nothing: the journal has the results, and the writes of calls and of what has
//	                               led to the plan; the other hooks are called again
//	committed, step_told           nothing: what was not told is told from the conversation
//	stop_seen, stop_kept           what of a reply had come; the stop itself is kept with the run,
//	                               and the next owner ends the run
//	finishing                      nothing: the next owner comes to the same end, or to a better one
//	finished, last_told,
//	terminated                     nothing: another executor settles the run. Hooks hear of its end again
//	settled, releasing             nothing; a run that was to be given back is claimed again when its
//	                               executor is missed
//
// # Ownership
//
// A runner owns its run as long as nobody answers EPOCH_STALE, RUN_FINISHED or
// WRITER_FENCED. Then it stops without another word. It never gives a run up
// because a service is away: it tries again until it is told something else, or
// until the state service says that the executor was forgotten. A run whose agent is not
// here goes back to the queue, for an executor that has it. One with which
// executors are lost again and again fails, before it takes the next one with it.
//
// # Stops
//
// A stop reaches its runner from the claim itself, through the claim stream, with a
// heartbeat, or with the answer to a commit; a deadline by a timer. It cuts what is under
// way: the call of the model, the tools, a summary, a guard, a wait. Their contexts end
// with the cause Stopped. Then the planner says what is kept, and how the run ends. What
// is cut is only what is asked of others; writes to the state service are not, so that
// none is of unknown fate when the next one comes. An outcome that is being committed
// stands.
//
// A run that is to stop waits a second at most for the stream tier before it commits, also
// where the stop comes while it waits. One whose agent is not here ends all the same when it
// is to stop or its deadline has passed.
//
// However an executor ends a run, what the journal has of its step in flight is committed with
// the end, also where the run is given up (quit.go): its reply, and of each call the result or
// that nobody knows it. Only where the state service refuses that does the run end without.
//
// # Suspension
//
// A run that waits for somebody outside of the runtime has ended: nothing of it is kept
// in memory. Its terminal record says paused. The run that goes on tells run_resumed
// instead of run_started, with the id of the same message. The step in which it answers
// the calls of the earlier one is a drain: no model was called for it, so it has no
// step_started, and its plan, which only the journal has, is told to nobody.
//
// # The custom state
//
// A call sees the state as of the step's begin. What it writes is recorded with its
// result, and the state service merges it in the order of the calls when the step
// commits (writes.go). Hooks around a call write with that call; other hooks, and the
// defaults of the schema, with the commit: it carries what it takes to come from what
// the recorded calls make of the state to what the step leaves. Writes are applied in the
// order of a run that nobody is lost with: of the hooks of its begin, of those that have led
// to the reply, of those that have seen it, of the calls, and of the hooks behind them.
//
// A hook either has its writes in the journal, or is called again by the next owner, and never
// both; so each counts once. Recorded with the plan are those of hooks that nobody calls again
// for a recorded reply: of BeforeModel, and of AfterModel where another call has followed in
// the step. Called again are BeforeRun, OnStart and OnResume of a first step, AfterModel with
// the recorded reply, and OnMessage. The next owner puts what it finds with the plan where it
// was, behind the hooks of the begin, which do not see it. The commit carries it, whoever makes
// it, and says so: a state service from before, which keeps no writes of a plan, loses none
// of a run that nobody is lost with.
//
// Hooks beside calls, prompts and
// guards see what would be committed now, and nobody keeps another account of it. Readers
// are told of writes with the end of their call, and of the rest before the commit. Where
// the state would be too large with the writes of hooks the step is committed without them,
// and readers are told of that before. A plan whose writes would make it too large is recorded
// without them, and they are dropped. In a step that is cut only the writes count that the
// journal has.
//
// # Code of agents
//
// Tools, hooks, guards, functions that sum up, factories and models are somebody else's
// code: each call of it has a time limit, its panics are errors, and what does not end is
// left behind (foreign.go, package tool). Of what was left behind too often nothing is called
// any more until some of it has ended. A hook that fails changes nothing, except BeforeRun.
//
// The functions that the planner calls (Prompt, StopWhen, ApproveWhen, Count) have no
// context, and are called in the same way: with the time limit of hooks, on another goroutine,
// which may outlive the run. One that gives no answer is logged. A Prompt fails the run then;
// a StopWhen does not stop it, an ApproveWhen means yes, and instead of a Count the runtime
// estimates. A stop cuts them: what the step has come to until then is kept.
//
// An executor that takes up a recorded plan calls AfterModel again, without the call, which
// nobody knows any more, and OnMessage: the journal has nothing of what they write. Of a run
// that has no step yet OnStart or OnResume is called again as well. What they count was
// counted with the plan. BeforeModel is called with calls of the model alone, and what it has
// written for one that led to a plan is in the journal.
//
// AfterRun is called at least once for each end of a run whose agent is known here. It is not
// for a run that fails before that: one with which executors were lost again and again
// (framework_run_lost), whose agent is not asked for, and one whose agent cannot be made.
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
// its first chunk on, with its committed steps from the conversation: a reader of a run
// wants its beginning. A new owner finds out as well, even if the former one was lost
// before or in the middle of telling again (begunAnew). What is in no message (events and
// changes of the state) is told again by the executor that has told it first, and by no
// other.
//
// Questions are not among that: each is told again by whoever tells its step. Which calls
// are left to somebody outside the planner knows of the step in flight, the tale of the last
// committed one, and the state service of a run that another executor settles: until it is
// settled no step takes an answer. How a human has decided stands with the results.
//
// A call that nobody runs (loop.Refused) has no start, in whatever way its step is told: it
// has the deltas of its arguments and its end. A start tells a client that it may run the
// call, and what has been refused here is not to run there.
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
// and releases its run where it stands. One that does not end then is left behind, and
// its run is claimed again when the executor is missed. One that has ended, suspended or stopped goes on
// to the end. Heartbeats go on until the last runner
// has ended, so that nobody takes runs away that are about to be finished.
package worker
