// Package worker executes runs: it claims them from the state service, performs the planner's
// effects (package loop), shows readers the step in flight (package publisher), and
// commits.
//
//	state ──ClaimRuns──▶ claims ──▶ one runner per claim ──┬─▶ agentCode: models, functions, guards
//	  ▲  └──stops──────▶ stopper ─────────┘ interrupts     ├─▶ toolCaller: tools ┐
//	  │                                                    ├─▶ hookRunner: hooks ┴─▶ stateWrites, account
//	  │                                                    ├─▶ view ──▶ publisher ──▶ stream
//	  ├──Heartbeat── one per process                       │
//	  └──RecordPlan, RecordResult, CommitStep, FinishRun, ReleaseRun ◀── recorder
//
// # Types
//
// The runner asks the planner for the next effect, performs it, and returns the result to the
// planner. Each other piece of a run's memory has an owner:
//
//   - stopper: the request to end the run early, and the effect that it interrupts,
//   - view: the shown part of the step in flight,
//   - stateWrites: the custom state, and the writes of the step,
//   - account: tokens and other usage,
//   - recorder: the journal of the step; it makes all writes to the state service,
//   - hookRunner: the messages seen by OnMessage, and the hook after the end.
//
// The runner and its parts refer to the worker for what all runs share: peers, limits, the sandbox, meters. Runs of
// remote agents are executed by package remote, through the interface remote.Run (remote.go).
//
// The goroutine of the runner owns them all. The calls of a step run on goroutines of their own,
// and use only parts that are safe for that: some of view, recorder.result, and hookRunner.call.
//
// # Order
//
// Within a step: record the plan → run the calls, record each result before its chunks → commit the
// step → show the boundary. The planner selects the steps with a plan and the results with a
// record. The commit makes the other results durable, with their usage. Chunks go to the live log
// meanwhile, and nothing waits for their acknowledgement. The commit carries a record of what
// readers saw beside the messages, so the state service can show the step to later readers. With
// an outcome, the commit also ends the run. After the end, the runner gives the log a short time.
// Then nothing is pending, and no other process repairs anything.
//
// A commit is one value: the request is made once from the planner's effect (recorder.commitRequest). Readers are shown
// the rest of the step from it, the state service receives it, and its answer tells readers, meters, and hooks.
//
// # Points
//
// The points of points.go are between two effects. Peers.Passed is called at each. This is the
// cost if the process dies at a point:
//
//	claimed, drained               nothing: the run is claimed again, and answers are read again
//	model_called, replied          the reply and its tokens: the model is called again, and the shown
//	                               reply is void
//	plan_recorded                  a call without a result runs again if its tool is safe to repeat; for any
//	                               other call it is unknown whether it has begun
//	call_begins, call_ended        a safe call runs again with its key; for any other call the model
//	                               reads that the outcome is not known
//	call_recorded                  nothing: the journal has the result, the writes of the call, and the writes
//	                               of hooks before the plan; the other hooks are called again
//	call_reported, calls_ended,
//	commit_begins                  all that is not recorded: the last call as at call_ended, read-only calls only
//	                               their second execution; without a plan, as at replied
//	committed                      nothing: readers get the step from the state service
//	stop_seen, stop_kept           the incomplete reply; the stop itself is stored with the run,
//	                               and the next owner ends the run
//	finishing                      nothing: the next owner comes to the same end, or to a better one
//	finished                       the hook AfterRun
//	releasing                      nothing: the run is claimed again when its executor is missed
//
// # Ownership
//
// A runner owns its run until the state service answers EPOCH_STALE or RUN_FINISHED. Then it stops and writes nothing
// more. If the live log has records of a later epoch or step (publisher.FencedError), or the state service lacks a step
// that it has acknowledged, the database may have lost commits. The runner then releases the run with what it has seen,
// and the next claim goes on from what is stored. It never gives a run
// up because a service is unavailable: it retries until it gets another answer, or until the
// state service reports that the executor was forgotten. A run without its agent here returns
// to the queue for another executor. A run fails once several executors in a row were lost
// with it, before it takes the next one with it.
//
// # Stops
//
// A stop reaches its runner in the claim itself, through the claim stream, with a
// heartbeat, or with the answer to a commit. A timer stops the run at its deadline. A stop interrupts
// the effect in progress: the model call, the tools, a summary, a guard, a wait. Their contexts
// end with the cause Stopped. Then the planner decides about the partial results and the end of the run. Writes to
// the state service are not interrupted, so that the result of each is known before the next one.
// A stop does not change an outcome during its commit.
//
// A stopped run waits at most a second for hooks and for a full queue to the stream
// tier. A run without its agent here still ends when it is stopped or its deadline has passed.
//
// An executor that gives a run up (commit.go) commits what the journal has of the step in flight
// with the end: the reply, and for each call the result, or that it is unknown. The run ends
// without that step only if the state service refuses the commit.
//
// The executor that has stored the end of a failed run logs it once, with its cause (commit.go). Nothing else logs the
// failure, unless the end could not be stored.
//
// # Limits of providers
//
// A call of a model with limits takes a lease of its governors in the state service before it, and
// releases it after it with the tokens that it used (governor.go). Models without limits cost no
// request. Of the waiting calls of a model, only the first asks, as often as the state service says
// and when a call of the model ends here; the others wait behind it. The wait comes before the time
// limit of the call, and before its files are loaded. A stop, a deadline and a shutdown end it. A
// waiting run keeps its slot and does not fall back to another model. While the state service is
// unavailable, calls wait for it, since their steps could not be committed either.
//
// A lease ends with its executor: the state service counts none of an executor that it has forgotten.
// A release that is lost otherwise leaves its lease until the time limit of the call has passed. The
// span of the call has the wait (governor.wait_ms), and each wait is logged at the level debug.
//
// # Suspension
//
// A run that waits for a client or a human has ended, and nothing of it stays in memory. Its end
// has the status paused. The run that continues it shows run_resumed instead of run_started, with
// the same message id. Its first step is an answer step: it answers the calls of the earlier run. No
// model was called for it, so it has no step_started. Its plan is only in the journal,
// and is not shown.
//
// # The custom state
//
// A call sees the state at the begin of the calls. Its writes are recorded with its
// result, and the state service merges them in the order of the calls when the step
// commits (writes.go). Hooks around a call write with that call. Other hooks, and the
// defaults of the schema, write with the commit. The commit carries the difference between the
// state after the writes of the recorded calls and the state at the end of the step. The order of
// writes is that of an undisturbed run: hooks at the begin of the run, hooks before the reply,
// hooks after the reply, calls, and hooks after the calls.
//
// Either the writes of a hook are in the journal, or the next owner calls the hook again, never
// both, so each hook counts once. In a step without a plan the next owner calls all hooks again.
// Two kinds of writes are recorded with the plan, because the next owner has the reply and does not
// call the hooks for it: those of BeforeModel, and those of AfterModel if another model call has
// followed in the step. The next owner calls BeforeRun, OnStart and OnResume of a first step,
// AfterModel with the recorded reply, and OnMessage. It applies the writes of the plan after those
// of the hooks at the begin, which do not see them. Every commit also carries the writes of the
// plan, for state services that do not store them.
//
// Hooks outside of calls, prompts and guards see what would be committed now. Readers are shown
// writes with the end of their call, and the rest before the commit. If the state would be
// too large with the writes of hooks, the step is committed without them, and readers are
// shown that first. If the state service refuses the writes of a plan, the plan is recorded
// without them, and they are dropped. In an interrupted step, only writes in the journal count.
//
// # Code of agents
//
// Tools, hooks, guards, summary functions, factories and models are code of users. Each
// call has a time limit, and panics become errors. Code that does not return in time is abandoned
// (sandbox.go, package tool). A function or model with too many abandoned calls is not called
// until some have ended. A failing hook changes nothing, except BeforeRun.
//
// The functions called by the planner (Prompt, StopWhen, ApproveWhen, Count) run in the same
// way: with the time limit of hooks, on a goroutine of their own. It may outlive the run. Their
// context ends with the limit, a stop or the claim. A failure is logged. Then Prompt fails the run,
// StopWhen does not stop it, ApproveWhen requires an approval, and the runtime estimates in place
// of Count. After a stop, the step keeps what it has until then.
//
// An executor that loads a recorded plan calls AfterModel again, without the unknown arguments of the
// model call, and OnMessage. In a run without a step it also calls OnStart or
// OnResume again. Their usage was counted with the plan.
//
// AfterRun is called once, by the owner of the final commit. It is missed
// if the process dies right after that commit. It is not called if the run fails before
// its agent is known: if several executors were lost with the run (framework_run_lost), or if
// the agent cannot be made.
//
// # What readers see
//
// A reader gets committed steps from the state service, and the step in flight from the live
// log. The runner shows its chunks through the publisher. It stores them until the commit.
// A new attempt at the step voids the shown part of the step. It begins
//
//   - when a failed model call is retried: at once, before the wait (step_retried),
//   - when another executor takes the run over (executor_lost): it shows a recorded plan again,
//     then the results in the journal, and continues,
//   - when the log has lost records (log_lost),
//   - when the run is given up and only the journal's part of the step is committed.
//
// When the run ends outside of a step, a failed reply is void too.
//
// A refused call has no start, only the deltas of its arguments and its end. A start tells a client that it may run the call.
//
// # Without the stream tier
//
// A run waits for the stream tier up to the stream patience, and then continues
// without it: steps commit, and readers see each step once it is stored.
//
// # Shutdown
//
// When the context of Run ends, the worker claims nothing more. A runner continues
// to the end of its step and releases its run. After the drain grace it is canceled,
// and releases its run in the middle of the step. A runner beyond that is abandoned, and
// its run is claimed again when the executor is missed. A run about to end, suspend or
// stop continues to its end. Heartbeats continue until the last runner has ended, to keep runs
// shortly before their end.
package worker
