// Package worker executes runs: it claims them from the state service, performs
// what the planner (package loop) decides, shows readers the step in flight (package
// publisher), and commits.
//
//	state ──ClaimRuns──▶ claims ──▶ one runner per claim ──┬─▶ model, tools, guards, hooks
//	  ▲  └──stops──────▶ halt  ───────────┘ cuts           ├─▶ publisher ──▶ stream
//	  ├──Heartbeat── one per process                       │
//	  └──RecordPlan, RecordResult, CommitStep, FinishRun, ReleaseRun
//
// # Order
//
// Within a step: plan recorded → calls run, each result recorded before its chunk → step
// committed → boundary. The chunks of the step go to the live log meanwhile, and nothing
// waits for their acknowledgement. The commit carries the record of what readers saw beside
// the messages, so the state service can give the step to any later reader. With an outcome,
// the commit ends the run as well. Behind the end, the runner gives the log a short time,
// and nothing is left to do: no other process settles or repairs anything.
//
// # Points
//
// Between two effects lie the points of point.go, which Peers.Passed is called at. What
// the death of the process costs at each:
//
//	claimed, drained               nothing; the run is claimed again, answers are read again
//	model_called, replied          the reply, whose tokens are not counted: the model is asked again, and
//	                               readers are told that what they have seen is void
//	plan_recorded                  a call without a result runs again where its tool is safe; of any other
//	                               it is unknown whether it had begun
//	call_begins, call_ended        a safe call runs again, under its key; the result of a call that is
//	                               never repeated is that its outcome is not known, which the model reads
//	call_recorded, call_told,
//	calls_ended, commit_begins     nothing: the journal has the results, and the writes of calls and of what has
//	                               led to the plan; the other hooks are called again
//	committed                      nothing: readers get the step from the state service
//	stop_seen, stop_kept           what of a reply had come; the stop itself is kept with the run,
//	                               and the next owner ends the run
//	finishing                      nothing: the next owner comes to the same end, or to a better one
//	finished                       the hook of the run's end (AfterRun), which is called behind the commit
//	releasing                      nothing; a run that was to be given back is claimed again when its
//	                               executor is missed
//
// # Ownership
//
// A runner owns its run until the state service answers EPOCH_STALE or RUN_FINISHED, or the
// stream service WRITER_FENCED. Then it stops and writes nothing more. It never gives a run
// up because a service is away: it tries again until it gets another answer, or until the
// state service says that the executor was forgotten. A run whose agent is not here goes back
// to the queue, for an executor that has it. A run with which executors are lost again and
// again fails, before it takes the next one with it.
//
// # Stops
//
// A stop reaches its runner from the claim itself, through the claim stream, with a
// heartbeat, or with the answer to a commit; a deadline by a timer. It cuts what is under
// way: the call of the model, the tools, a summary, a guard, a wait. Their contexts end
// with the cause Stopped. Then the planner says what is kept, and how the run ends. Writes to
// the state service are not cut, so that the fate of each is known when the next one comes.
// An outcome that is being committed stands.
//
// A run that is to stop waits a second at most for hooks and for a full queue to the stream
// tier. One whose agent is not here ends all the same when it is to stop or its deadline has
// passed.
//
// However an executor ends a run, what the journal has of its step in flight is committed with
// the end, also where the run is given up (quit.go): its reply, and of each call the result or
// that it is unknown. Only where the state service refuses that does the run end without.
//
// # Suspension
//
// A run that waits for an answer from outside of the runtime has ended: nothing of it is kept
// in memory. Its end says paused. The run that goes on shows run_resumed instead of
// run_started, with the id of the same message. The step in which it answers the calls of the
// earlier one is a drain: no model was called for it, so it has no step_started, and its plan,
// which only the journal has, is not shown.
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
// of a run that no executor is lost with.
//
// Hooks beside calls, prompts and guards see what would be committed now. Readers are shown
// writes with the end of their call, and the rest before the commit. Where the state would be
// too large with the writes of hooks, the step is committed without them, and readers are
// shown that before. A plan whose writes would make it too large is recorded without them, and
// they are dropped. In a step that is cut only the writes count that the journal has.
//
// # Code of agents
//
// Tools, hooks, guards, functions that sum up, factories and models are code of users: each
// call of it has a time limit, its panics are errors, and what does not end is left behind
// (foreign.go, package tool). A function or model of which too many calls were left behind is
// not called again until some of them have ended. A hook that fails changes nothing, except
// BeforeRun.
//
// The functions that the planner calls (Prompt, StopWhen, ApproveWhen, Count) have no
// context, and are called in the same way: with the time limit of hooks, on another goroutine,
// which may outlive the run. One that gives no answer is logged. A Prompt fails the run then;
// a StopWhen does not stop it, an ApproveWhen means yes, and instead of a Count the runtime
// estimates. A stop cuts them: what the step has come to until then is kept.
//
// An executor that takes up a recorded plan calls AfterModel again, without the call, which is
// not known any more, and OnMessage: the journal has nothing of what they write. In a run that
// has no step yet OnStart or OnResume is called again as well. What they count was counted with
// the plan. BeforeModel is called with calls of the model alone, and what it has written for
// one that led to a plan is in the journal.
//
// AfterRun is called once, by the owner that has made the end of the run durable. It is missed
// where that process dies right behind the commit. It is not called for a run that fails before
// its agent is known: one with which executors were lost again and again (framework_run_lost),
// and one whose agent cannot be made.
//
// # What readers see
//
// A reader gets committed steps from the state service, and the step in flight from the live
// log. The runner shows its chunks through the publisher, which keeps them until the commit.
// A new attempt at the step begins, and voids what readers have seen of it,
//
//   - when a model call has failed and is made again: at once, before the wait (step_retried),
//   - when another executor takes the run over (executor_lost): it shows a recorded plan again,
//     then the results that the journal has, and goes on,
//   - when the log has lost records (log_lost),
//   - when the run is given up and only what the journal has of the step is committed.
//
// What a failed reply has said is taken back too when the run ends outside of a step.
//
// A call that the runtime refuses (loop.Refused) has no start: it has the deltas of its
// arguments and its end. A start tells a client that it may run the call.
//
// # Without the stream tier
//
// A run waits for the stream tier as long as the stream patience at most, and then goes on
// without it: steps commit, and readers see each when it is stored.
//
// # Shutdown
//
// When the context of Run ends, the worker claims nothing more. A runner goes on
// to the end of its step and releases its run; after the drain grace it is cut
// and releases its run where it stands. One that does not end then is left behind, and
// its run is claimed again when the executor is missed. One that has ended, suspended or stopped
// goes on to the end. Heartbeats go on until the last runner has ended, so that no run is taken
// away that is about to be finished.
package worker
