package session

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// rules lists the rules of the state machine and the tests that prove them. § is a section of
// the specification (behaviour.md), H a hardening delta in its §19. Package storetest proves
// the rules about stored rows.
const rules = `
§2.3   the status of a session decides whether a run may start   TestTheStatusOfASessionDecidesWhetherARunMayStart
§2.3   a paused, interrupted or failed session can be resumed    TestAStoppedSessionCanBeResumed
§2.3   a suspended session: only when no call is open            TestASuspendedSessionIsResumedOnlyWhenNoCallIsOpen
§2.3   a created session has no run                              TestACreatedSessionIsPausedAndHasNoRun
§2.3   expiry fails sessions that have not ended                 TestASessionExpiresWhenItIsDue
§2.3   a failed parent fails its children                        TestAllDescendantsOfAFailedSessionFail
§2.4   SetStatus compares, and returns the status found          TestSetStatusComparesAndReturnsTheStatusFound
§2.4   only some statuses can be set                             TestOnlyAHostsStatusesCanBeSet
§2.5   another version is a typed conflict                       TestAStepOfAnotherVersionIsRefused TestAWriteOfAnotherVersionIsRefused
§2.6   the expiry covers the deadlines of the calls              TestAStepSuspendsWithItsCallsInOneWrite
§2.6   a session that awaits a child does not expire            TestAStepBeginsItsChildrenAndWaitsForThem
§4.9   an abort outranks an interrupt                            TestTheFirstStopWinsButAnAbortOutranksAnInterrupt
§4.9   an interrupted session has the reason                     TestAnInterruptedSessionHasTheReason
§5.2   kinds of state writes                                     TestStateWritesMergeInTheirOrder
§5.3   parallel writes merge in the order of the calls           TestMergedStateIsWhatAMapWouldHold
§5.3   warnings of a merge                                       TestMergingWarnsAndRespectsTheLimit
§5.4   a state above the limit names its keys                    TestAStateAboveTheLimitNamesItsKeys TestAFaultNamesAFewKeysOfMany
§6.1   a step is one write, its repeat none                      TestARepeatedCommitReturnsTheFirstAnswer TestTheEndOfARunCanBeRepeatedAfterTheNextClaim
§6.2   C-1: calls, messages and checkpoint in one write          TestAStepSuspendsWithItsCallsInOneWrite
§6.3   a suspension waits for something                          TestASuspensionNeedsSomethingToWaitFor
§6.4   rewind                                                    TestARewindRestoresTheSessionAndKeepsCountingSteps TestALiveSessionCannotBeRewound
§6.4   branch                                                    TestABranchBeginsAtTheCheckpoint
§6.6   messages can be appended at any time                      TestMessagesAreAppendedAtAnyTime TestARepeatedAppendWritesNothing
§7.4   accepted, already_completed, late                         TestTheStateOfACallDecidesOnAnAnswer
§7.4   unknown_tool_call                                         TestAnAnswerToAForeignCallIsRefused
§7.4   owner_not_continuable                                     TestAnEndedSessionTakesNoAnswers
§7.4   many answers, one write, one continuation                 TestAnswersInOneRequestContinueTheSessionOnce TestOneAnswerOfTheWrongKindRefusesAll
§7.5   a step consumes the answer that it has read               TestAStepConsumesOnlyTheAnswerThatItHasRead
§7.5   the last answer continues the session                     TestAnAnswerBeforeTheLastContinuesNothing
§7.6   deadlines                                                 TestAPassedDeadlineAnswersTheCallAndContinuesTheSession
§7.6   a real answer replaces a timeout                          TestARealAnswerReplacesAnUnconsumedTimeout
§7.7   a new message abandons the open calls                     TestANewMessageAbandonsTheOpenCallsInTheSameWrite
§7.7   answers in the request come first                         TestASendAppliesItsAnswersBeforeItAbandonsTheRest
§7.8   a parent waits for all of its children                    TestAParentWaitsForAllOfItsChildrenAndCalls
§7.8   the last child's end continues the ancestors              TestTheEndOfTheLastChildContinuesItsParentAndIsReportedUp
§7.8   an answered child reports to its ancestors                TestASubmitReportsTheContinuedChildToItsParent
§7.9   no wake-up is lost                                        TestAnswersBeforeTheSuspensionContinueTheSession TestAStopDuringTheSuspendingStepTakesEffectWithIt TestInvariantsHoldUnderRandomCommands
§8.1   a child is recorded when it is created                    TestANewChildIsRecordedInItsParentInTheSameWrite
§8.1   a local child reports its own status                      TestOnlyALocalChildReportsItsOwnStatus
§8.1   no local child is recorded without a session              TestAStepCannotRecordALocalChildWithoutASession
§8.1   a child is created with the call that it answers             TestAStepBeginsItsChildrenAndWaitsForThem TestACallOfASubAgentNeedsAChild
§8.1   only a child answers the call of a sub-agent              TestOnlyItsChildAnswersTheCallOfASubAgent TestACallToAChildThatHasEndedIsAnsweredAtOnce
§7.8   children at work make their parent busy                   TestASessionThatWaitsForWorkIsBusy TestAMessageWaitsForChildrenAtWorkAndAbandonsTheRest
§7.8   the policies for children at work                         TestAMessageThatEndsTheWorkBeginsWhenTheChildrenHaveStopped TestARollbackUndoesTheRunThatWaitsForWork TestAChildWhoseEndEndsTheWorkKeepsItsStep
§7.8   the interrupt of the last working child travels up        TestASessionIsInterruptedWithItsLastWorkingChild
§7.8   an interrupt and a resume travel down                     TestAnInterruptTravelsDownAndAResumeFollowsIt TestAStopDuringTheStepReachesItsChildren TestAStopDuringTheStepBeginsNoChildrenIfAMessageWaits
§7.6   a call that is closed ends its child                      TestACallThatAnotherAnswerClosesEndsItsChild
§8.2   a companion answers all calls that wait for it            TestACompanionAnswersAllCallsThatWaitForIt
§8.2   a suspended companion answers its parent                  TestACompanionThatWaitsForAClientAnswersItsParent
§8.1   the parent of a child is fixed                            TestTheParentOfASessionIsFixed TestNothingBeginsBelowASessionThatHasFailed
§8.3   a remote child is a record                                TestARemoteChildIsRecorded
§13.1  the state is saved as a whole                             TestSaveStateReplacesTheWholeState
§13.1  truncate                                                  TestATruncatedConversationHasTheNewestRemainingCheckpoint
§13.3  usage outside of steps                                    TestUsageOutsideOfStepsIsAppended
§13.4  the words of a memory                                     TestATextIsFoundByItsWords
§13.5  every filter is a facet                                   TestASessionIsFoundByEachOfItsProperties TestTheDifferenceOfFacetsLeadsFromTheOldToTheNew
H1     a request expects a state of the session                  TestARequestExpectsTheSessionAsItsCallerHasReadIt
H2     a stop is stored with its run                             TestAStopOfALiveRunIsStoredWithTheRun TestAStopNamesItsRun TestAnIdleSessionIsStoppedAtOnce TestARepeatedStopIsDone
H8     an answer fits the kind of its call                       TestAnAnswerOfTheWrongKindIsRefused
H9     who continues after an answer                             TestTheLastAnswerContinuesTheSessionInTheSameWrite TestAnAnswerToALiveSessionGoesToItsRun TestTheLastAnswerToAStoppedSessionNeedsAResume
H10    a late answer is stored and reported once                 TestALateAnswerIsStoredAndReportedOnce
H11    a failed run drops its open calls                         TestAFailedRunDropsItsOpenCalls
H11    no suspension waits for an orphan                         TestNoLaterSuspensionWaitsForAnOrphanedCall TestARunMaySuspendOnOrphanedCallsAlone
H20    a foreign checkpoint is refused                           TestAForeignCheckpointIsRefused
H20    truncated messages stay deleted                           TestTruncatedMessagesDoNotComeBack
H23    a forced end makes the owner stale                        TestAForcedEndMakesTheOwnerStale
H26    a delayed run is claimed when it is due                   TestADelayedRunIsNotClaimedBeforeItsTime TestARunStoppedSinceItsClaimIsNotDelayed
H29    a request key starts one run                              TestARequestKeyStartsOneRun
H30    call ids are unique in the family                         TestACallIDIsUniqueInAFamily
H31    deletion includes the local tree                          TestADeletedSessionTakesItsLocalTreeWithIt
H31    the location of a child is fixed                          TestTheLocationOfAChildIsFixed TestTheIDOfARemoteChildCannotBeCreatedLocally
H33    an oversize state is a typed fault                        TestAStateAboveTheLimitNamesItsKeys
waits  whatever ends the work begins the next run                TestEveryEndOfTheWorkStartsTheNextWaitingRun
waits  a suspension does not                                     TestASuspensionStartsNoWaitingRun
waits  a session failed from outside ends its waiting runs       TestAForcedFailureEndsTheWaitingRuns
waits  the children of a failed run fail                         TestAFailedRunFailsItsChildrenEvenIfAnotherRunBegins
waits  the policies                                              TestTheBusyPolicyDecidesOnASendWhileARunIsLive
waits  message ids of waiting runs are taken                     TestNewMessagesMayNotUseIDsOfWaitingRuns
waits  no message is lost or appended twice                      TestInvariantsHoldUnderRandomCommands
waits  a waiting run begins without open calls                   TestOpenCallsAreAbandonedWhenAWaitingRunBegins
undo   what is deleted and what stays                            TestAnUndoIsWrittenWithTheEndOfTheRun TestAnUndoDeletesTheResultsOfItsOwnCalls
rewind to a user message, with a new run                         TestARewindToAMessageKeepsCountingTurnsAndSteps TestOnlyVisibleUserMessagesCanBeRewoundTo TestABusySessionCannotBeRewoundToAMessage
rewind calls are deleted, results of earlier ones stay           TestAMessageRewindDeletesLaterMessagesWithTheirCalls
rewind the state of the message                                  TestAMessageRewindRestoresTheStateOfItsRunOrTheCheckpointBefore
place  no attempt has two owners                                 TestInvariantsHoldUnderRandomCommands
place  a step ends behind its attempts                           TestACommitEndsItsStepAndTheRunThatEndsWithIt
place  an end outside of a step, too                             TestARunThatEndsOutsideAStepEndsBehindTheAttemptsOfItsClaim
place  after a rewind                                            TestARewindMovesThePositionToTheLastRemainingStep
claim  a run that its executor does not have is lost             TestARunUnknownToItsExecutorIsCountedAsLost
state  stored writes read as the merged text                     TestTheStoredStateReadsAsTheMergedText
state  a small write is stored alone                             TestASmallWriteIsStoredWithoutTheWholeState
state  an unchanged state is not stored                          TestAnUnchangedStateIsNotStored
cache  only read or written rows are cached                      TestACachedSessionAnswersOnlyNeedsThatItKnows TestAnUnreadStateIsNotCached TestACachedSessionKnowsItsCalls TestOnlyClaimedSessionsAreCached
`

func TestTheTestsOfTheRulesExist(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*_test.go")
	must(t, err)
	var source strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		source.Write(text)
	}
	for _, name := range regexp.MustCompile(`Test\w+`).FindAllString(rules, -1) {
		if !strings.Contains(source.String(), "func "+name+"(") {
			t.Errorf("there is no test %s", name)
		}
	}
}
