// Package chunklog holds the rules of the chunk log: who may write, what a
// rewind voids, and what a reader is told. It does no I/O and keeps no clock.
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
//	          (any, n)     the next one when it names a record that has gone,
//	                       else out of order
//
// # Rewinds
//
// A rewind appends a marker, which fences older writers, and only then are the
// void records removed. Removal is housekeeping: a reader that meets a void
// record before it was removed meets the marker behind it. Void are the chunks
// behind the rewind's starting point from the first one on whose step is too
// great; terminal records and markers are never void, since readers wait for
// them. The marker's At is the record before the first void one: whatever a
// reader was given after At is void.
//
// # Readers
//
// A reader takes records in order: stored ones until Settle says that nothing
// more is stored, then live ones. Each record names its predecessor in its
// session, so a reader sees that it has missed one. A hole among live records
// is filled by reading what is stored. A hole among stored records is either a
// voided stretch or one that retention has removed; Lost tells them apart by
// the floor of the log (retention removes from the front only) and by the
// marker that explains a voided stretch. In doubt the answer is "lost": the
// reader is told to load the conversation again, which is never wrong.
//
// Cursor 0 means from the beginning of what was ever written: a reader that
// comes with 0 is told "truncated" when the first kept record had a
// predecessor that retention removed. A stream of which nothing is kept cannot
// tell whether it ever had a record, so there 0 is answered with nothing and
// any other cursor below the floor with "truncated".
package chunklog
