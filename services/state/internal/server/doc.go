// Package server is the state service on the wire: it checks that requests are
// well-formed, turns them into commands of package session, runs those through
// the store, and turns what comes out into answers.
//
// # How work is handed out
//
// Each ClaimRuns stream has a loop that claims for its executor while it has
// credits. A loop that finds nothing waits for the hub, which is signalled
// after each commit that may have made work, or for its poll, which is behind
// for all that the hub does not see: signals of other replicas, and those that
// were lost.
//
//	StartRun ──commit──▶ hub ──wakes one──▶ claim loop ──UpdateDue──▶ Send ──▶ executor
//	                              poll ──────▲               │
//	                                                         └─ Send fails: release
//
// A claim is committed before it is sent. When sending fails it is released;
// when the process dies in between, or the answer gets lost on a connection
// that breaks, the claim is one of those that the executor does not list as
// held, and is taken back as lost.
package server
