// Package loop is the heart of the executor: it decides what a run does next.
//
// A Planner knows the agent, the conversation so far and what the step in
// flight has left behind. One effect at a time comes out of Next; who performs
// it tells the planner how it ended, and the next one comes out. A step:
//
//	               ┌─────────────── Waited ── Wait ◀─┐ retryable, budget left; else the
//	               ▼                                 │ next model, and behind the last one
//	begin ──▶ [Compact] ──▶ CallModel ── Failed ─────┴── Commit, or Finish ──▶ Done
//	                            │ Replied
//	      ┌── text ─────────────┴──────── calls ──┐
//	      ▼                                       ▼
//	 [Guard: reply]            [RecordPlan, if a tool may have effects]
//	      │                                       ▼
//	      │                          RunCalls: tools that run here, calls that cannot
//	      │                                       │
//	      │         somebody outside answers ─────┼───── one finishes the run
//	      │                   │                   │               ▼
//	      │                   ▼                   │   [Guard: output] RunCalls [Guard: output]
//	      │        Commit, suspended              ▼               │
//	      └─────────────────────────────────▶  Commit ◀───────────┘
//	                                              │ Committed
//	                       Done ◀── an end ───────┴───── none ──▶ begin
//
// Before the model of a step is called, begin takes answers that have come to calls of
// an earlier step, in a step of their own (a drain):
//
//	begin ──▶ RunCalls: answers ──▶ [RecordPlan ▶ RunCalls: approved ones] ──▶ finishing, Commit as above
//	  └─────▶ Commit, suspended: nothing but open calls
//
// Stopped leads from anywhere to a Commit of what there is, or to Finish where that is
// nothing.
//
// What readers have seen of a reply stays in the conversation, also when its run is stopped
// or its last model call fails: as an assistant message that says so in its metadata. It has
// the texts and the calls that came whole, each with a result that says that it was not made;
// it has no reasoning. The next run's model is shown a reply that was stopped, and is not
// shown one that has failed: it would take a broken reply for its own.
//
// # What a new owner finds
//
// Everything is derived from what is durable: conversation, journal, questions with
// their answers, custom state. A plan is recorded before any call of it that may have effects
// runs. So a new owner that finds a plan asks nothing of the model again: calls with a recorded
// result keep it, calls without one that may have begun run again with the same idempotency key
// where their tool says that this is safe, and otherwise get a result that says that nobody
// knows. A call that finishes the run and may have effects begins when everything before it is
// recorded, and so has not begun where something is not.
//
// Nothing is recorded that a new owner may do again (RunCalls.Records):
//
//	step                                 plan       results before the commit
//	text                                 no         –
//	read-only tools alone                no         no
//	tools with effects, others beside    yes        of effects, except the last one to end
//	read-only tools beside open calls    yes        no
//	calls of an earlier step (a drain)   yes        all
//
// The last result comes with the commit where nothing of the agent's code runs in between: no
// guard, StopWhen, OnMessage or finishing tool. A result that writes to the custom state, or is large, is
// always recorded, in a step without a plan behind its plan. In a step without a plan, a new owner
// asks the model again, and the step may turn out otherwise.
//
// The plan of a drain is a message that the conversation never sees (IsDrain). It has the
// calls whose answers stand. An approval that timed out is in no plan, since a yes may
// still take the timeout's place: then the plan must not say that the tool may have begun.
//
// A plan says in its metadata which calls wait for somebody (asks), since a predicate or
// another version of the agent may say something else by then: what it has asked is asked,
// and of a call that has run as the plan says nobody is asked whether it may. The
// conversation does not have that (Said).
//
// What is to be known behind a commit stands in the metadata of messages: that
// a reply was cut short (agent.MetadataInterrupted) or has failed (agent.MetadataFailed), that the output is owed and by which
// limit (completion, completion_reason), which replies of that phase have missed it, which
// notes stand for replies without content (reply), and what a summary covers (compaction, covers).
// Steps are counted by the replies since Start.Begin, so that a run
// has one cap over all of its suspensions.
//
// What is not durable may be done again: model calls without a plan, guards, summaries.
// A step begins with the agent's own model, whichever has answered before.
//
// # Ends
//
//	text                        completed; with an output schema the output is owed
//	finishing call that succeeds, and fits     completed, structured
//	content filter, nothing left of a reply    failed, provider_content_filtered
//	model calls and fallbacks used up          failed, with the code of the last error
//	StopWhen, before MaxSteps                  completed, stop_when; or the output is owed
//	MaxSteps                                   failed, framework_max_steps; or the output is owed
//	StopWhen gives no answer, without a cap    failed
//	owed, and missed three times               failed, framework_completion_missed
//	guard                                      failed, framework_guard_refused or _failed
//	stop                                       interrupted, or failed with framework_cancelled
//	                                           or framework_deadline_exceeded
//
// The result of a finishing tool is held against the agent's output schema unless the
// tool has a schema of its own. A guard's wish becomes the failure of __finish__, which is
// judged before it is a result; a tool that has run keeps its result, and the wish
// follows as a note.
//
// Nothing here reads a clock, does I/O or starts a goroutine: functions of the agent without
// a context are called by Start.Apart, which may. The same start and the same answers give
// the same effects, message ids and keys.
package loop
