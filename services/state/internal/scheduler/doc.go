// Package scheduler hands out runs to executors. Each executor opens a claim stream to
// one or more replicas of the state service and grants credits on it: how many claims it
// can take.
//
// # Claim loops
//
// Each stream has a loop that claims runs while the executor has credits. A loop that
// finds fewer runs than it may take waits for a wake-up from the hub, which comes after
// each write that queues a run, or for its poll. The poll finds everything else: runs
// whose signal was lost, and runs that become due later. Signals never postpone the
// poll. A look skips sessions that are locked at the moment. If it finds fewer runs than
// were signaled, the loop looks again a few times within milliseconds.
//
//	StartRun ──commit──▶ hub ──wakes one──▶ claim loop ──UpdateDue──▶ SendClaim ──▶ executor
//	                              poll ──────▲               │
//	                                                         └─ sending fails: release
//
// A run whose agent no registered executor announces waits until one does. No agent is
// needed to end a run that is stopped or out of time. After Config.OrphanedAfter, a
// poll that has credits left hands such an orphaned run to any executor. A run whose agent
// is announced elsewhere is left to that executor, which runs the agent's hooks.
//
// If no loop here can take a run, and the store carries signals, the other replicas
// receive a signal. Each wakes one loop, and one of them finds the run.
//
// # Hand-over
//
// Mostly no loop has to look. An idle executor has no known work waiting, and more
// credits than its loop has taken for a look or was notified of. A command finds an idle
// executor, in turn, takes a credit of it when it begins a run, and claims the run in
// the same write:
//
//	StartRun ── credit taken ──▶ begun and claimed ──commit──▶ outbox ──▶ SendClaim ──▶ executor
//	                                │                            │
//	                                └─ anything unusual:         └─ the stream has ended: release
//	                                   queued, credit given back
//
// An answer learns only from the rows whether it begins a run. It asks for an executor
// then, and is decided again on rows that include what a claim carries. A run that is
// handed over may overtake queued runs, but takes no credit that the loop needs for a run
// it knows of. It does not wait for a look of the loop either, or one run that is hard to
// find would slow down all that begin meanwhile. A stream that does not send its outbox gets no
// further claims.
//
// # Stops
//
// A stop request goes to the run's executor on the same stream and takes no credit. The
// replica that wrote it sends it at once. The others send it when they receive a signal,
// or after their poll: one query for all connected executors. Heartbeats and commits
// report stops as well.
//
//	RequestStop ──commit──▶ box of the stream ──▶ SendStop ──▶ executor
//	other replica: signal, poll ▲
//
// # Lost claims
//
// Every claim is committed before it is sent. If sending fails, it is released. If the
// process dies before it sends, or the connection breaks, the executor does not list
// the run as held, and the run is requeued as lost. If a stream breaks without either
// side ending it, its executor becomes a suspect of package sweep.
package scheduler
