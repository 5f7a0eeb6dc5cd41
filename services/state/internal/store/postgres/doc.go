// Package postgres stores the rows of the state service in PostgreSQL, for any
// number of processes.
//
// The row of a session is the lock of all its rows. A command locks it first, reads
// its other rows, and writes. The isolation level is read committed: each statement
// after the lock has a new snapshot, and so sees the writes of the former holder of the
// lock. A new session has no row to lock. When two commands create
// it, the second violates the primary key, and is retried on the session of the first.
//
// Commands that wait at the same time share one transaction (package group), and each
// of its statements writes or reads for all of them. The statements travel in two
// pipelines, or in one when nothing has to be read:
//
//	BEGIN, lock the sessions in the order of their keys, read the needed rows ->
//	   <- rows; the commands decide
//	write, COMMIT ->
//	   <- durable
//
// The rows that a command needs are read by one statement when the batch has one session
// (queueLookups), and kind by kind otherwise. The writes are one statement of data-modifying
// CTEs (composition), and one more for each rare kind of write.
//
// # Claimed sessions are written without a read
//
// The steps of a claimed run come from one executor through one process. The process
// caches each claimed session as its last transaction has left it (session.CachedSession). When
// the commands of a batch need no more than the cache holds, the batch is one statement, and
// so one transaction and one round trip:
//
//	the commands decide on the cached sessions
//	write the rows of all tables if the rows of all sessions are unchanged, and none otherwise ->
//	   <- durable, or how many are unchanged
//
// The condition is the version of the session's row: xmin, the id of the last
// transaction to write it. Every write to any row of a session also writes the session's
// row. So an unchanged xmin means unchanged rows. A release from before this rule only
// locked the session's row. Its transaction is then in xmax, and the condition checks
// xmax too. A session deleted and created again has another xmin. The schema needs nothing for this, and
// replicas of both releases can run at the same time.
//
//	process A: 5 cached     xmin 5                 another process, or UpdateDue here
//	  decide
//	                        xmin 8  <── 8 ─────── a stop: runs, and the session's row
//	  update … xmin = 5 ──▶ no such row, nothing is written
//	  drop from the cache, lock, read, decide again
//
// Since the cache may be stale, no command is refused because of it. A command with an
// error or without a change decides again on locked rows. So does a command with an
// existing message or call, which violates a unique key. Only session.IncompleteViewError is
// accepted, since it asks for more sessions and answers no caller.
// When the outcome of a transaction is unknown, its sessions are dropped from the cache.
//
// When some sessions of a batch have to be read, all are locked, in the order of their
// keys. The lock returns xmin and xmax, and cached sessions with matching versions
// are not read. Without a read, one statement updates all rows of sessions in the same
// order. So two processes with the same sessions in their caches do not deadlock.
//
// Package group has a session in one batch at a time. UpdateDue runs outside of it: it
// may write a session of a running batch, and either may then cache the older version.
// The condition detects this as well.
//
// # Constraints
//
// The tables that a turn writes have no CHECK constraints: PostgreSQL parses them anew for each statement that writes the
// table, which took an eighth of the time of a step's commit. The store checks the rows of each change instead (check).
// NOT NULL, unique keys and the foreign key of files remain in the schema.
//
// # Plans and commits
//
// A connection keeps its plans for a while, so they must not depend on how many rows a
// table has today. Every statement finds its rows by key, and the settings of the
// connection leave the planner no other choice.
//
// Durability is that of PostgreSQL: with synchronous_commit on, its default, an
// answered command survives a crash of the server.
package postgres
