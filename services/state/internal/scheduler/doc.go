// Package scheduler hands out runs to executors. Each executor opens a claim stream to
// one or more replicas of the state service and grants credits on it: the number of claims it
// can take.
//
// # Claim loops
//
// Each stream has a loop to claim runs while the executor has credits. After a look below
// its limit, the loop waits for a wake-up or for its poll. The hub wakes one loop after each
// write of a queued run. The poll finds everything else: runs with a lost signal, and
// runs due later. Signals never postpone it. A look skips locked sessions. If it
// finds fewer runs than were signaled, the loop looks again a few times within milliseconds.
//
//	StartRun ──commit──▶ hub ──wakes one──▶ claim loop ──UpdateDue──▶ SendClaim ──▶ executor
//	                              poll ──────▲               │
//	                                                         └─ sending fails: release
//
// A run waits until a registered executor announces its agent. Ending a stopped or timed-out run
// needs no agent: after Config.OrphanedAfter without one, a poll with credits left
// hands such an orphaned run to any executor. If another executor announces the agent, the
// run is left to it, because it has the agent's hooks.
//
// If no loop here can take a run, the other replicas receive a signal, if the store carries
// signals. Each wakes one loop, and one of them finds the run.
//
// # Hand-over
//
// Most runs need no look. An executor is idle while its loop knows of no backlog and it
// has credits to spare. A command finds an idle executor, in turn, takes a credit when it begins a
// run, and claims the run in the same write:
//
//	StartRun ── credit taken ──▶ begun and claimed ──commit──▶ outbox ──▶ SendClaim ──▶ executor
//	                                │                            │
//	                                └─ anything unusual:         └─ the stream has ended: release
//	                                   queued, credit given back
//
// Only the rows say whether an answer begins a run. It looks for an idle executor then, and
// is decided again on all rows of a claim. A handed-over run may overtake queued runs, but
// takes no credit needed for a run known to the loop. It does not wait for the loop's look
// either: one run in a locked session would slow down all others. A stream with a stuck
// outbox gets no further claims.
//
// # Stops
//
// A stop request goes to the run's executor on the same stream and takes no credit: at once
// from the replica with the write, and from the others after a signal or their poll, one query
// for all connected executors. Heartbeats and commits report stops as well.
//
//	RequestStop ──commit──▶ box of the stream ──▶ SendStop ──▶ executor
//	other replica: signal, poll ▲
//
// # Lost claims
//
// Every claim is committed before it is sent. If sending fails, it is released. If the
// process dies first, or the connection breaks, the executor does not list the run as
// held, and the run is requeued as lost. If a stream breaks without either side ending it,
// its executor becomes a suspect of package sweep.
package scheduler
