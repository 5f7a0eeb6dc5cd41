// Package group is the group commit of the state service: commands that arrive
// while a transaction is in flight form the next one.
//
// A transaction costs a round trip or five and a flush to disk, however little
// it writes. A service that many callers share can pay that once for all who
// wait. The batch makes itself: nothing waits for a timer or for a
// batch to fill, so that a lone command goes at once, and the more
// callers there are the more of them share a transaction. The package knows
// neither SQL nor what a command is; a store gives it a Write.
//
// # Life of a command
//
//	     full, closed              ctx ends
//	  ┌───── refused        ┌───── dropped, never written
//	  │                     │
//	Do ──▶ queue: lines ──▶ ready ──take──▶ lane ──Write──▶ release ──▶ answer
//	       of its keys        ▲            (in flight)      │
//	                          └──── first of all lines ◀────┘
//
// Each key has a line of the commands that lock it. A command that is the first
// of all its lines is ready. A lane takes the longest ready ones, as many as one
// transaction may hold; they keep their places in the lines until their batch has
// ended. There are Config.Lanes lanes. A caller who finds one free writes the first batch on
// its own goroutine, after it has let those run who arrive at the same time. When more is ready
// behind it, the lane gets a goroutine, runs batches until nothing is ready, and ends it.
//
// # Order
//
// The line gives both promises that the stores build on. Commands of one
// session are written in the order of their Do; and no session is in two places
// at once, neither twice in a batch nor in two batches, so that batches never wait
// for each other's rows. Sessions of other replicas may be locked in any order
// all the same: a store locks the rows of a batch in one fixed order, and calls
// what is left a Conflict.
//
// Commands of several sessions enter all their lines in one step. So of two
// commands that share lines one is before the other in all of them: nothing waits
// in a circle. And nobody overtakes in a line, so that nothing starves. The price
// is that a command behind one that waits elsewhere waits too, though its own
// sessions are free.
//
// # Isolation
//
// Commands of a batch are strangers; none may feel the other's fate.
//
//	Write says                      what follows
//	each[i]                         command i gets it, its neighbours are written
//	Unavailable, DeadlineExceeded   all get it: another try would multiply an outage
//	any other error, a panic        each command is written again by itself, in order
//	Conflict, of a command alone    again after the others, five times in all
//
// A command that is written again may have been written before, when the error
// came after the commit. Commands stand that (they name their epoch, version or
// request), or the store says Unavailable whenever it does not know. All the
// tries of a batch share Config.Within: what is not written by then ends with
// context.DeadlineExceeded. An outage that begins while commands are written alone
// ends the rest as well.
//
// # Back-pressure
//
// Commands that wait are bounded by number and by bytes. Who would exceed a bound
// is refused at once with Exhausted (QUEUE_FULL), while it is cheap to say so:
// a queue that is longer than callers are patient only writes for those who have
// left. Commands in flight no longer count; they are bounded by the lanes.
//
// # Who leaves, and what a crash leaves
//
// A caller whose context ends takes its command out of the queue, and those
// behind it move up. Once in flight the command is waited for, because it shares
// a transaction that no single caller may cancel. Nothing here is durable: when
// the process dies, each batch is in the database whole or not at all, what waited
// is gone, and no caller was told otherwise.
package group
