// Package worker executes runs: it claims them from the state service, performs
// what the planner (package loop) decides, shows readers the step in flight (package
// publisher), and commits.
//
//	state ──ClaimRuns──▶ claims ──▶ one runner per claim ──┬─▶ agentCode: models, functions, guards
//	  ▲  └──stops──────▶ halt  ───────────┘ cuts           ├─▶ toolCaller: tools ┐
//	  │                                                    ├─▶ hookRunner: hooks ┴─▶ writes, account
//	  │                                                    ├─▶ view ──▶ publisher ──▶ stream
//	  ├──Heartbeat── one per process                       │
//	  └──RecordPlan, RecordResult, CommitStep, FinishRun, ReleaseRun ◀── recorder
//
// # Types
//
// The runner is the driver: it asks the planner for the next effect, performs it, and answers
// the planner. Everything else that a run needs to remember has an owner:
//
//   - halt: whether the run is to end early, and what a stop cuts,
//   - view: what readers have seen of the step in flight,
//   - writes: the custom state, and who has written what to it in the step,
//   - account: the tokens and other usage,
//   - recorder: what the journal has of the step; it makes all writes to the state service,
//   - hookRunner: which messages OnMessage has seen, and the hook that runs behind the end.
//
// The goroutine of the runner owns them all. While the calls of a step run on goroutines of their
// own, they use only what is safe for that: parts of view, recorder.result, and hookRunner.call.
//
// # Order
//
// Within a step: plan recorded → calls run, results recorded before their chunks → step
// committed → boundary. The planner says which steps need a plan and which results a record; the
// commit makes the others durable, and carries their usage. The chunks of the step go to the live log meanwhile, and nothing
// waits for their acknowledgement. The commit carries the record of what readers saw beside
// the messages, so the state service can give the step to any later reader. With an outcome,
// the commit ends the run as well. Behind the end, the runner gives the log a short time. After
// that nothing is left to do: no other process repairs anything.
//
// # Points
//
// The points of point.go lie between two effects. Peers.Passed is called at each. If the process
// dies at a point, this is what it costs:
//
//	claimed, drained               nothing; the run is claimed again, answers are read again
//	model_called, replied          the reply, whose tokens are not counted: the model is asked again, and
//	                               what readers have seen of the reply is void
//	plan_recorded                  a call without a result runs again if its tool is safe to repeat; of any
//	                               other call it is unknown whether it had begun
//	call_begins, call_ended        a safe call runs again, under its key; a call that is never repeated gets
//	                               the result that its outcome is not known, which the model reads
//	call_recorded                  nothing: the journal has the result, the writes of the call, and the writes
//	                               of the hooks that have led to the plan; the other hooks are called again
//	call_told, calls_ended,
//	commit_begins                  what is not recorded: of the last call the same as at call_ended, of read-only
//	                               calls nothing but their second execution; without a plan, as at replied
//	committed                      nothing: readers get the step from the state service
//	stop_seen, stop_kept           what had come of a reply; the stop itself is stored with the run,
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
// heartbeat, or with the answer to a commit. A timer stops the run at its deadline. A stop cuts
// what is under way: the call of the model, the tools, a summary, a guard, a wait. Their contexts
// end with the cause Stopped. Then the planner says what is kept, and how the run ends. Writes to
// the state service are not cut, so that the fate of each is known before the next one.
// An outcome that is being committed stands.
//
// A run that is to stop waits a second at most for hooks and for a full queue to the stream
// tier. A run whose agent is not here ends all the same when it is to stop or its deadline has
// passed.
//
// An executor that gives a run up (quit.go) commits what the journal has of the step in flight
// with the end: its reply, and for each call the result or that it is unknown. The run ends
// without that only where the state service refuses the commit.
//
// # Suspension
//
// A run that waits for an answer from outside of the runtime has ended: nothing of it is kept
// in memory. Its end says paused. The run that continues it shows run_resumed instead of
// run_started, with the id of the same message. The step in which it answers the calls of the
// earlier run is a drain: no model was called for it, so it has no step_started. Its plan is only
// in the journal, and is not shown.
//
// # The custom state
//
// A call sees the state as of the step's begin. What it writes is recorded with its
// result, and the state service merges it in the order of the calls when the step
// commits (writes.go). Hooks around a call write with that call. Other hooks, and the
// defaults of the schema, write with the commit. The commit carries the difference between the
// state with the writes of the recorded calls and the state that the step leaves. Writes are
// applied in the order in which a run makes them that keeps its executor: the hooks of its begin,
// the hooks that have led to the reply, those that have seen it, the calls, and the hooks behind
// them.
//
// The writes of a hook are either in the journal, or the next owner calls the hook again. It is
// never both, so each hook counts once. In a step without a plan it calls all of them again. Two kinds of writes are recorded with the plan, because
// the next owner has the reply and does not call the hooks for it: those of BeforeModel, and
// those of AfterModel where another call of the model has followed in the step. The next owner
// calls BeforeRun, OnStart and OnResume of a first step, AfterModel with the recorded reply, and
// OnMessage. It applies the writes of the plan behind those of the hooks of the begin, which do
// not see them. Every commit carries the writes of the plan too, and says so, for state services
// that do not keep them.
//
// Hooks beside calls, prompts and guards see what would be committed now. Readers are shown
// writes with the end of their call, and the rest before the commit. Where the state would be
// too large with the writes of hooks, the step is committed without them, and readers are
// shown that before. A plan whose writes would make it too large is recorded without them, and
// they are dropped. In a step that is cut only the writes count that the journal has.
//
// # Code of agents
//
// Tools, hooks, guards, functions that sum up, factories and models are code of users. Each
// call has a time limit, and panics are errors. Code that does not return in time is abandoned
// (sandbox.go, package tool). A function or model with too many abandoned calls is not called
// until some of them have ended. A hook that fails changes nothing, except BeforeRun.
//
// The functions that the planner calls (Prompt, StopWhen, ApproveWhen, Count) have no
// context. They are called in the same way: with the time limit of hooks, on another goroutine,
// which may outlive the run. A function that gives no answer is logged. Then a Prompt fails the
// run; a StopWhen does not stop it, an ApproveWhen means yes, and the runtime estimates instead
// of a Count. A stop cuts them: what the step has come to until then is kept.
//
// An executor that takes up a recorded plan calls AfterModel again, without the call of the
// model, which is not known any more, and OnMessage. In a run that has no step yet it calls
// OnStart or OnResume again as well. What they count was counted with the plan.
//
// AfterRun is called once, by the owner that has made the end of the run durable. It is missed
// where that process dies right behind the commit. It is not called for a run that fails before
// its agent is known: where executors were lost again and again (framework_run_lost), or where
// the agent cannot be made.
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
// When the run ends outside of a step, what readers have seen of a failed reply is void too.
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
// to the end of its step and releases its run. After the drain grace it is cut,
// and releases its run where it stands. A runner that does not end then is abandoned, and
// its run is claimed again when the executor is missed. A run that has ended, suspended or
// stopped goes on to the end. Heartbeats go on until the last runner has ended, so that no run
// is taken away that is about to be finished.
package worker
