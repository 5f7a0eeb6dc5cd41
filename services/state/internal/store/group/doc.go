// Package group is the group commit of the state service: commands arriving during a
// transaction form the next one.
//
// A transaction costs up to five round trips and a flush to disk, however little it
// writes. Concurrent callers share the cost. There is no timer, and
// no batch waits until it is full: a single command is written at once, and the more
// callers there are, the more of them share a transaction. The package does not know
// SQL or what a command is. A store supplies the Write function.
//
// # Life of a command
//
//	     full, closed              ctx ends
//	  ┌───── refused        ┌───── withdrawn, never written
//	  │                     │
//	Do ──▶ queues of ────▶ ready ──take──▶ lane ──Write──▶ release ──▶ reply
//	       its keys           ▲            (in flight)      │
//	                          └── first in all its queues ◀─┘
//
// Each key has a FIFO queue of its commands. A command at the head of all
// its queues is ready. A lane takes the commands ready for the longest time, as
// many as fit into one transaction. They keep their places in the queues until the
// transaction ends. There are Config.Lanes lanes. A caller with an idle lane
// writes the first batch on its own goroutine, after a scheduling point for concurrent
// callers to enqueue. When more commands are ready after the batch, the lane gets a
// goroutine. It runs batches until no command is ready.
//
// # Order
//
// Stores rely on two promises. Commands of one session are written in the order of
// their Do. And a session is in one batch at a time, and there only once, so that
// batches of this process never wait for each other's rows. Other replicas may lock
// sessions in any order. So a store locks the rows of a batch in one fixed order, and
// reports what still collides as a Conflict.
//
// A command of several sessions enters all its queues in one step. Of two commands that
// share queues, one is first in all of them: there is no circular wait. Queues have no
// overtaking, so no command starves. The price is that a command behind one that waits
// for another session waits too, although its own sessions are free.
//
// # Isolation
//
// Commands of a batch are unrelated. A failure of one must not affect the others.
//
//	Write returns                   consequence
//	each[i]                         command i gets the error, the others are written
//	Unavailable, DeadlineExceeded   all get the error: retries would multiply an outage
//	any other error, a panic        each command is written separately, in order
//	Conflict of a single command    it is retried after the others, five tries in all
//
// A command may have been written already when it is written separately, if the error
// came after the commit. Commands detect that by their epoch, version or request, or
// the store returns Unavailable whenever the outcome is unknown. All tries of a batch
// share Config.BatchTimeout. The remaining commands get
// context.DeadlineExceeded. An outage while commands are written separately also ends
// the remaining ones.
//
// # Back-pressure
//
// The number and the bytes of waiting commands are bounded. A command over a bound is
// refused at once with Exhausted (QUEUE_FULL): a queue longer than the patience of
// callers only writes for absent callers. Commands in flight do not count;
// the lanes bound them.
//
// # Cancellation and crashes
//
// A caller whose context ends withdraws its command from the queue, and the commands
// behind it move up. Once the command is in flight, the caller waits for it, since no
// single caller may cancel a shared transaction. Nothing here is durable. After a crash
// each batch is in the database completely or not at all, and no caller got an answer
// for a command that was waiting.
package group
