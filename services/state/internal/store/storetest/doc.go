// Package storetest holds every store to one behaviour: that of the contract's
// comments, through the real commands of package session.
//
// Run is the suite: one test for each promise, each in a store of its own.
// Machine compares a store with a plain model over random histories. What a
// test cannot see through the interface of a store it asks of the Subject.
//
// # Rules
//
// Where the rules of the specification (spec/behaviour.md) are proven: the
// section or hardening delta, the rule, and behind the arrow the test of the suite,
// or the Go test of the state service. TestEveryRuleNamesATestThatThereIs keeps
// the table true.
//
//	§2.4    A status is set only from those expected, and at the version expected → a status is compared and set atomically
//	§2.4    A refusal tells what the same read saw → a status is compared and set atomically
//	§2.4    The error is stored with the status → a status is compared and set atomically
//	§2.4    What only a run may give cannot be set → a status that only a run can reach cannot be set
//	§2.5    The version begins at 1, and each write of the state raises it → a session is created without a run
//	§2.5    Another version than expected fails the write → a state is overwritten and merged
//	§2.5    Resumes are counted with the start that they are → resuming an interrupted session counts as a resume
//	§2.6    A session that waits may be given up after its deadlines → a suspending step is visible as a whole
//	§5.3    Writes to different keys all survive → concurrent merges lose nothing
//	§5.3    Appends to one key follow each other in the order of the plan → concurrent results of a step are all recorded
//	§5.3    Writes that race are applied in order, with a warning → a step commits as a whole
//	§5.4    A state above the limit is refused, and nothing of it is written → a state above the limit is rejected
//	§6.1    Messages, state, journal and checkpoint of a step are one write → a step commits as a whole
//	§6.1    A step that fails leaves nothing → a commit that repeats a message id writes nothing
//	§6.1    A repeated step is answered as before → a repeated commit returns the same answer
//	§6.2    C-1: calls, ownership, messages and checkpoint come together → a suspending step is visible as a whole
//	§6.2    C-1 for who reads root and child meanwhile → a reader on another replica never sees a partial step
//	§6.3    A suspension stores where the session goes on, and until when → a suspending step is visible as a whole
//	§6.1    Readers see a committed step as it was → committed steps are read in pages
//	§6.4    Checkpoints are read by id, as the newest, and in pages → checkpoints are listed in pages, the newest first
//	§6.4    A host branches off at a checkpoint → a session is branched at a checkpoint
//	§6.4    A host goes back to a checkpoint → a session is rewound to a checkpoint
//	§6.5    The journal of a step goes from owner to owner → another executor gets a silent executor's run with its journal
//	§6.6    Appends at once lose nothing, and places are dense → concurrent appends each get their own ordinal
//	§6.6    A step is counted once → concurrent commits of a step: one is written
//	§7.4    A call is found by any session of the family → call ids are unique in a family
//	§7.4    Answers that come together are one write → a batch of answers continues a session once
//	§7.4    What cannot be taken says why → late answers report why they are late
//	§7.4    The first answer wins → concurrent answers to a call: one is accepted
//	§7.4    A second answer changes nothing → a client's first answer wins
//	§7.4    Nobody's call is not found → an answer of the wrong kind stores nothing
//	§7.5    An answer becomes a tombstone with the step that takes it → the last answer continues the session
//	§7.5    A batch goes on after its last answer only → concurrent answers to all calls of a step continue it once
//	§7.6    Overdue calls are found by their deadline → overdue calls are listed, the longest overdue first
//	§7.6    A deadline answers the call → a missed deadline answers the call and continues the session
//	§7.6    A real answer takes the place of a timeout → an answer replaces a timeout that no step has consumed
//	§7.6    A later one is kept once and told once → an answer after a consumed timeout is stored once and reported once
//	§7.7    A new message abandons the open calls → a new message abandons the open calls
//	§7.8    A parent waits for its children, and goes on with the last → the end of the last child continues its parent
//	§7.8    An answer wakes the ancestors one after the other → the answer to a grandchild's call continues its ancestors one by one
//	§7.8    A parent that fails takes its waiting children with it → a failed parent fails its children
//	§13.1   A session is created once → concurrent creates on two replicas: one creates the session
//	§13.1   Every field of a session comes back → every field of a session is stored
//	§13.1   Every field of a run comes back → every field of a run is stored
//	§13.1   Every field of a call comes back → every field of a call is stored
//	§13.1   Every field of a sub-session comes back → every field of a sub-session is stored
//	§13.1   Messages are appended, paged, counted and truncated → the end of a conversation can be truncated
//	§13.1   The state is overwritten, or merged into → a state is overwritten and merged
//	§13.1   References to sub-sessions are added and updated → a sub-session's location never changes
//	§13.3   Entries of every kind are recorded with step or beside it → usage outside steps is appended to the recorded usage
//	§13.3   The usage of a step that did not end is kept → a run ends between steps
//	§13.3   Entries are listed by kind → usage is listed by kind, in pages, in the order of recording
//	§13.3   Sums by any condition, over families and buckets → usage sums match a reference list
//	§13.4   Memories are added, got, searched and deleted → recall matches a reference list
//	§13.4   Entities are listed with their counts → entities are listed with their counts in pages
//	§13.5   Each filter, alone and with others → sessions are found by their properties
//	§13.5   Pages by offset → offset pages contain each session once
//	§13.5   Pages by cursor, whatever happens meanwhile → cursor pages contain each session once during concurrent changes
//	§13.5   A change of a session is found at once → a list reflects every change of a session
//	§14.2   Several processes may migrate at once → TestSeveralProcessesMayBootAtOnce
//	§18     Expired sessions are found by index, and end once → expired sessions are listed, the longest expired first, and end once
//	§18     An expired session takes its calls and children with it → expiry of a suspended session drops its calls and is reported to its parent
//	H1      A run starts only on what its caller has seen → a start is rejected when the session has changed since it was read
//	H2      A stop is durable and belongs to one run → a stop applies to its own run
//	H2      An executor is told of stops → an executor receives the stops of its runs
//	H8      An answer fits the kind of its call → an answer of the wrong kind stores nothing
//	H9      An accepted answer says who goes on → the last answer continues the session
//	H10     A late answer is not lost → an answer after a consumed timeout is stored once and reported once
//	H9      An interrupted session is resumed by who has answered → a suspended session is stopped at once
//	H11     A run that fails drops its open calls, and no others → a failed run drops its open calls
//	H20     A checkpoint of another session is refused → a checkpoint of another session is not found
//	H20     Counts are right after messages were taken back → the end of a conversation can be truncated
//	H20     Going back keeps what is left whole → every checkpoint that remains after a rewind keeps its state
//	H29     A repeated request starts nothing → concurrent starts with one request key create one run
//	H29     A request key belongs to one session → a request key belongs to its session
//	H30     Call ids are unique in the family → call ids are unique in a family
//	H31     Deleting a parent deletes its tree → deleting a session deletes its sub-sessions
//	H31     Nothing of a session is left behind → deleting a session deletes all its rows
//	H31     The location of a sub-session is fixed → a sub-session's location never changes
//	H33     An oversized state is refused with the keys and the limit → a state above the limit is rejected
//	H36     A migration is made once → TestSeveralProcessesMayBootAtOnce
//
// Rules of our own that the sections imply:
//
//	tenants  The same ids in two tenants never meet → equal ids in two tenants stay separate
//	tenants  No method shows a stranger anything → every method with a tenant is tested with another tenant
//	batches  Commands that are written together do not feel each other → each of many concurrent commands gets its own result
//	batches  A command is written as a whole or not at all → a command with a cancelled caller is written completely or not at all
//	batches  Commands on one session are applied one after the other → concurrent commands on one session are applied one after the other
//	schema   The schema repeats the invariants of the heart → the schema enforces the invariants of the heart
//	states   A small change of a large state costs little → a small write to a large state is stored separately
//	owners   A former owner writes nothing → another executor gets a silent executor's run with its journal
//	waiting  A waiting run begins with the end of the one before → a waiting run begins when the previous one ends
//	waiting  Whatever ends a run lets the next begin → every end of a run starts the next one
//	waiting  What fails a session from outside ends them → failing a session from outside ends its waiting runs
//	waiting  A suspended session keeps them waiting → waiting runs survive a suspension
//	waiting  No message is swallowed, none appended twice → no message to a busy session is lost or appended twice
//	waiting  Nor by a crash → waiting runs survive a crash
//	waiting  A repeated request finds the run that waits → a repeated request key returns the waiting run
//	waiting  Only so many wait → the number of waiting runs is limited
//	waiting  A run begins without open calls → calls that are open when a waiting run begins are abandoned
//	rollback What the live run has done is taken back → a rollback removes the live run's work and keeps the messages sent to it
//	rollback Whatever its end → a rollback applies after every end of the live run
//	rollback No call runs twice, and each that stands has its result → answers that a rolled-back run has consumed stay consumed with their results
//	rollback Late answers are told again → late answers that a rolled-back run has reported are reported again
//	sends    A message that is sent twice is answered once → a resent message returns the first run
//	retries  Only the step that has failed is taken back → a retry rewinds to the last valid checkpoint
//	retries  A run that has failed at once is begun again → a retry of a failed first step keeps only the run's messages
//	retries  What a tool has done is not done again → a retry keeps a step whose tools have run
//	branches A branch begins with a run in one → a branch starts with a run
//	resumes  Going back, messages and writes come with the resume → a resume at a checkpoint appends messages and writes
//	starts   The answers that come with a start are taken before the rest is abandoned → a start applies its answers before it abandons the other calls
//	back     A message is answered again from the state of then → a regenerate rewinds to a message and answers it again
//	back     Another message takes its place → an edit replaces a message
//	back     What is behind it goes with its calls → calls behind the message are deleted and unknown to answers
//	back     No call that stays loses its result → results of calls before the message remain
//	back     From any rest, never from under a run → a session is rewound in every status but active
//	back     A state that is not known is not guessed → a branch is rewound only to where its state is known
//	races    One answer is taken, and it is the one that is read → concurrent submits on two replicas: one is accepted
//	races    An answer or its abandonment → an answer races a message that abandons its call
//	races    An answer or its deadline → an answer races its deadline
//	races    An answer or the session's expiry → an answer races the session's expiry
//	races    An answer or the way back → an answer races a rewind of the session
//	races    Equal requests are one → equal starts on two replicas start one run
//	usage    What was spent without a plan is not lost → usage before a release is recorded once
//	stops    What was aborted does not go on → an aborted session continues only with a message
//	back     An id of a call that was taken back is free again → a removed call is unknown and its id is free
//	back     The newest checkpoint is one that there is → a session's newest checkpoint always exists
//	drain    A step may suspend on the calls of an earlier one → a step suspends on open calls of an earlier step
//	drain    A plan need not be a message of its step → a plan without a message applies the writes of its calls in order
//	owners   No two claims of one run → claimers on two replicas never share a run
package storetest
