// Package postgres keeps the rows of the state service in PostgreSQL, for any
// number of processes.
//
// The row of a session is the lock of everything that belongs to the session.
// A command locks it first, reads what else it needs, and writes; each statement
// has a snapshot of its own (read committed), taken after the lock, so it sees
// what the former holder of the lock has written. A session that is new has no
// row to lock: of two commands that create it, the second runs into the primary
// key and is shown the first one's session in another attempt.
//
// Commands that wait at the same time are one transaction (package group), and
// each of its statements works for all of them: what a commit costs is
// shared, and so is what a statement costs. The statements travel in two pipelines, or in
// one where nothing has to be read:
//
//	BEGIN, lock the sessions in the order of their keys, read what is needed ->
//	   <- the rows; the commands decide
//	write, table by table, COMMIT ->
//	   <- durable
//
// # Claimed sessions are written without a read
//
// A run that is claimed is written again and again, by one executor through one process.
// So this process keeps of each claimed session what it was after the last
// transaction that this process has written in it (session.Hot). A batch whose
// commands ask for no more is one round trip, in one transaction without a BEGIN:
//
//	the commands decide by what is known
//	write the sessions' rows where they are as they are known, fail when one is not;
//	   write the other tables ->
//	   <- durable
//
// The condition is the row's version as PostgreSQL numbers it: xmin, the transaction
// that has written it. Every transaction that writes anything of a session writes the
// session's row too. So a row with the expected xmin says that nothing of the
// session has changed. A release from before this rule only locks the row when it writes
// other tables: that leaves its transaction in xmax, which the condition looks
// at as well. A session that was deleted and made again has another xmin. Nothing is added
// to the schema, and replicas of both releases work side by side.
//
//	process A knows 5       xmin 5                 another process, or UpdateDue here
//	  decide
//	                        xmin 8  <── 8 ─────── a stop: runs, and the session's row
//	  update … xmin = 5 ──▶ no such row: 1/0, nothing is written
//	  forget, lock, read, decide again by what is stored
//
// What is known may be old. So it never refuses anything: a command that refuses, or that
// has nothing to write, is decided again on rows that are locked and read. So
// is one whose message is there already, which the unique key of the messages tells.
// Only session.Wider is believed, since it asks to see more and answers nobody. When nobody
// knows whether a transaction was committed, what was known of its sessions is forgotten.
//
// Where some sessions of a batch have to be read, all of them are locked in the one order
// of keys. Of those that are known the lock tells xmin and xmax, and they are not
// read when these fit. Without a read one statement writes all rows of sessions, in the
// same order, so that two processes that know the same sessions do not wait in a circle.
//
// Package group has a session in one batch at a time. UpdateDue is outside of that: it may
// write a session of a batch, and what either keeps of it afterwards may be the older
// one. The condition finds that out like any other write.
//
// # Plans and commits
//
// The plans of the statements must not depend on how many rows there are today,
// since a connection keeps them for a while: every statement finds its rows by
// key, and the planner is told to want nothing else.
//
// What a caller is told about a commit is what PostgreSQL says of it: with
// synchronous_commit on, as is its default, an answered command survives the
// crash of the server.
package postgres
