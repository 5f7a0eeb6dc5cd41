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
// service, which holds the truth. What goes so goes from the front of the
// partition, and the sequence before its first record is the floor.
//
// A session has SessionRecords at most (the server's limit per subject): what it
// writes beyond removes its own oldest ones, and nobody else's. That leaves the
// floor where it is, so whoever reads compares with the first record of the
// session as well.
//
// # A lost end, and the renewal
//
// The server acknowledges a record when it has given it to the operating system.
// A power cut, or a data directory that is put back to an older copy, takes the
// end of a partition that was acknowledged, and what is written next gets
// sequences that readers and writers know for other records. The log cannot see
// that. Whoever knows a sequence that was acknowledged can: a writer its last
// one, the state service those of what it has committed, a process what it has
// heard (Run), and an embedded server that its machine went down, which is told
// to Open (Options.Renew). They come with a doubt:
//
//	1  The leader is asked. It has the record, or a later one of the session, or
//	   it began, or keeps, only what is above: the doubt was unfounded. Nearly
//	   all end here, and have written nothing.
//	2  A probe is written, a record on a subject that no reader's filter matches.
//	   Its acknowledgement takes a majority of the copies, so a leader that was
//	   deposed gets none; and a copy that has the probe has everything that was
//	   acknowledged before it, the record in doubt included. A process has one
//	   doubt at a time in a partition, whoever waited looks again at 1 before it
//	   writes, two probes lie a pause apart, and each removes the one before:
//	   doubts do not fill the log. Only a probe that the partition begins with
//	   stays until retention takes it: without it the floor would rise, and readers
//	   would be told of a loss that was none.
//	3  Only what such copies say counts. One answer of one copy shows the
//	   session's last record beside the probe. If it is below the one in doubt,
//	   that one is lost: retention takes the oldest first. If nothing of the session
//	   is left, one server says twice where it stands, and the record is lost if
//	   retention has not come as far. The doubt of a feed, which knows a sequence
//	   and not whose, is founded when the probe did not get a higher one, or when
//	   the record that has the sequence is another than the one that was heard.
//	4  "holdfast-began" in the stream's metadata becomes X: the microseconds since
//	   1970, or four million above all that is known, if the clock is behind. This
//	   is the decision.
//	5  All records before X are purged. The server begins at X then, and what it
//	   stores next gets X.
//
// All that the partition had is gone, not only what comes after the loss: which
// of its sessions have lost records is not known, and which cursors are still
// good neither. A conversation is whole in the state service. What a crash
// leaves:
//
//	before 4    nothing: a probe, and the next doubt
//	4 .. 5      a partition that holds records before its beginning. Whoever looks
//	            where it stands (Open, Info, Run, the next doubt) does step 5. What
//	            is appended before that is acknowledged and goes in step 5; its
//	            writer's next append comes with the doubt of step 1 and is told that
//	            the log began anew.
//	after 5     nothing to do
//	a power     of the steps 4 and 5, the second, both or none are lost. The second
//	cut after   is done again. If both are, all that was known then is a doubt
//	            again, and what was acknowledged in between is one more.
//
// A record that is on its way when the purge of step 5 is applied is stored
// nowhere, and its writer is told nothing: an unknown outcome. The leader of a
// common partition may go on to take it for in flight then, and refuses whatever
// comes behind it (error 10164). Append repeats that; when it does not end within
// seconds, and the record that it expects still is the last one, it has the
// partition choose another leader, which knows of nothing in flight, and answers
// Unavailable: nothing was stored.
//
// A stream's configuration, "began" included, is written whole and without a
// condition, so a process that boots may write an older "began" back. Each
// process remembers the highest that it has seen, answers no lower one, and notes
// it again when the log says less; one that boots looks for a jump over the end
// that it saw before it wrote.
//
// Several processes may come with one doubt. Each looks at "began" before it
// writes it, and goes on where another stopped; of two that write it at once one
// may win over a higher X for a moment, and sees the purge of the other, which
// takes nothing that it has to keep. A process that was too slow to see another's
// renewal begins the partition anew once more, which costs records and is safe.
//
// Who follows sees a renewal as a jump of the sequence, of the next record, or of
// the end of the log that Run compares with.
//
// A sequence that is far above the log and the time (a week) is not believed: no
// log gave it. A client's cursor is never taken for a doubt.
//
// # What an acknowledged record survives
//
//	             a kill -9    the crash of a machine,      the loss of a disk
//	                          or a power cut
//	embedded     yes          but for the last moments     no
//	             yes          yes, with a sync interval    no
//	                          of 0: it is synced first
//	nats,        yes          but for the server's         no
//	1 copy                    sync_interval, two minutes
//	                          by default
//	nats,        yes, of all  yes, of a minority; of all   yes, of a minority; the
//	3 copies     servers      at once as with 1 copy       next disk may be lost when
//	                                                       the one before has caught up
//
// The last moments are ServerOptions.SyncInterval. A server that was closed loses
// nothing: Close has the disk keep what it closes. NATS servers sync before they
// acknowledge with sync_interval: always.
//
// What is lost so is noticed by the first who comes and knows of it, see the
// renewal above, and from then on none of it is given again as something else.
// Until then it can be. The window needs all of this: the power of all servers was
// cut, and of all replicas of the stream service, which knew by their feeds; the
// lost end was of a step that was not committed, so the state service knows none
// of it, and the session's writer is gone as well; and a reader that survived
// elsewhere comes back only after the session's new owner has written past its
// cursor. The cursor may name another record then, and the reader goes on from
// there without having been told that what it held was taken back. What it missed
// is a part of a step that was done again; loading the session makes it whole.
//
// The embedded form knows by the machine's boot id (note.go) and does not wait for
// somebody who knows. It has the window only where its directory is put back to an
// older copy: one of the same boot, or one that was closed or synced before each
// acknowledgement, which says that nothing was lost. And where the machine has no
// boot id.
//
// # Shards
//
// One system of NATS servers may be too little. Several, which know nothing of
// each other, then share the families: whoever opens them chooses the system of a
// family by a stable hash, and opens one Bus for each. How many there are, and
// which one this is, stands in the metadata of its streams; another number, or
// two of them exchanged, is refused as another number of partitions is. A stream
// that says nothing of shards is of the time when there was one.
//
// # Dead leaders
//
// Servers that take a dead one for a partition's leader, until they elect another
// some seconds later, drop what only the leader may answer, and nobody is told. So
// what is asked of a leader is asked again each second (askAgain), and the answer to
// any of these questions counts. Records are not sent twice: their outcome is looked
// for when no acknowledgement comes.
//
// # Ownership
//
// The embedded server owns its directory by a lock that ends with the process.
// Streams are made, or changed to the configuration, once at Open; of several
// processes that boot at once one makes each stream and the others find it.
// The number of partitions is written into them, and another one is refused. The
// beginning that a renewal has written is carried over. Of two that boot with
// different limits the later one's hold.
package jetstream
