// Package server is the state service on the wire: it checks that requests are
// well-formed, turns them into commands of package session, runs those through
// the store, and turns what comes out into answers.
//
// # How commands run
//
// Most commands see one session. One that can change its session's status runs
// with what follows for the family: a parent learns of it, and goes on when it
// has waited for nothing else; the children of a session that fails or goes away
// end with it. Which sessions those are is known only from their rows. So such
// a command is run on its own session first, and says which others it has to
// see; then it is run again on all of them, and decides anew. Between the two
// tries anything may have happened: the second one believes nothing of the
// first.
//
//	Update(s) ──▶ Wider{parent} ──▶ Update(s, parent) ──▶ Wider{grandparent} ──▶ … ──▶ written, all or nothing
//
// A plan, a result, and a step that ends nothing never pay for that.
//
// # How work is handed out
//
// Each ClaimRuns stream has a loop that claims for its executor while it has
// credits. A loop that has found less than it may take waits for the hub, which is
// signalled after each write that has made work, or for its poll, which is behind
// for all that the hub does not see: signals that were lost, and runs that wait for
// their time. Nothing puts the poll off. A signal
// says whether it is for a queued run or for a finished one whose end nobody
// tells; those are looked for when one says so, and with the poll. A look passes
// sessions over that are locked at the moment: when it finds less than was
// signalled, the loop looks again a few times within milliseconds.
//
//	StartRun ──commit──▶ hub ──wakes one──▶ claim loop ──UpdateDue──▶ Send ──▶ executor
//	                              poll ──────▲               │
//	                                                         └─ Send fails: release
//
// A run whose agent no living executor announces waits for one that does. To end it
// needs no agent: where it is to stop, or out of time, or over and nobody tells its
// end, for HOLDFAST_STATE_ORPHANED_AFTER, a look with the poll that has credits left
// after all other work hands it to any executor. One that is announced elsewhere is
// left to that executor, whose hooks hear of the end.
//
// What no loop here can take is signalled to the other replicas, where the store
// carries signals; those that hear it wake one loop each, and one of them finds it.
//
// Mostly nobody has to look. An executor whose loop's last look has left no work behind
// has places to spare: its credits, but for those that the loop has taken for a look and
// those for runs that it was told of or has missed. A command finds such an executor
// first, in turn, takes a place of it when it begins a run, and claims the run in the
// write that begins it:
//
//	StartRun ── place taken ──▶ begun and claimed ──commit──▶ handed ──▶ Send ──▶ executor
//	                                │                            │
//	                                └─ anything unusual:         └─ the stream has ended: release
//	                                   queued, place given back
//
// The place is a credit, and is the command's until it ends. A command that learns only
// from the rows whose run it begins, as an answer does, asks then, and is run again with
// what a claim carries to be seen. A run that is handed over may overtake queued ones, but
// takes no place from any that the loop knows of: a loop that looks is handed work
// beside, or else one run that has to be looked for would keep all that begin meanwhile
// from being handed over, and those the next. Nothing is handed to a stream that does not
// take what it was handed.
//
// A stop goes to the executor of its run on the same stream, beside the claims
// and at no credit: at once from the replica that has written it, and from the
// others when they are signalled, or by a poll (Server.PollStops), one query for all
// the executors that each has. Heartbeats and commits tell of it as well.
//
//	RequestStop ──commit──▶ box of the stream ──▶ Send ──▶ executor
//	other replica: signal, poll ▲
//
// A claim is committed before it is sent, whichever way it comes. When sending fails
// it is released; when the process dies in between, or the answer gets lost on a
// connection that breaks, the claim is one of those that the executor does not list as
// held, and is taken back as lost. A stream that breaks, rather than that either
// side ends it, makes its executor a suspect of package sweep.
package server
