// Package jetstream keeps the log in NATS JetStream: in a server inside the
// process (StartServer), or in servers at a URL.
//
// # Where records are
//
// There are a few streams, the partitions, never one per session: a stream
// costs hundreds of kilobytes, a subject some hundred bytes. A family of
// sessions lives in one partition, chosen by a hash of tenant and root:
//
//	HOLDFAST_CHUNKS_03   holdfast.chunks.03.<tenant>.<root>.<session>
//
// Ids are escaped so that any id is one token (subject.go). The filter
// <tenant>.<root>.* is the whole family in one order. The sequence of a record
// is its JetStream sequence in the partition. A partition that is made starts
// at the microseconds since 1970 (bus.FirstSequence), above all that a lost one
// of that name had, so an old cursor is never taken for a new one.
//
// # Appending
//
// An append is a publish that names the expected last sequence of the subject;
// the server checks it and stores in one step, so of two writers one wins. What
// the log does not answer (a timeout, a lost connection) is an unknown outcome:
// the service looks at the last record, which says epoch and number of its
// writer. No message ids are used and no window of duplicates is relied on.
//
// # Reading
//
// What is stored is read by batched direct gets; there are no consumers, so
// nothing has to be cleaned up when a reader or a process vanishes. With more
// than one copy a direct get may be answered by one that lags, so the leader is
// asked for the end (History).
//
// What is appended is heard by republishing: the server publishes each stored
// message under holdfast.live.…, with its sequence. A process has one
// subscription per partition, not one per session, for three reasons. A record
// that was not heard shows as a jump of the partition's sequence, whichever
// session it is of; the predecessor within a session's subject, which NATS tells
// as well, cannot show that in a family a record of a session that stays silent
// was lost, and what follows it in the family's order would be given too early.
// Attaching a reader needs no subscription and no round trip that waits for it
// to be known to all servers. And one look per partition, not one per session,
// shows whether the last message before an outage was heard. The price is that
// every process hears every record: with 10,000 records a second of 300 bytes,
// 3 MB/s and a few percent of a core, most of it for headers.
//
//	heard n, heard n+1         in order: deliver
//	heard n, heard n+3         gap: readers of the partition read what is stored
//	reconnected, or from time  compare with the partition's last sequence; behind: gap
//	to time (Options.Check)
//
// # Retention
//
// A record is removed when it is older than MaxAge, or when its partition has
// more than PartitionBytes: then the oldest go (discard policy "old"), and
// writers are never refused. Records of a quiet session may so be pushed out by
// a loud neighbour; its readers are told "truncated" and load from the state
// service, which holds the truth.
//
// # What an acknowledged record survives
//
//	embedded   The server answers after it has written the record to a file,
//	           and syncs files every five seconds. A kill -9 of the process loses
//	           nothing. A power cut or a crash of the machine may lose the last
//	           five seconds.
//	nats,      The same with the server's sync_interval, two minutes by
//	1 copy     default.
//	nats,      A majority has written the record to files. The loss of a
//	3 copies   minority of the servers, disks included, loses nothing. A power cut
//	           of all at once is as above; sync_interval: always is the remedy.
//
// # Ownership
//
// The embedded server owns its directory by a lock that ends with the process.
// Streams are made, or changed to the configuration, once at Open; of several
// processes that boot at once one makes each stream and the others find it.
// The number of partitions is written into them, and another one is refused.
package jetstream
