// Package scheduler hands out runs to executors. An executor opens a claim stream to one
// or more replicas and grants credits on it: the number of claims it can take.
//
// # Claim loops
//
// Each stream has a loop to claim runs while there are credits. When a query finds less than its
// limit, the loop waits for a wake-up or its poll. The hub wakes one loop after each
// write of a queued run. The poll finds the rest: runs with a lost signal, and runs due
// later. Signals never postpone it. A query skips locked sessions; if it misses a
// signaled run, the loop queries again a few times within milliseconds.
//
//	StartRun ──commit──▶ hub ──wakes one──▶ claim loop ──UpdateDue──▶ SendClaim ──▶ executor
//	                              poll ──────▲               │
//	                                                         └─ sending fails: release
//
// A run waits until a registered executor announces its agent. A stopped or overdue run
// needs no agent to end: after Config.OrphanedAfter, a poll with credits left hands it
// to any executor, unless an executor announces the agent elsewhere and can run its hooks.
//
// With Config.AgentGoneAfter, a run of an agent that no executor announces fails after that time, in the same way: a poll
// hands it to any executor with a stop, and the executor ends it. See absence for the time that counts. By default it waits.
//
// If no loop here can take a run, the other replicas receive a signal, if the store carries
// signals. Each wakes one loop.
//
// # Hand-over
//
// Most runs need no query. An executor is idle while its loop knows of no backlog and has
// credits to spare. A command takes a credit of an idle executor, in turn, and claims the run
// in the write that begins it:
//
//	StartRun ── credit taken ──▶ begun and claimed ──commit──▶ outbox ──▶ SendClaim ──▶ executor
//	                                │                            │
//	                                └─ anything unusual:         └─ the stream has ended: release
//	                                   queued, credit given back
//
// Only the rows say whether an answer begins a run: it looks for an idle executor then, and
// is decided again on all rows of a claim. A handed-over run may overtake queued runs, but
// takes no credit needed for a run known to the loop. It does not wait for the queries of the loop,
// or one run in a locked session would slow down all others.
//
// # Caps
//
// A tenant or user with a cap on its running runs gives the hand-over up: its runs are claimed by the
// loops, which count in the database. Claims with caps take turns over all replicas. A run at a cap stays
// queued. It leaves no signal that a loop waits for, and the end of a run wakes a loop for the next
// one of its agent; the poll finds runs of other agents.
//
// # Spare credits
//
// The last credits of an executor may be spare: they are for tenants without a running run, so a tenant
// that fills all slots with long runs does not delay the first run of another. A loop with spare credits alone
// claims with a cap of one running run for each tenant, and keeps a turn of its own. Nobody hands over with
// them. Runs that find spare credits alone stay queued, and the loop queries again when it has others.
//
// # Stops
//
// A stop request goes to the run's executor on the same stream, without a credit: at once
// from the replica with the write, from others after a signal or their poll. Heartbeats
// and commits report stops as well. The executor of a run that was ended from outside, as by
// the failure of its parent, gets a stop too: its writes are refused, and its model should not
// work on.
//
//	RequestStop ──commit──▶ box of the stream ──▶ SendStop ──▶ executor
//	other replica: signal, poll ▲
//
// # Lost claims
//
// A claim is committed before it is sent. If sending fails, it is released. If the process
// dies first, or the connection breaks, the executor does not list the run as held, and
// the run is requeued. If a stream breaks without either side ending it, its executor
// becomes a suspect of package sweep.
package scheduler
