// Package session is the heart of the state service: the rules by which a
// session moves. It knows no database, no wire, no clock and no randomness.
//
// # Commands
//
// A command is a value with everything that it needs to know, and a method
// Decide that is a pure function: it is shown the rows of its session (View)
// and gives the rows to write (Change), or a fault and nothing is written. The
// store may call Decide again when another writer was faster, so Decide keeps
// nothing between calls and never changes what it is shown. A nil Change is a
// command that has nothing to write: the repetition of one that was done.
//
// A command whose effect can reach other sessions goes through Family.Spread,
// and all that follows is written with it; see Families.
//
// # What a client posts
//
// Each intent of a client is one command, decided and written at once: Send, Edit,
// Regenerate, Resume, Retry, BranchOff, SubmitAll, RequestStop. The first six begin a run,
// and Post is what they have in common. A client that has no answer sends its request
// again; three rules find what the first one has done:
//
//	a request key       names the run that it has begun, whatever has become of it
//	a message's id      names the answer to that message: it is not said twice
//	an answer's id      names what Regenerate replaces: it is not replaced twice
//
// # The life of a run
//
//	          Claim                Commit or Finish with an outcome
//	queued ────────▶ running ──────────────────────────────▶ finished
//	   ▲                │
//	   └─ Release ──────┤
//	   └─ Requeue ──────┘
//	   │
//	waiting ── RequestStop, the session fails ──▶ given up: interrupted, failed
//
// A run is live while it is queued or running, and a session has at most one
// live run: its status is active for exactly that time. A run that has ended
// has ended: nothing of it is left to do, and the session's next run may begin at once.
//
// # Who owns a run
//
// Each claim raises the epoch of the session by one and notes it in the run.
// A write names the epoch of its claim, and is refused as stale when the
// session has another, when the run was claimed under another, or when the run
// is queued: then its claim was given back or taken away, even though nobody
// has claimed it since. So two owners never write to one session, whatever they
// believe. The claim that ended a run may repeat the run's end even after the
// next claim, only to be told what it was told before.
//
// An executor claims runs of the agents that it announces. One whose agent nobody
// announces is claimed by any, but only to end (ClaimOrphaned).
//
// # A step
//
// The step in flight is always the session's step_count + 1. Its journal
// holds what must not be done again: the plan (the first one stands, with the
// state writes that have led to it) and the
// results of the calls that have ended (the first one of each stands). A
// journal belongs to the session, not to the owner, and so is handed from owner to
// owner. It ends with the commit of its step or with the end of the run, and its
// usage is kept in both cases: the tokens were spent.
//
// The state writes of the plan are applied when the step commits, then those of
// the results in the order of the calls in the plan, then the writes that the
// commit brings itself. They do not depend on which call ended first. An executor
// that knows of the writes of the plan has them among its own, and says so: those
// of the plan are not applied then. So the step is the same whichever versions of
// executors and of this service have to do with it.
//
// # Positions
//
// Session.Position is the boundary between what is stored and what is shown live. Package
// position says how it is packed, and Session.Claims which attempts a claim may use:
//
//	                        Position               Claims
//	Claim                   stays                  + 1
//	Commit                  Committed(step)        0
//	Commit with an outcome  Ended(step)            0
//	any other end of a run  OutsideStep(step in flight, Claims)   + 1
//	going back              Ended(the last step that is left), 0 for none; stays
//
// An end outside a step counts as a claim, so the next claim and the next end stand
// behind it. No command but Commit sets the claims back, so no two claims ever have the
// same attempts at a step, whatever was taken back between them. When an end finds no
// number left, the session gives the step in flight up and goes on with the next one.
//
// A run that is given up before it began has shown nothing, and another run may be at
// work: the session's position stays.
//
// # Sessions without runs
//
// A session may exist before its first run: created or branched, it is paused
// in turn 0, and nothing waits for it. Everything that reads a session's newest
// run has to bear that there is none. Rewinding and a host's decision pause a
// session too; then it has runs, all of them finished.
//
//	            Create, Branch              RewindTo, SetStatus
//	(nothing) ─────────────────▶ paused ◀───────────────────────── other statuses
//	    │                          │
//	    └────────── Send ──────────┴─▶ active
//
// # Suspension and continuation
//
// A step that needs an answer from outside ends its run: the commit that
// brings the calls makes run and session suspended_*, and nobody holds anything
// for it any more. When the last answer comes, or the last child ends, the same
// write that brings it queues the next run, the continuation, which takes over
// message id and trace. Nobody has to come and resume.
//
//	run 1   queued ─▶ running ─▶ suspended_*
//	                     │ Commit
//	session     active ──┴─▶ suspended_* ─────┐
//	                                          ▼
//	run 2                     last answer:  queued ─▶ running …
//	session                                 active
//
// A wake-up is lost when the waker looks before the sleeper sleeps and the
// sleeper does not look again. Here both look under the lock of the session's
// row, and whoever comes second wakes:
//
//   - The answer comes first (the call is of an earlier step, or the child was
//     started before the step was committed): the commit finds what it would wait
//     for answered, and Family.Spread continues the session in the same write. It
//     takes no one's word for the status of a child, but reads what the session
//     knows of it by now.
//   - The commit comes first: Submit, Timeout, PutChild and a child's end find the
//     session suspended with nothing left to wait for, and continue it.
//   - A stop came while the step was on its way: the run that it was meant for
//     looks no more, so the commit gives the session the stop's end itself.
//
// A session is never continued twice: the first continuation makes it active.
// An interrupt takes the suspension away and leaves
// the calls: they may still be answered, but only a resume goes on with them.
//
// # Runs that wait
//
// A message to a session that is active may wait (BusyPolicy): Send makes a run
// that is waiting, and keeps with it what it brings (Held). It has no turn and
// nothing in the stream, and nothing of it is in the conversation; but its request
// key and the ids of its messages are taken.
//
//	                 Send                                 the session's work ends
//	run 1   running ─────────────────────────────▶ … ─▶ completed, failed, interrupted
//	run 2     ·      waiting: place 7, Held        … ─▶ queued, turn 2, messages appended
//	run 3     ·      waiting: place 8, Held        … ─▶ waiting
//
// There is one place where a waiting run begins, and one where those that wait
// end with their session: Family.Spread, through which every command goes that
// changes the status of a session. It looks at what the session would be after
// the command. Active or suspended, it leaves them waiting; else the first of them
// begins in the same write, or all of them are given up when the session was failed
// from outside (SetStatus, Expire, a parent's end). So whoever ends a run has nothing
// to remember, and there is no moment at which a session is at rest and a run waits.
// What ended stands as it was written: the run has its outcome, the step its
// checkpoint of that status, under the version before. The parent learns of nothing,
// since the session is as active as before; but a run that has failed takes its
// sub-sessions with it.
//
// Most sessions have nobody waiting, and their row says so (Session.Waiting). Only
// where it does not the command asks to see them, by Wider.
//
// Nobody goes before those that wait but who takes on the very work that they wait
// for: a continuation, or a resume of a suspended session. A new message that
// abandons the calls of such a session waits too, and lets the first of them begin.
//
// The writes of a run that waits have to fit the custom state twice: as it is when the
// run comes, which is refused else, and as it is when the run begins. Where it has
// grown too large meanwhile they are left out, and the run begins with an abort of
// that reason: so its client learns of it, and nobody works on a state that lacks them.
//
// Whatever is asked of somebody outside when a waiting run begins is abandoned in the
// same write: it belongs to what came before, and a run with open calls would be
// suspended again before it has read its messages.
//
// An interrupting or rolling back message leaves its stop with the live run in the
// same write. When a run that is to be rolled back has come to any end, a suspension
// too, and a run waits that has asked for it, everything that it has done is taken
// back before the next one begins:
//
//	messages     of its steps go; what was sent to it, and those of others that came
//	             meanwhile, stay in their order and are numbered anew
//	state        is what it was when the run began (Run.StartStateVersion)
//	checkpoints  of the run go, and so the repetition of its last commit is known
//	             by the run alone
//	calls        that it has opened go; those of former runs stay as they are, so that none
//	             runs twice: their answers stay consumed, and their results stay
//	late answers of which it has told are told again
//	usage        stays, and so do the numbers of its steps
//
// # Calls
//
// A call is one row: its question, its owner, its answer, and the trace that the
// answer was used. So there is no moment at which a reader sees pending calls
// without their owners, or a message with an answer while the call still waits:
// the specification's invariant C-1 holds by the shape of the data. Ids are unique
// in the family, and so an answer finds its owner from any session of it.
//
//	        Submit, Timeout, Abandon         Commit (Consume)       Submit after a timeout
//	open ───────────────────────▶ answered ─────────────────▶ consumed ───────▶ late ──▶ told
//	 │                              │    ▲                                       Commit (Told)
//	 │ a failed run drops it        └────┘ a real answer takes a timeout's place:
//	 ▼                                     revision + 1
//	gone
//
// Who does not know which calls are open sends all answers that it has: SubmitAll
// takes them in one write, and says of each what became of it. Send takes answers
// too, before it abandons the rest. An answer to a session that is interrupted or
// paused continues nothing: when it was the last one, whoever gave it resumes, or has
// said that the answer does (SubmitAll.GoOn).
//
// A step consumes an answer by its revision: had a real answer taken the place
// of the timeout that the step has read, the commit is refused (ANSWER_CHANGED),
// and the step is taken again with the real one. A consumed call stays as it is:
// whoever answers it again learns that it is done.
//
// # Going back
//
//	RewindTo, Resume   to a checkpoint: the conversation and the state of a step
//	Edit, Regenerate   to a message of a user: to put another one in its place, or to answer it again
//	Retry              what the newest run has done in the step in which it has failed
//	BusyRollback       what a live run has done, when it has ended
//	Truncate           the conversation alone
//
// All of them number on, and keep usage, runs and request keys: that a run was there
// is never taken back, and a request that is repeated finds it. What a call has done
// for somebody's answer is not taken back either: where the call stays in the
// conversation, its result does.
//
// # Families
//
// Sub-sessions form a tree. Each session of it has a row and a lock of its own,
// and knows its children by rows (Child) that say what each of them is.
// Family.Spread keeps these true: it compares a session before and after
// a command, and passes on what follows, in the same write.
//
//	up:    a status has changed, a child was made or deleted: the parent notes it, and
//	       is continued when it waits for nothing else; then its own parent learns of it
//	down:  the session has failed: its local children end failed (parent_failed)
//	       the session is deleted: its local children are deleted, whatever they are
//
// What has to be seen for that is known only on the way. So a command begins
// with its own session, and when that is not enough Spread gives Wider, and the
// command runs again from the start with more sessions locked. The store locks
// all of them together, in one order for everybody. Most commands never widen: a root
// without children has nobody to tell.
//
// A view of a session that is gone does not say whose it was; Family.Targets
// does. Ids may be used again after a deletion, so a session that belongs
// elsewhere by now is not family: a parent has to know the child, and the
// child to name the parent. Remote children are somebody else's: they are noted,
// and left alone.
//
// A local child's status comes from the child alone, never from its parent's
// executor, whose knowledge may be old.
//
// A parent that waits does not expire before the local child that it waits for,
// since its end would be the child's: not at all while the child is active, and
// with it or later once the child is suspended. So a change of that time goes up
// as a change of status does. A time that a host sets itself stands.
//
// Nothing begins below a session that has failed, for a caller that names it as
// the parent. Below one that is completed it may: companions outlive a run.
//
// # Forced ends
//
// SetStatus, Expire, a stop of a session that only waits, and a parent's end
// come from outside, without the epoch of an owner. A live run ends with them and
// the session's epoch is raised, so the owner's next write is EPOCH_STALE. The journal goes, its usage stays. A run that has suspended is over
// already and stays as it is.
//
// A session that fails drops the open calls whose answers nobody could use,
// but for those that hold somebody's message (Call.Stash). These lose their run:
// they can be answered, but no later suspension waits for them, unless a run
// suspends on nothing else and so takes them over.
//
// # The custom state as a whole and its writes
//
// A state of 100 KB that changes by a counter in each step must not cost 100 KB
// a step. So a version of the state is kept either as a whole, or as the writes
// that lead to it from the version before, to be folded (Fold) onto the last whole
// one:
//
//	version   4       5    6    7       8       9 …
//	kept      whole   w    w    w       whole   w
//	          base ───────────▶ state   base
//
// Session and checkpoint name both ends (StateBase, StateVersion), and whoever
// reads takes the rows between. The writes since a whole are at most 64 and
// together at most half as long as the state, else the next version is kept as a
// whole: so a read costs at most half as much again as the state itself. Merging
// gives the same text whether it is done write by write or all at once; merge
// trims what it puts in, and keeps the text of what it does not touch, for that.
// A rewound session keeps its next write as a whole, since the count of those
// before is not known.
//
// # Known without reading
//
// Hot is what a store knows of a claimed session from its own last write, so that the
// next command of the executor needs no read: Heat begins it with a view and the
// change that was decided on it, After leads from one change to the next, and View gives the views
// that need no more. It has the session, the claimed run and the journal, and the custom
// state where it was shown or written. It has no checkpoint: a command about
// the last committed step is a repetition, and is read. The store makes sure that it holds
// when it writes, and reads before it refuses.
//
// # The rules and their proofs
//
// Sections are those of the specification (behaviour.md), H is its list of
// hardening deltas. Rules about what is stored and found again are proven by
// package storetest.
//
//	§2.3 a status decides whether a run may start     TestTheStatusOfASessionDecidesWhetherARunMayStart
//	§2.3 paused, interrupted, failed: resumable       TestASessionGoesOnWhereItStopped
//	§2.3 suspended: resumable when no call is open    TestASuspendedSessionIsResumedOnlyWhenNoCallIsOpen
//	§2.3 a created session has no run                 TestACreatedSessionIsPausedAndHasNoRun
//	§2.3 expiry fails what is not terminal            TestASessionExpiresOnceItsTimeHasCome
//	§2.3 a failed parent fails its children           TestTheSubSessionsOfAFailedSessionFailToTheLast
//	§2.4 compare and set, answered by the same read   TestAStatusIsComparedBeforeItIsSetAndTheAnswerSaysWhatWasSeen
//	§2.4 which statuses a host sets                   TestOnlyAHostsStatusesCanBeSet
//	§2.5 another version is a typed conflict          TestAStepOfAnotherVersionIsRefused
//	                                                  TestAWriteOfAnotherVersionIsRefused
//	§2.6 the time of expiry covers the deadlines      TestAStepSuspendsWithItsCallsInOneWrite
//	§2.6 it covers the children that are waited for   TestAParentIsKeptForAsLongAsTheChildItWaitsFor
//	                                                  TestTheParentOfAParentIsKeptToo
//	§4.9 an abort outranks an interrupt               TestTheFirstStopStandsButAnAbortOutranksAnInterrupt
//	§4.9 an interrupted run says why                  TestAnInterruptedRunSaysWhy
//	§5.2 the kinds of state writes                    TestStateWritesMergeInTheirOrder
//	§5.3 parallel writes merge in the order of calls  TestMergedStateIsWhatAMapWouldHold
//	§5.3 warnings of a merge                          TestMergingWarnsAndRespectsTheLimit
//	§5.4 a state above the limit names its keys       TestAStateAboveTheLimitNamesItsKeys
//	                                                  TestAFaultNamesAFewKeysOfMany
//	§6.1 a step is one write, its repetition none     TestACommitThatIsRepeatedAnswersAsBefore
//	                                                  TestTheEndOfARunIsRepeatedAfterTheNextRunWasClaimed
//	§6.2 C-1: calls, messages, checkpoint together    TestAStepSuspendsWithItsCallsInOneWrite
//	§6.3 a suspension has something to wait for       TestASuspensionNeedsSomethingToWaitFor
//	§6.4 rewind                                       TestARewoundSessionIsWhatItWasAndNumbersOn
//	                                                  TestALiveSessionIsNotTakenBack
//	§6.4 branch                                       TestABranchBeginsWhereTheCheckpointStands
//	§6.6 appending is safe at any time                TestMessagesAreAppendedAtAnyTime
//	                                                  TestMessagesThatAreAllThereAreNotAppendedAgain
//	§7.4 accepted, already_completed, late            TestAnAnswerFindsTheCallAsItIs
//	§7.4 unknown_tool_call                            TestAnAnswerToNoCallOfTheSessionIsRefused
//	§7.4 owner_not_continuable                        TestASessionThatHasEndedTakesNoAnswers
//	§7.4 many answers, one write, one continuation    TestAnswersThatComeTogetherContinueTheSessionOnce
//	                                                  TestOfManyAnswersNoneIsTakenWhenOneIsOfTheWrongKind
//	§7.5 a step consumes the answer that it read      TestAStepTakesOnlyTheAnswerThatItHasRead
//	§7.5 a batch goes on after its last answer        TestAnAnswerThatIsNotTheLastOneWaits
//	§7.6 deadlines                                    TestAPassedDeadlineAnswersAndContinuesAsAClientDoes
//	§7.6 a real answer replaces a timeout             TestARealAnswerTakesThePlaceOfATimeoutThatNoStepHasTaken
//	§7.7 a new message abandons the open calls        TestANewMessageAbandonsTheOpenCallsInTheSameWrite
//	§7.7 but takes the answers that come with it      TestAStartTakesItsAnswersBeforeItAbandonsTheRest
//	§7.8 a parent waits for all of its children       TestAParentWaitsForAllOfItsChildrenAndCalls
//	§7.8 the last child's end wakes the ancestors     TestTheLastChildToEndWakesItsParentAndTheParentTellsItsOwn
//	§7.8 an answered child tells its ancestors        TestASubmitTellsTheParentThatTheChildGoesOn
//	§7.9 no wake-up is lost                           TestAnswersThatWereFasterThanTheSuspensionContinueTheSession
//	                                                  TestAStopThatTheSuspendingStepDidNotSeeTakesEffectWithIt
//	                                                  TestWhateverIsSentASessionStaysSound
//	§8.1 a child is noted with its making             TestANewSubSessionIsNotedInItsParentByTheSameWrite
//	§8.1 a child's status is its own word             TestALocalChildSpeaksForItself
//	§8.1 nobody waits for a child that nobody made    TestAStepNotesNoLocalChildThatNobodyMade
//	§8.1 a child has one parent, which goes on        TestASessionHasTheParentThatItWasMadeWith
//	                                                  TestNothingBeginsBelowASessionThatHasFailed
//	§8.3 a remote child is a note                     TestARemoteChildIsNotedAndItsEndWakesTheParent
//	§13.1 the state is saved as a whole               TestTheWholeStateIsSavedOverWhatThereWas
//	§13.1 truncate                                    TestATruncatedConversationHasTheNewestCheckpointThatIsLeft
//	§13.3 usage outside of steps                      TestUsageOutsideOfStepsIsCountedOn
//	§13.4 the words of a memory                       TestATextIsFoundByItsWords
//	§13.5 every filter is a facet                     TestASessionIsFoundByEachOfItsProperties
//	                                                  TestRefacetingLeadsFromTheOldFacetsToTheNew
//	H1 a start rests on what its caller read          TestAStartExpectsWhatItsCallerHasRead
//	H2 a stop is a record of its run                  TestAStopOfALiveRunIsKeptWithTheRun
//	                                                  TestAStopNamesItsRun
//	                                                  TestASessionThatOnlyWaitsIsStoppedAtOnce
//	                                                  TestAStopThatIsRepeatedIsDone
//	H8 an answer fits the kind of its call            TestAnAnswerOfTheWrongKindIsRefused
//	H9 who continues                                  TestTheLastAnswerContinuesTheSessionInTheSameWrite
//	                                                  TestAnAnswerToALiveSessionIsForItsRun
//	                                                  TestTheLastAnswerToAStoppedSessionIsForWhoeverResumesIt
//	H10 late answers, kept once and told once         TestALateAnswerIsKeptOnceAndTheModelIsToldOnce
//	H11 a failed run drops its unanswered calls       TestAFailedRunTakesItsOpenCallsWithIt
//	H11 what it leaves holds nobody                   TestWhatAFailedRunLeftBehindHoldsNoLaterSuspension
//	                                                  TestARunMaySuspendAgainOnWhatIsLeft
//	H20 a foreign checkpoint is refused               TestAForeignCheckpointIsRefused
//	H20 truncated messages stay away                  TestMessagesThatWereTruncatedDoNotComeBack
//	H23 an end from outside fences the owner          TestAForcedEndLeavesTheOwnerStale
//	H26 a delayed retry waits for its time            TestADelayedRunIsNotClaimedBeforeItsTime
//	                                                  TestARunThatWasAskedToStopSinceItsClaimIsNotDelayed
//	H29 a request key starts one run                  TestARequestKeyStartsOneRunWhateverItStarts
//	H30 call ids are unique in the family             TestACallIdIsUsedOnceInAFamily
//	H31 deletion takes the local tree                 TestADeletedSessionTakesItsLocalTreeWithIt
//	H31 a child's location is fixed                   TestAChildStaysWhereItIs
//	                                                  TestARemoteSubSessionIsNotMadeHereUnderItsId
//	H33 an oversize state is refused by type          TestAStateAboveTheLimitNamesItsKeys
//	waiting: whatever ends a run begins the next      TestWhateverEndsASessionsWorkLetsTheNextRunBegin
//	waiting: a suspension does not                    TestASuspensionLetsNobodyBegin
//	waiting: a failed session takes them with it      TestWhoFailsASessionFromOutsideEndsThoseThatWait
//	waiting: sub-sessions of a failed run fail        TestARunThatFailsTakesItsChildrenWithItThoughAnotherOneBegins
//	waiting: the policies                             TestAPolicySaysWhatBecomesOfAStartWhileARunIsLive
//	waiting: the ids of their messages are taken      TestWhoAppendsMessagesKnowsThoseThatWait
//	waiting: no message is lost or appended twice     TestWhateverIsSentASessionStaysSound
//	waiting: a run begins without open calls          TestOpenCallsAreAbandonedWhenAWaitingRunBegins
//	rollback: what goes and what stays                TestWhatIsTakenBackIsGoneWithTheWriteThatEndsTheRun
//	                                                  TestTheResultsOfStepsThatHaveTakenNoAnswerGoWithTheirCalls
//	back: to a message of a user, with a new run      TestASessionIsTakenBackToAMessageAndNumbersOn
//	                                                  TestOnlyAMessageThatUsersSeeIsGoneBackTo
//	                                                  TestABusySessionIsNotGoneBackIn
//	back: its calls go, results of former ones stay   TestWhatIsBehindTheMessageGoesWithItsCalls
//	back: the state of the message                    TestTheStateOfAMessageIsThatOfItsRunOrOfTheCheckpointBefore
//	positions: no attempt has two owners              TestWhateverIsSentASessionStaysSound
//	positions: a step ends behind its attempts        TestACommitEndsItsStepAndTheRunThatEndsWithIt
//	positions: so does an end outside a step          TestARunThatEndsOutsideAStepEndsBehindTheAttemptsOfItsClaim
//	positions: going back                             TestWhoeverGoesBackStandsAtTheEndOfTheLastStepThatIsLeft
//	losses: who does not hold a run has lost it       TestARunThatItsExecutorDoesNotHoldIsCountedAsLost
//	state: kept writes read as the merged text        TestWhatIsKeptOfTheStateReadsAsTheMergedText
//	state: a small write is kept alone                TestAWriteThatIsSmallBesideTheStateIsKeptAlone
//	state: what stays as it is is not kept again      TestAStateThatStaysAsItIsIsNotKeptAgain
//	known: only what was shown or written             TestAClaimedSessionIsShownWithoutAReadOnlyWhatIsKnownOfIt
//	                                                  TestAStateThatWasNotReadIsNotKnown
//	                                                  TestNothingIsKnownOfASessionWhoseRunIsNotClaimed
package session
