// Package session has the rules of the state service: the state machine of sessions and runs.
// It uses no database, no wire format, no clock and no random numbers.
//
// # Terms
//
//	session     a conversation with its custom state; one row, which is also its lock
//	run         one execution of a session by an executor
//	turn        the number of a run in its session, from 1; a waiting run has none
//	step        one model call and its tool calls; steps are numbered per session
//	journal     the record of the step in flight: the plan, and the results so far
//	checkpoint  the record of a committed step
//	claim       the right of an executor to run a run
//	epoch       identifies a claim in its session; every write of an executor names it
//	call        a client tool, an approval or a sub-agent, answered from outside the run
//	suspension  the wait of a session without a live run for its open calls
//	family      a root session and the children below it
//
// # Commands
//
// A command is a value with a pure method Decide: it reads the rows of its session (View) and
// returns the rows to write (Change), or a fault. The store may call Decide again if another
// writer was faster. A nil Change writes nothing, because the command is a repeat.
//
// A Command is a command with all its rules in their order: the owner of the session, the decision, the quotas, the
// family, the audit log, and the hand-over of a new run to an executor.
//
// Family.Propagate adds the consequences of a command for other sessions. The store writes
// everything in one transaction. A Decide or Propagate that needs more rows returns an
// IncompleteViewError, and the command runs again with these rows locked as well.
//
//	status of the session     none    active  suspended  paused,      completed  failed
//	                                                     interrupted
//	Create                    yes     exists  exists     exists       exists     exists
//	Send                      yes     waits   abandon*   yes          yes        yes
//	Edit, Regenerate          yes     busy    yes*       yes          yes        yes
//	Resume                    -       busy    abandon*   yes          no         yes
//	Resume at a checkpoint    -       busy    yes*       yes          yes        yes
//	Retry                     -       no      no         no           no         yes
//	Branch, BranchAndStart    -       yes     yes        yes          yes        yes
//	Submit, SubmitAll         -       yes     yes        yes          no         no
//	RewindTo, Truncate        -       busy    yes        yes          yes        yes
//	RequestStop               -       yes     yes        yes          none       none
//	Expire                    -       yes     yes        yes          no         no
//	SetStatus, DeleteSession  -       yes     yes        yes          yes        yes
//
//	waits    the run waits for the live run, or SESSION_BUSY, by policy
//	busy     SESSION_BUSY; Edit, Regenerate and a Resume at a checkpoint also while runs wait
//	abandon  SESSION_SUSPENDED unless the request abandons the open calls; a Resume needs to
//	         only if calls are awaited
//	*        as active, while the session waits for children at work (work.go)
//	none     allowed, without an effect
//
// Resume without a checkpoint and Retry refuse a session whose run was aborted (RUN_CANCELLED).
// PutChild, AppendMessages, UpdateSession, SaveState, MergeState and RecordUsage are always allowed.
// Commands of executors need a running run and its epoch: RecordPlan, RecordResult, Commit,
// Finish, Release.
//
// # Repeats
//
// A client without an answer sends its request again. Three keys find the first request:
//
//	request key           returns the run begun by the request
//	message id            Send and Edit return the run that answers the message
//	id of the old answer  Regenerate replaces it only once
//
// # Runs
//
//	          Claim                Commit or Finish with an outcome
//	queued ────────▶ running ──────────────────────────────▶ completed, failed,
//	   ▲                │                                    interrupted, suspended_*
//	   └─ Release ──────┤
//	   └─ Requeue ──────┘
//	   │ the session's work ends
//	waiting ── RequestStop, the session fails ──▶ interrupted, failed
//
// A queued or running run is live. A session has at most one live run, and is active exactly
// as long. An ended run never changes, except that a suspended one may get a stop; the next run of
// the session is another row.
//
// A session without runs is paused in turn 0, after Create or Branch.
//
// # Users
//
// A Caller with an Owner reaches only the sessions of that user. Target.CheckOwner compares the
// locked row, before Decide, so a session cannot change hands in between. A family belongs to one
// user: children inherit it, and Propagate passes a new one on. A run has the actor that started it
// (Run.StartedBy). Continuations and the runs of children inherit it, and calls copy it. A call for
// ApproversOthers is the one thing that a caller may answer in a session that it does not reach.
//
// # Ownership
//
// Each claim raises the epoch of the session and stores it in the run. A write is stale
// (EPOCH_STALE) if the session or the run has another epoch, or if the run is queued again.
// So two executors never write to one session. The claim that ended a run may repeat the end
// after the next claim, and gets the first answer.
//
// A claim raises the epoch by a random number, so that two claims never share one: see "Lost commits".
//
// Executors claim runs of the agents they announce. A run of an agent that no executor
// announces can be claimed by any executor to end it (ClaimOrphaned).
//
// # Steps
//
// The step in flight is Session.StepCount + 1. Its journal has the plan and the results of
// ended calls; the first plan and the first result of a call win. The journal belongs to the
// session and passes from claim to claim. It is deleted when its step commits or its run
// ends. Its usage is kept in both cases.
//
// A commit applies the state writes of the results in the plan's order of calls, then its own
// with the plan's among them. The order in which the calls ended does not matter.
//
// # Positions
//
// Session.Position separates stored steps from the live step. Package position has its format.
// Session.Claims determines the attempts at a step that a claim may use:
//
//	                        Position                              Claims
//	Claim                   unchanged                             + 1
//	Commit                  Committed(step)                       0
//	Commit with an outcome  Ended(step)                           0
//	other end of a run      OutsideStep(step in flight, Claims)   + 1
//	rewind                  Ended(last remaining step), or 0      unchanged
//	end of a waiting run    unchanged                             unchanged
//
// Only Commit resets the claims, so no two claims share an attempt at a step, even after an
// undo. If the attempts of a step are used up, the session skips its number.
//
// # Lost commits
//
// A database may go back: a backup is restored, or a failover loses the last commits. It cannot
// know. The live log and the executors still know epochs, steps and positions that the database
// would give once more. The claim that meets them is returned with what was seen (LostWork), and
// the session goes on above it:
//
//	database   steps 1 2 3 4 5 6 ─ restored ─▶ 1 2 3            7   follows 3
//	live log   steps       4 5 6               4 5 6            7
//	                                           the next claim: ahead, goes on after 6
//
// So no position ever has two meanings. A reader in a lost step is rewound to step 3, since no
// stored step follows the one that it has. A journal keeps its plan and results, under the new
// number of its step.
//
// # Suspension and continuation
//
// A commit can end its run suspended: run and session get a suspended status, and the
// session stores its Suspension. No process waits. The write that brings the last answer also
// queues the continuation, a new run with the same message and trace. The end of a child is
// an answer, too.
//
//	run 1    queued ─▶ running ─▶ suspended_*
//	session  active ────────────▶ suspended_* ──▶ active
//	run 2                          last answer: queued ─▶ running …
//
// Commit and answer both check under the lock of the session, so no wake-up is lost:
//
//   - The answer, or the end of the child, comes first: the commit finds nothing to wait for,
//     and Propagate continues the session in the same write.
//   - The commit comes first: Submit, TimeoutCalls and the end of a child find the session
//     suspended, and continue it.
//   - A stop comes during the step: the commit applies it to the session.
//
// A session that is interrupted while suspended keeps its open calls. They can be answered,
// but only a resume continues the session. A session that awaits only interrupted children is
// interrupted with the last of them, since nobody would continue it. Its resume resumes them.
//
// # Calls
//
// A call is one row with the question, its owner and its answer, so readers never see one
// without the others. A client answers a client tool or an approval, and only a child answers
// a sub-agent's call. Ids are unique in the family, and any of its sessions leads to the owner.
//
//	   Submit, TimeoutCalls, abandon         Commit (Consume)          Submit after a timeout
//	open ───────────────────────▶ answered ─────────────────▶ consumed ───────▶ late ──▶ reported
//	 │                              │    ▲                                       Commit
//	 │ the run fails                └────┘ a real answer replaces a timeout:
//	 ▼                                     revision + 1
//	deleted
//
// A step consumes an answer with the revision that it has read. If a real answer has replaced
// the timeout since, the commit is refused (ANSWER_CHANGED) and the step runs again. A
// consumed call does not change, except that an answer after a consumed timeout is stored and
// reported to the model once.
//
// A session that fails drops its open calls. A call with a stash stays without a run, as an
// orphan: it can be answered, but no suspension waits for it unless a run suspends on nothing
// else.
//
// # Waiting runs
//
// A Send to a busy session may wait (BusyPolicy): to an active one, or to a suspended one that
// awaits children at work (work.go). The waiting run has no turn, and its
// messages are not in the conversation yet, but its request key and message ids are taken.
//
//	         Send                                 the session's work ends
//	run 1    running ───────────────────────────▶ completed, failed, interrupted
//	run 2      ·     waiting, place 7             queued, turn 2, messages appended
//	run 3      ·     waiting, place 8             waiting
//
// Propagate sees every change of a status. If the session is neither active nor suspended
// after a command, the first waiting run begins in the same write. If SetStatus, Expire or the
// end of the parent has failed the session, all waiting runs end with it. The ended run keeps
// its outcome, and the parent does not notice, since the session stays active. A failed run
// still ends its children.
//
// A continuation, or a resume of a suspended session, goes before the waiting runs. A Send
// that abandons the calls of a suspended session waits behind them. Calls that are open when
// a waiting run begins are abandoned, since they would suspend the run at once.
//
// BusyInterrupt and BusyRollback stop the live run, or the children at work, in the write of the Send. After a rollback,
// the next run begins where the stopped one began:
//
//	messages      of its steps are deleted; messages from outside stay
//	state         is restored (Run.StartStateVersion)
//	checkpoints   of the run are deleted; a repeat of its last commit is known by the run
//	calls         opened by it are deleted; consumed answers to earlier calls stay consumed
//	              with their results, so that no call runs twice
//	late answers  reported by it are reported again
//	usage         stays, and steps keep counting
//
// # Rewinds
//
//	RewindTo, Resume   to a checkpoint: the conversation and the state of a step
//	Edit, Regenerate   to a user message, to replace it or to answer it again
//	Retry              to the step before the failed one
//	BusyRollback       to the start of the stopped run
//	Truncate           the conversation alone
//
// Steps and turns keep counting. Usage, runs and request keys stay.
//
// # Families
//
// Children form a tree. Each session has its own row and lock. A parent has a record (Child)
// of each child, and Propagate keeps the records true:
//
//	up    a status changes, a child is created or deleted: the parent records it. The end of
//	      the child answers the parent's calls for it. The parent may continue, and reports to its
//	      own parent. The interrupt of the last working child interrupts the parent
//	down  a session fails: its local children fail (parent_failed)
//	      a session is interrupted, or resumed: its local children are, too
//	      a session is deleted: its local children are deleted
//	      a call is closed by a timeout, an abandonment or a rewind: its child fails
//
// A step creates its new children (NewChild) in its own write, each with a queued run. So a
// child never exists without the call that it answers. A companion outlives its calls: it
// also answers when it is suspended, and does not fail with a closed call.
//
// The store locks all sessions of a command together, in one order. A root without children
// needs one lock.
//
// The status of a local child comes from the child alone. Remote children live in another
// service: their records are kept, and they are never ended from here. An id can be used again
// after a deletion, so two sessions are related only if the parent has the record and the
// child names the parent.
//
// A session that awaits a child does not expire; the child does, and its end answers the call.
// Nothing begins below a failed parent; below a completed one it may, since companions outlive
// a run.
//
// # Forced ends
//
// SetStatus, Expire, a stop of an idle session and the end of a parent come without an epoch.
// They end a live run and raise the epoch, so the next write of its owner is stale. The
// journal is deleted and its usage kept. A suspended run has ended already and stays.
//
// # Custom state
//
// A small change of a large state must not cost the whole state. So each version is stored
// whole, or as the writes since the last whole version:
//
//	version   4       5       6       7       8       9
//	stored    whole   writes  writes  ·       whole   writes
//	          base ───────────▶ state         base
//
// Session and checkpoint name both ends (StateBase, StateVersion), and FoldState merges what
// lies between. There are at most 64 writes since a whole version, with at most half the size
// of the state. Merging gives the same text, one by one or all at once. After a rewind the next
// version is stored whole, since the number of writes before it is unknown.
//
// # The private store
//
// A store has values by key, beside the custom state: no client sees them, and they change no version. A result writes
// to it in its own transaction (RecordResult), once, since the first result of a call wins. A method writes alone (WriteStore).
//
//	call c1    recorded second: put k=1                ─▶ k stays 2: c2 comes after c1 in the plan
//	call c2    recorded first:  put k=2   ─▶ k=2
//
// The journal keeps the keys and sums of its results (StoreMark), without the values. So the calls of a step write in the
// plan's order, whichever ends first, and a claim carries none of it.
//
// What is stored stays: an undone run, a rewind and a lost step do not take writes back. Versions by step would make every
// write permanent, since each checkpoint may be the target of a rewind. A branch begins with an empty store.
//
// # Cached sessions
//
// CachedSession is a claimed session after the store's own last write: the session, its run,
// its journal and, if they were read, its calls. The next command of the executor needs no read
// then, also if it suspends the session or consumes answers: an answer writes the row of its
// session. It has no checkpoints, so a repeat of a commit is read. The store writes on condition
// that the row is unchanged, refuses the ids of existing messages and calls, and reads before it
// refuses a command.
package session
