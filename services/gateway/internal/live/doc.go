// Package live reads the live logs of sessions for the readers of this gateway. The gateway reads
// each session once, however many readers it has:
//
//	stream.Read ──▶ topic: ring ──▶ Reader     of one follower
//	                            └─▶ Reader     of another one
//	stream.Read ──▶ ReadStored                 records that one follower missed
//
// The first reader of a session starts the topic's call at its own position. A later reader joins
// the ring, then reads the stored records with a call of its own. The sequences show which records
// are new or missing, so the topic tracks no reader.
//
// A broken call is repeated from the last record while there are readers. Records carry their
// sequences, so readers only learn that nothing is live meanwhile (Down).
//
// The ring is bounded and waits for no reader. A reader that lags behind it (fanout.ErrLagged)
// reads the missed chunks from the state service.
package live
