// Package storetest is the conformance suite of the stores. It runs the commands of package
// session against a store.
//
// Run runs the suite: one case per promise that only a store can break, such as transactions, isolation, indexes, pages,
// recovery and deletion, each in its own store. RunScenarios plays the scenarios of package scenariotest, which prove the
// rules. RunModel compares a store with a reference model over random histories. A Subject gives the suite access beyond
// the interface of a store.
//
// # Rules of the specification
//
// The table names the case, the scenario, or the Go test of a store, that proves a rule of spec/behaviour.md.
// Rules are listed by section or hardening delta. TestEveryRuleNamesAnExistingTest checks the
// table. The suite has further cases for rules that the sections imply.
//
//	§2.4    The expected statuses and version are compared → A status is set if the session has an expected one
//	§2.4    A refusal returns the values it has compared → A status is set if the session has an expected one
//	§2.4    The error is stored with the status → A status is set if the session has an expected one
//	§2.4    Active and suspended cannot be set → A status that only a run can reach is not set by a host
//	§2.5    The version begins at 1, and each state write raises it → a session is created without a run
//	§2.5    A write with another expected version fails → a state is overwritten and merged
//	§2.5    A resume is counted → A session is resumed after every end but a completion
//	§2.6    A suspended session expires after its deadlines → a suspending step is visible as a whole
//	§5.3    Concurrent writes to different keys survive → concurrent merges lose nothing
//	§5.3    Appends to one key follow the order of the plan → concurrent results of a step are all recorded
//	§5.3    Conflicting writes are applied in order, with a warning → a step commits as a whole
//	§5.4    A state above the limit is rejected unwritten → a state above the limit is rejected
//	§6.1    Messages, state, journal and checkpoint are one write → a step commits as a whole
//	§6.1    A failed commit writes nothing → A step that repeats a message id writes nothing
//	§6.1    A repeated commit is idempotent → a repeated commit returns the same answer
//	§6.1    Readers see a committed step unchanged → committed steps are read in pages
//	§6.2    C-1: calls, ownership, messages and checkpoint are one write → a suspending step is visible as a whole
//	§6.2    C-1 for concurrent readers of root and child → a reader on another replica never sees a partial step
//	§6.3    A suspension stores its step and expiry → a suspending step is visible as a whole
//	§6.4    Checkpoints are read by id, as the newest, and in pages → checkpoints are listed in pages, the newest first
//	§6.4    A host branches at a checkpoint → a session is branched at a checkpoint
//	§6.4    A host rewinds to a checkpoint → A session is rewound to a checkpoint, and its steps keep counting
//	§6.5    The next owner gets the journal → another executor gets a silent executor's run with its journal
//	§6.6    Concurrent appends get dense ordinals → concurrent appends each get their own ordinal
//	§6.6    A step is counted once → concurrent commits of a step: one is written
//	§7.4    Any session of the family finds a call → call ids are unique in a family
//	§7.4    A batch of answers is one write → Answers in one request continue the session once
//	§7.4    A refused answer has a reason → Late answers tell why they are late
//	§7.4    The first answer wins → concurrent answers to a call: one is accepted
//	§7.4    A second answer changes nothing → A client's first answer wins
//	§7.4    An unknown call is not found → An answer of the wrong kind stores nothing
//	§7.5    A consumed answer becomes a tombstone → The last answer continues the session, and the next step consumes the answers
//	§7.5    The last answer of a batch continues it → concurrent answers to all calls of a step continue it once
//	§7.6    Overdue calls are found by deadline → overdue calls are listed, the longest overdue first
//	§7.6    A deadline answers the call → A passed deadline answers the call and continues the session
//	§7.6    An answer replaces a pending timeout → An answer replaces a timeout that no step has consumed
//	§7.6    A late answer is stored and reported once → An answer after a consumed timeout is stored once and reported once
//	§7.7    A new message abandons the open calls → A new message abandons the open calls
//	§7.8    A parent continues after its last child → The end of the last child continues its parent
//	§7.8    An answer continues the ancestors one by one → The answer to a grandchild's call continues its ancestors one by one
//	§7.8    A failed parent fails its suspended children → A failed parent fails its children
//	§13.1   A session is created once → concurrent creates on two replicas: one creates the session
//	§13.1   A session has all its fields → every field of a session is stored
//	§13.1   A run has all its fields → every field of a run is stored
//	§13.1   A call has all its fields → every field of a call is stored
//	§13.1   A sub-session has all its fields → every field of a sub-session is stored
//	§13.1   Messages are appended, paged, counted and truncated → The end of a conversation can be truncated, and the ids in it are free
//	§13.1   The state is overwritten and merged → a state is overwritten and merged
//	§13.1   References to sub-sessions are added and updated → Where a child is stored never changes
//	§13.3   Usage of every kind is recorded in and outside steps → usage outside steps is appended to the recorded usage
//	§13.3   The usage of an uncommitted step is stored → The end of a run between steps can be repeated
//	§13.3   Usage is listed by kind → usage is listed by kind, in pages, in the order of recording
//	§13.3   Usage is summed by any condition, family and bucket → usage sums match a reference list
//	§13.4   Memories are added, read, searched and deleted → recall matches a reference list
//	§13.4   Entities are listed with their counts → entities are listed with their counts in pages
//	§13.5   Filters work alone and combined → sessions are found by their properties
//	§13.5   Pages by offset → offset pages contain each session once
//	§13.5   Pages by cursor, during concurrent changes → cursor pages contain each session once during concurrent changes
//	§13.5   A list is consistent with the last write → a list reflects every change of a session
//	§14.2   Several processes may migrate concurrently → TestSeveralProcessesMayBootAtOnce
//	§18     Expired sessions are found by index, and end once → expired sessions are listed, the longest expired first, and end once
//	§18     An expired session ends its calls and children → The expiry of a suspended child drops its calls and answers its parent
//	H1      A start compares the session with what its caller has read → A request is refused when the session has changed since it was read
//	H2      A stop is durable and belongs to one run → A stop applies to its own run
//	H2      An executor receives stops → an executor receives the stops of its runs
//	H8      An answer has the kind of its call → An answer of the wrong kind stores nothing
//	H9      An accepted answer names the next run → The last answer continues the session, and the next step consumes the answers
//	H9      After an interrupt, the caller of the last answer resumes → A suspended session is interrupted at once, and keeps its calls
//	H10     A late answer is not lost → An answer after a consumed timeout is stored once and reported once
//	H11     A failed run drops its open calls only → A failed run drops its open calls, and keeps earlier and stashed ones
//	H20     A checkpoint of another session is rejected → a checkpoint of another session is not found
//	H20     Counts are correct after a truncation → The end of a conversation can be truncated, and the ids in it are free
//	H20     A rewind keeps earlier checkpoints intact → every checkpoint that remains after a rewind keeps its state
//	H29     A repeated request starts nothing → concurrent starts with one request key create one run
//	H29     A request key belongs to one session → a request key belongs to its session
//	H30     Call ids are unique in the family → call ids are unique in a family
//	H31     Deleting a parent deletes its sub-sessions → deleting a session deletes its sub-sessions
//	H31     No row of a deleted session remains → deleting a session deletes all its rows
//	H31     The location of a sub-session is fixed → Where a child is stored never changes
//	H33     The refusal of a large state names its keys and the limit → a state above the limit is rejected
//	H36     A migration runs once → TestSeveralProcessesMayBootAtOnce
package storetest
