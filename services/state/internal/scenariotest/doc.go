// Package scenariotest plays scenarios: texts that show, step by step, what the rules of package session decide. The same
// scenarios run against the rules alone (package session, rows in memory) and on each store (package storetest).
//
// # Format
//
// A line that begins with "=" is the title of a scenario. Every other line is a step, or several with "; " between them.
// The lines behind it that begin with "> " are the answer to the last step, and the rows that the line has changed:
//
//	= The last answer continues the session
//
//	send u1; claim; suspend c1
//	> step 1
//	> session: suspended_client_tool, version 2
//	> run r1: turn 1, suspended_client_tool, after message 0, ended by step 1
//	> messages: u1(r1) step-1(r1)
//	> checkpoints: 1
//	> call c1: open
//	answer c1
//	> c1 accepted; r2 begins
//	> session: active, version 3, resumed 1 times
//	> run r2: turn 2, continuation, live, after message 2, in a turn after message 0, continues the message of r1
//	> call c1: answered "answer to c1"
//
// A row that is not shown has not changed. Messages have their runs in brackets. Checkpoints are shown by their steps. A
// queued or running run is live. A refusal shows the reason and the kind of the fault. A refused step changes nothing, and
// its refusal is shown even if it is not the last one of its line. Runs are named r1, r2 … as they appear.
//
// # Steps
//
// A step is a word, arguments, a text in quotation marks, and options. All times are in milliseconds, and each step takes
// one.
//
//	send ID …              a message per id          busy, default, key, hash, agent, expect, seen, has, missing, history,
//	edit ID ID …           the first is replaced     user, deadline, state-limit, answers=c1,c2, open=abandon, append=ID,
//	regenerate ID          it is answered again      set=KEY:JSON, add=KEY:JSON, below=PARENT, call, mode
//	resume, retry          go on                     step=N is the checkpoint of a step
//	branch to=S step=N     a new session with a run
//	copy to=S step=N       a new session without one
//	create                 a session without a run   below=PARENT, call, mode, most=N sessions of the tree, agent
//	claim                  the oldest queued run, or that of the session in the option in
//	plan C …, result C     the journal               set, add, number=N is another step than the one in flight
//	step C …               commits a step            consume=c1,c2:REVISION, report=c1, set, add, message, result, note,
//	complete, fail,        … which ends the run      role, number, stash, code, expire, deadline, and late=c1 for the
//	interrupt              .                         calls with the deadline
//	suspend C …            … on calls to a client
//	await S …              … on existing children
//	begin S …              … on children that the step creates
//	repeat                 commits the last step of the session again
//	end STATUS             ends the run between steps
//	release                queues the run again
//	submit C, answer C …   answers one call, or any number at once. C:approval is the answer to an approval
//	time-out               answers the overdue calls
//	stop KIND              run=R stops that run
//	set STATUS             expect=STATUS,…
//	expires after=N        sets when the session expires
//	expire, delete         the session
//	append ID …, truncate N, rewind step=N, merge set=…, save JSON
//	record S at=LOCATION   a child in its parent
//	wait N                 lets time pass
//
// The option in names the session; without it, it is the session s. An executor's step belongs to the newest claim of the
// session; by=R names another run.
//
// go test ./services/state/internal/session -run TestTheRulesHoldInEveryScenario -update writes the results anew. Read the
// difference before you commit it.
package scenariotest
