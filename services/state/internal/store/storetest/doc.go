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
//	§2.4    A status is set only from those expected, and at the version expected → a status is compared and set in one
//	§2.4    A refusal tells what the same read saw → a status is compared and set in one
//	§2.4    The error is stored with the status → a status is compared and set in one
//	§2.4    What only a run may give cannot be set → a status that only a run gives cannot be set
//	§2.5    The version begins at 1, and each write of the state raises it → a session is made without a run
//	§2.5    Another version than expected fails the write → a state is written over, and merged into
//	§2.5    Resumes are counted with the start that they are → a session that has stopped is resumed and counts it
//	§2.6    A session that waits may be given up after its deadlines → a step that suspends shows all that it leaves at once
//	§5.3    Writes to different keys all survive → merges that come at once lose nothing
//	§5.3    Appends to one key follow each other in the order of the plan → results of one step are all recorded
//	§5.3    Writes that race are applied in order, with a warning → a step commits as a whole
//	§5.4    A state above the limit is refused, and nothing of it is written → a state above the limit is refused where it is written
//	§6.1    Messages, state, journal and checkpoint of a step are one write → a step commits as a whole
//	§6.1    A step that fails leaves nothing → a commit that repeats a message id writes nothing
//	§6.1    A repeated step is answered as before → a repeated commit is answered as before
//	§6.2    C-1: calls, ownership, messages and checkpoint come together → a step that suspends shows all that it leaves at once
//	§6.2    C-1 for who reads root and child meanwhile → a reader on another replica never sees half of a step
//	§6.3    A suspension stores where the session goes on, and until when → a step that suspends shows all that it leaves at once
//	§6.1    Readers see a committed step as it was → committed steps are read in pages
//	§6.4    Checkpoints are read by id, as the newest, and in pages → checkpoints are listed in pages, the newest first
//	§6.4    A host branches off at a checkpoint → a session branches off at a checkpoint
//	§6.4    A host goes back to a checkpoint → a session goes back to a checkpoint
//	§6.5    The journal of a step goes from owner to owner → a silent executor's run goes to another with its journal
//	§6.6    Appends at once lose nothing, and places are dense → messages that are appended at once are all there, each at a place of its own
//	§6.6    A step is counted once → of commits of one step one is written
//	§7.4    A call is found by any session of the family → a call id is used once in a family
//	§7.4    Answers that come together are one write → answers that come together continue a session once
//	§7.4    What cannot be taken says why → answers come too late, each in its own way
//	§7.4    The first answer wins → of answers that come at once one is taken
//	§7.4    A second answer changes nothing → the first answer of a client stands
//	§7.4    Nobody's call is not found → an answer of the wrong kind stores nothing
//	§7.5    An answer becomes a tombstone with the step that takes it → the last answer continues the session
//	§7.5    A batch goes on after its last answer only → answers to all calls of a step at once continue it once
//	§7.6    Overdue calls are found by their deadline → overdue calls are found, the longest overdue first
//	§7.6    A deadline answers the call → a deadline that passes answers the call and continues the session
//	§7.6    A real answer takes the place of a timeout → a real answer takes the place of a timeout that no step has taken
//	§7.6    A later one is kept once and told once → an answer that comes after a timeout was taken is kept once and told once
//	§7.7    A new message abandons the open calls → a new message abandons the open calls
//	§7.8    A parent waits for its children, and goes on with the last → the end of the last child continues its parent
//	§7.8    An answer wakes the ancestors one after the other → the answer to a grandchild's call goes up to the root as it ends
//	§7.8    A parent that fails takes its waiting children with it → a parent that fails takes its children with it
//	§13.1   A session is created once → of creates on two replicas one makes the session
//	§13.1   Every field of a session comes back → every field of a session comes back
//	§13.1   Every field of a run comes back → every field of a run comes back
//	§13.1   Every field of a call comes back → every field of a call comes back
//	§13.1   Every field of a sub-session comes back → every field of a sub-session comes back
//	§13.1   Messages are appended, paged, counted and truncated → the end of a conversation is taken back
//	§13.1   The state is overwritten, or merged into → a state is written over, and merged into
//	§13.1   References to sub-sessions are added and updated → a sub-session's location never changes
//	§13.3   Entries of every kind are recorded with step or beside it → usage beside steps is recorded behind what there is
//	§13.3   The usage of a step that did not end is kept → a run ends between steps
//	§13.3   Entries are listed by kind → usage is listed in the order of its recording, by kind and in pages
//	§13.3   Sums by any condition, over families and buckets → usage adds up like a plain sum
//	§13.4   Memories are added, got, searched and deleted → memories are recalled by their words like from a plain list
//	§13.4   Entities are listed with their counts → entities are listed with their counts in pages
//	§13.5   Each filter, alone and with others → sessions are found by what they have
//	§13.5   Pages by offset → pages by offset give each session once
//	§13.5   Pages by cursor, whatever happens meanwhile → pages by cursor give each session once while others come and go
//	§13.5   A change of a session is found at once → a list follows every change of a session
//	§14.2   Several processes may migrate at once → TestSeveralProcessesMayBootAtOnce
//	§18     Expired sessions are found by index, and end once → expired sessions are found, the longest expired first, and end once
//	§18     An expired session takes its calls and children with it → a session that expires while it waits loses its calls, and its parent learns of it
//	H1      A run starts only on what its caller has seen → a run starts only while nothing has changed since its caller looked
//	H2      A stop is durable and belongs to one run → a stop stays with the run that it is meant for
//	H2      An executor is told of stops → an executor is told of the stops of its runs
//	H8      An answer fits the kind of its call → an answer of the wrong kind stores nothing
//	H9      An accepted answer says who goes on → the last answer continues the session
//	H10     A late answer is not lost → an answer that comes after a timeout was taken is kept once and told once
//	H9      An interrupted session is resumed by who has answered → a session that waits is stopped at once
//	H11     A run that fails drops its open calls, and no others → a run that fails takes its open calls with it
//	H20     A checkpoint of another session is refused → a checkpoint of another session is not found
//	H20     Counts are right after messages were taken back → the end of a conversation is taken back
//	H20     Going back keeps what is left whole → every checkpoint that is left after going back has its state
//	H29     A repeated request starts nothing → starts with one request key make one run
//	H29     A request key belongs to one session → a request key belongs to its session
//	H30     Call ids are unique in the family → a call id is used once in a family
//	H31     Deleting a parent deletes its tree → a tree goes as a whole
//	H31     Nothing of a session is left behind → a session goes with everything that belongs to it
//	H31     The location of a sub-session is fixed → a sub-session's location never changes
//	H33     An oversized state is refused with the keys and the limit → a state above the limit is refused where it is written
//	H36     A migration is made once → TestSeveralProcessesMayBootAtOnce
//
// Rules of our own that the sections imply:
//
//	tenants  The same ids in two tenants never meet → the same ids in two tenants never meet
//	tenants  No method shows a stranger anything → every method that takes a tenant is held against a stranger
//	batches  Commands that are written together do not feel each other → each command of a crowd gets its own answer
//	batches  A command is written as a whole or not at all → a command whose caller leaves is written as a whole or not at all
//	batches  Commands on one session are applied one after the other → commands on one session are all applied, one after the other
//	schema   The schema repeats the invariants of the heart → the schema repeats what the heart promises
//	states   A small change of a large state costs little → a small write to a large state is kept beside it
//	owners   A former owner writes nothing → a silent executor's run goes to another with its journal
//	waiting  A waiting run begins with the end of the one before → a run that waits begins with the end of the one before
//	waiting  Whatever ends a run lets the next begin → whatever ends a run lets the next one begin
//	waiting  What fails a session from outside ends them → a session that is failed or given up from outside takes those that wait with it
//	waiting  A suspended session keeps them waiting → those that wait bear with a suspension
//	waiting  No message is swallowed, none appended twice → no message that is sent to a busy session is lost or appended twice
//	waiting  Nor by a crash → what waits is still there after a crash
//	waiting  A repeated request finds the run that waits → a repeated request key finds the run that waits
//	waiting  Only so many wait → only so many runs wait
//	waiting  A run begins without open calls → calls that are open when a run that waited begins are abandoned
//	rollback What the live run has done is taken back → a rollback takes back what the live run has done, and leaves what it was sent
//	rollback Whatever its end → a rollback follows every end of the live run
//	rollback No call runs twice, and each that stands has its result → answers that were taken by a run that is taken back stay taken, and their results stay
//	rollback Late answers are told again → late answers that a run that is taken back has told of are told again
//	sends    A message that is sent twice is answered once → a message that is sent twice gets the run of the first
//	retries  Only the step that has failed is taken back → a retry goes back to where the run was good
//	retries  A run that has failed at once is begun again → a retry of a first step takes the run back but for its messages
//	retries  What a tool has done is not done again → a retry takes nothing back when a tool has run, or no step is to be had
//	branches A branch begins with a run in one → a run begins in a branch of another session
//	resumes  Going back, messages and writes come with the resume → a resume at a checkpoint brings messages and writes in one
//	starts   The answers that come with a start are taken before the rest is abandoned → a start takes the answers that it brings before it abandons the rest
//	back     A message is answered again from the state of then → a start takes the conversation back to a message and answers it again
//	back     Another message takes its place → a start puts another message in the place of one
//	back     What is behind it goes with its calls → the calls behind the message go, and answers find them unknown
//	back     No call that stays loses its result → the results of calls before the message stay
//	back     From any rest, never from under a run → a session is taken back whatever it is, but not while it is busy
//	back     A state that is not known is not guessed → a branch is taken back to where its state is known
//	races    One answer is taken, and it is the one that is read → of submits on two replicas, alone or with others, one is taken
//	races    An answer or its abandonment → of an answer and a message that abandons its call one is taken
//	races    An answer or its deadline → an answer that comes with the deadline is read, or told as late
//	races    An answer or the session's expiry → a session is answered or it expires
//	races    An answer or the way back → a call is answered or its session is taken back
//	races    Equal requests are one → of equal starts on two replicas one starts, whatever it brings
//	usage    What was spent without a plan is not lost → what was spent before a claim is given back is recorded once
//	stops    What was aborted does not go on → a session that was aborted goes on with a message only
//	back     An id of a call that was taken back is free again → a call that was taken back is unknown, and another may have its id
//	back     The newest checkpoint is one that there is → the newest checkpoint of a session is one that there is
//	drain    A step may suspend on the calls of an earlier one → a step suspends on calls that an earlier one has left open
//	drain    A plan need not be a message of its step → a step whose plan is none of its messages commits the writes of its calls in the plan's order
//	owners   No two claims of one run → claimers on two replicas never share a run
package storetest
