// Package feed follows sessions' streams for the readers of this gateway. However
// many read a session, the stream service is asked once:
//
//	stream.Read ──▶ pump ──▶ topic: ring ──▶ Follow ──▶ sink     a reader
//	                                    ├──▶ Follow ──▶ sink     another one
//	stream.Read ──▶ pump ──▶ channel ───┘                        its history
//
// # Topics
//
// The first reader of a session starts the topic's call at its own cursor, so it
// waits for nothing but its own records. Whoever comes later joins the ring first,
// then reads what is stored by a call of its own, and passes over what it has when
// it takes from the ring: nothing is lost between the two and nothing doubled. Who
// stands where the topic stands reads no history. The topic ends with its last
// reader, who waits for its pump. A root is read with its whole family, and each
// reader is given its part of that.
//
// # Pauses
//
// The pump reads on from its cursor whenever the call is dropped: a pause of the
// stream service is a pause for the readers and nothing else.
//
// # Slow readers
//
// The ring is bounded, and nobody waits for a reader. One that falls behind the ring
// before it has once taken all of it is catching up, and reads what is stored
// again, at its own pace. One that falls behind later is cut (READER_TOO_SLOW) and may
// come again from its cursor. While the topic itself is catching up and has one
// reader, it goes at that reader's pace.
//
// # What was void before the topic saw it
//
// The stream service tells a rewind to who holds something void; the topic speaks for
// all its readers. A reader may hold a record that the topic never got, because it
// read the history while the topic was behind, and the record was voided
// before the topic came to it: then the topic is not told. So a reader keeps a
// fingerprint of what it has read ahead of the topic, and takes out what the topic
// tells later. When the topic passes its cursor and something is left, it reads
// what is stored again, from its own cursor, and is told by the log.
package feed
