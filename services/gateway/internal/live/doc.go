// Package live reads the live logs of sessions for the readers of this gateway. However
// many read a session, the stream service is asked once:
//
//	stream.Read ──▶ topic: ring ──▶ Reader     of one follower
//	                            └─▶ Reader     of another one
//	stream.Read ──▶ Stored                     what one follower has missed
//
// The first reader of a session begins the topic's call at its own position. Whoever comes
// later joins the ring first and then reads what is stored by a call of its own. The
// sequences of the records say what is new and whether something is missing, so the
// topic keeps no account of its readers.
//
// A call that breaks is made again from the last record, for as long as there are
// readers. The records before and after carry their sequences, so nothing more has to
// be said of a break than that nothing is live meanwhile (Down).
//
// The ring is bounded and waits for nobody. A reader that falls behind it (fanout.ErrLagged)
// asks the state service for what it has missed.
package live
