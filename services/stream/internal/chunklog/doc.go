// Package chunklog holds the rules of the chunk log: who may write, what a
// marker voids, and what a reader is told. It does no I/O and keeps no clock.
//
// # Writers
//
// A stream has one writer at a time. Every record carries the epoch and the
// number of its writer, and every append names the sequence of the record that
// it believes to be the last; the bus refuses it when another record stands
// there. So a decision that was made on the last record (Decide) is still true
// when the record is stored, whoever else writes at the same moment:
//
//	last record            a request (epoch, number) is
//	(3, 7)    (2, any)     fenced: somebody else took the stream over
//	          (3, 7)       a repetition: it gets the first answer again
//	          (3, 8)       the next one
//	          (3, other)   out of order
//	          (4, 1)       the next one: a new writer
//	          (4, other)   out of order
//	none      (any, 1)     the next one
//	          (any, n)     out of order, unless it names a record that has gone
//
// A request may hold several chunks. Each is a record of its own, which is decided
// when the one before it is stored, so whatever is between two requests may be
// between two chunks of one: another writer, a lost end, the death of the server. A
// repetition, or a second attempt that runs beside the first, may so find a part of
// them stored. That part ends at the tail, because nothing but the next number goes
// behind it, and the request goes on from there (Write.Stored):
//
//	last record            a request (epoch, number .. number+more) is
//	(3, 7)    (3, 5 .. 9)  stored up to 7: 8 is the next one
//	          (3, 5 .. 7)  a repetition
//	          (3, 8 .. 9)  the next ones
//
// This takes for granted that a number means one chunk for ever: a writer that does
// not know what became of a request sends the same chunks again, neither more in one
// nor fewer.
//
// A chunk of a run whose terminal record left the stream as it is (Tail.Run,
// Tail.Status) is refused until a resume: a run that was told to have ended does
// not go on by accident. Another run does, and so makes the stream active.
//
// # Witnesses
//
// A log on one machine can lose an end that it had acknowledged, and would then
// give its sequences again. It cannot see that; but a writer knows the sequence
// of its former record, and the state service the last one that was committed. A
// sequence that they know, above the last record of the stream, is a doubt. A
// server that lags, or was deposed and does not know it, gives rise to the same
// doubt, so it is settled before anything that is final is said: the log looks
// again in a way that such a server cannot answer, and begins the partition anew
// if the record is gone. What a reader says is never a doubt: it may be anything.
//
//	former record     nothing of the stream is kept; the log
//	F <  began        was begun anew since: an append is refused (LOG_RENEWED),
//	                  a marker says that nothing of before stands (Record.Anew)
//	F <= floor        retention has removed it, and the writer goes on, with F as
//	                  predecessor so that readers see that something has gone
//	F >  floor        ought to have it: a doubt
//
// # Markers
//
// A rewind appends a marker, which fences older writers, and only then are the
// void records removed. Removal is housekeeping: a reader that meets a void
// record before it was removed meets the marker behind it. Void are the chunks
// behind the rewind's starting point from the first one on whose step is too
// great; terminal records and markers are never void, since readers wait for
// them. The marker's At is the record before the first void one: whatever a
// reader was given after At is void. The rewind cannot judge what retention has
// removed behind its starting point, and readers may hold it: where a void chunk
// is the first that is left, At is the starting point; where a chunk that stands
// is, what was before it stood, too.
//
// A reset is the same with everything before it, terminal records included: At
// is 0. A resume voids nothing and makes the stream active. A marker whose At is
// not below its predecessor voids nothing, and nobody is told of it.
//
// A marker that is Anew is the first record of its stream in a log that was begun
// anew: it voids what was given up to its predecessor, which is of the former
// log. A reader that holds nothing so old has begun above it.
//
// # Readers
//
// A reader takes records in order: stored ones until Settle says that nothing
// more is stored, then live ones. Each record names its predecessor in its
// session, so a reader sees that it has missed one, or that it stands behind
// another one than the reader took. A hole among live records is filled by
// reading what is stored. A hole among stored records is a voided stretch, or one
// that retention has removed, or what is left of a log that was lost; Lost tells
// them apart:
//
//	what the reader has is older than the log          lost
//	the floor has not reached the reader, and records
//	of the session are kept before the hole            voided
//	a marker behind the hole voids all that was in it  voided
//	otherwise                                          lost
//
// Retention by age and size removes from the front of the partition, up to the
// floor, and retention by count from the front of a session, up to its first
// record. In doubt the answer is "lost": the reader is told to load the
// conversation again, which is never wrong.
//
// # Cursors
//
// A reader that comes with a cursor reads from the cursor's own record on. When
// that is there (Proves), the cursor is of this log, and nothing behind it has
// been removed by age or size, because the front goes first; each further page
// is read so, too. When it is not there, Astray says whether it was voided or
// removed, which what is stored behind it shows, or is of a log that was lost.
//
// Cursor 0 means from the beginning of what was ever written: a reader that
// comes with 0 is told "truncated" when the first kept record had a predecessor
// that retention removed. A session of which nothing is kept cannot tell whether
// it ever had a record. So there 0 is answered with nothing; any other cursor
// below the floor, with "truncated", where nothing is stored behind it or the
// reader reads a family, whose other sessions may be such ones. Only a reader that
// has all that the state service has recorded needs nothing of that.
//
// In a family, records that one session has lost because it had too many show at
// its next record. A reader that drops before it comes there, and attaches above
// the place where they were, is not told.
package chunklog
