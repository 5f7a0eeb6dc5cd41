// Package loop is the heart of the executor: it decides what a run does next.
//
// A Planner knows the agent, the conversation, and what the step in flight has recorded. Next returns one effect
// at a time. The worker performs it and reports its result, and the next effect follows. A step:
//
//	               ┌─────────────── Waited ── Wait ◀─┐ retryable, budget left; otherwise the
//	               ▼                                 │ next model; after the last one
//	begin ──▶ [Compact] ──▶ CallModel ── Failed ─────┴── Commit, or Finish ──▶ Done
//	                            │ Replied
//	      ┌── text ─────────────┴──────── calls ──┐
//	      ▼                                       ▼
//	 [Guard: reply]            [RecordPlan, if a tool may have effects]
//	      │                                       ▼
//	      │                          RunCalls: tools that run here, impossible calls
//	      │                                       │
//	      │            a client must answer ──────┼───── one finishes the run
//	      │                   │                   │               ▼
//	      │                   ▼                   │   [Guard: output] RunCalls [Guard: output]
//	      │        Commit, suspended              ▼               │
//	      └─────────────────────────────────▶  Commit ◀───────────┘
//	                                              │ Committed
//	                       Done ◀── an end ───────┴───── none ──▶ begin
//
// Before the model call of a step, begin applies answers to calls of an earlier step, in a step of their own (an
// answer step):
//
//	begin ──▶ RunCalls: answers ──▶ [RecordPlan ▶ RunCalls: approved ones] ──▶ finishing, Commit as above
//	  └─────▶ Commit, suspended: only open calls
//
// A tool may leave its call open too (Ended.Awaits): a companion that has begun already answers it, or another system, which
// posts the result. The latter is recorded before the commit. A call that needed approval is then opened a second time.
//
// A call of a sub-agent stays open like that of a client: the commit begins the session of the sub-agent, whose end
// is the answer.
//
// Stopped leads from any effect to a Commit of the existing work, or to Finish without any.
//
// Readers' text of a reply stays in the conversation if its run is stopped or its last model call fails. It
// becomes an assistant message with a mark in its metadata. It keeps the texts and the complete calls, each with
// a result saying that the call was not executed, but no reasoning. The next run's model sees a stopped reply.
// It does not see a failed one, which it would mistake for its own.
//
// # Parts
//
// The Planner receives the answers to effects and asks its parts for the next effect. Only the Planner moves the run to its
// next step.
//
//	run          what all parts read: the agent, the transcript, the custom state, the number of the step
//	answers      the calls that clients and sub-agents answer, and late answers
//	rows         rows of context, folded: the newest of each key, disabled tools
//	compaction   what a model sees of the conversation: token budget, summaries, lessons of refusals
//	modelCalls   the requests of a step, retries, fallbacks, and what to change after a refusal
//	calls        the step in flight: the model's message, the state of its calls, the plan
//	ends         the commit of a step, limits, the owed output, the guard, suspensions, stops
//
// # Refusals
//
// A request that a provider refuses is not sent again unchanged. The planner commits what it has learned as a step of
// its own (Commit.Notes), and the next step calls the model with another request:
//
//	CallModel ── Failed, with a refusal ──▶ Commit: a lesson ──▶ begin
//	  └── nothing to change, or maxRefusals without a reply ──▶ Commit: failed, the turn is left out later
//
// A lesson is the metadata of a hidden context message. Its place in the conversation is part of its meaning, so rewinds and
// branches need nothing else, and a new owner derives the same request. Lessons count for the model that refused. A guess
// after a refusal without a reason counts for later turns only if a reply came of it: otherwise the cause was elsewhere,
// for example in the agent's options, and the model gets the whole conversation again. A lesson about a turn counts until
// the turn is repeated with success.
//
// A summary is committed before the call that needs it, in the same way.
//
// # Rows of context
//
// Before the model call of a step, the agent may give rows of context: hidden messages to the model (StepContext). They are
// committed as notes before the call, so neither the reply nor a recorded plan ever depends on rows that are not durable. The
// rows of a call are recorded with its result and follow the results of its step. Which tools are disabled, and what a row
// with a key replaces, is folded from the conversation (contextRows), so a new owner, a rewind and a branch need nothing
// else. A plan lists its calls of disabled tools, because an application may add rows meanwhile.
//
// # Recovery by a new owner
//
// All decisions derive from durable data: the conversation, the journal, open and answered calls, and custom
// state. The plan is recorded before any of its calls with effects runs. A new owner that finds a plan does not
// call the model again. Calls with a recorded result keep it. A call without one that may have begun runs again
// with the same idempotency key if its tool is safe; otherwise its result says that the outcome is unknown. A
// finishing call with effects begins only after everything before it is recorded, so it cannot have begun while
// a record is missing.
//
// Work that a new owner may repeat is not recorded (RunCalls.Records):
//
//	step                                 plan       results before the commit
//	text                                 no         –
//	read-only tools alone                no         no
//	tools with effects, others beside    yes        of effects, except the last one to end
//	read-only tools beside open calls    yes        no
//	calls of an earlier step             yes        of effects, except the last one to end
//
// The last result travels with the commit if no agent code runs in between: no guard, StopWhen, OnMessage or
// finishing tool. It is recorded if the step also applies an answer that a later answer may replace, such as a timeout:
// the state service refuses the commit then, and the tool must not run a second time. A result that writes custom
// state, or a large one, is always recorded; in a step without a plan, the plan is recorded first. In a step without a
// plan, a new owner calls the model again, and the step may turn out differently.
//
// The plan of an answer step is a message outside of the conversation (IsAnswering). It lists the answered calls. A
// timed-out approval is in no plan, because a late decision may still replace the timeout, and the plan must not
// claim that the tool may have begun.
//
// A plan's metadata lists the calls that wait for a client (asks), because a predicate or another version of the
// agent may decide differently later. Its questions remain, and a call that runs according to the plan needs no
// approval any more. The conversation does not contain this metadata (ConversationMessage).
//
// Other facts after a commit are metadata of messages: that a reply was interrupted (agent.MetadataInterrupted) or
// failed (agent.MetadataFailed), that the output is owed and because of which limit (completion,
// completion_reason), the replies of that phase that missed it, the notes that replace empty replies (reply),
// and what a summary covers (compaction, covers). Steps are counted by the replies since Start.Begin, so a run
// has one limit over all of its suspensions.
//
// Everything else may be repeated: model calls without a plan, guards, summaries. Each step begins with the
// agent's own model, whichever model answered before.
//
// # Ends
//
//	text                        completed; with an output schema the output is owed
//	finishing call that succeeds, and fits     completed, structured
//	content filter, nothing left of a reply    as a refusal: failed, provider_content_filtered
//	model calls and fallbacks used up          failed, with the code of the last error
//	StopWhen, before MaxSteps                  completed, stop_when; or the output is owed
//	MaxSteps                                   failed, framework_max_steps; or the output is owed
//	StopWhen fails, without a step limit       failed
//	owed, and missed three times               failed, framework_completion_missed
//	guard                                      failed, framework_guard_refused or _failed
//	stop                                       interrupted, or failed with framework_cancelled,
//	                                           framework_deadline_exceeded or framework_agent_gone
//
// The result of a finishing tool must match the agent's output schema unless the tool has an output schema of
// its own. A guard's revision request becomes the failure of __finish__, which is judged before it has a result.
// Another finishing tool keeps its result, and the request follows as a note.
//
// Nothing here reads a clock, does I/O, makes a context or starts a goroutine. Start.CallFunction calls functions of the
// agent, and may do so. The same start and the same answers, those of functions included, produce the same effects, message
// ids and keys.
package loop
