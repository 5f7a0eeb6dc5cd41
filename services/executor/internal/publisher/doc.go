// Package publisher shows the step in flight of one run to readers: it appends to the
// session's live log, as the one writer that an epoch allows.
//
//	Show ──▶ queue (bounded; deltas merge) ──▶ one append in flight ──▶ stream service
//	  ▲ waits while the queue is full             │ LOG_UNAVAILABLE? the same request again
//	  └────────── Flush waits for this ◀──────────┤ RECORDS_LOST? a new attempt, all of the step again
//	                                              │ WRITER_FENCED? the run is somebody else's
//
// The next append takes all that waits, up to a size: the rest of a step, its boundary, and
// the attempt that begins the next step. So an idle system adds no delay, and a loaded
// one sends larger chunks with fewer requests.
//
// # Attempts
//
// Chunks get positions (step, attempt, n): see package position. The publisher keeps the
// chunks of the step in flight until the step is committed. A new attempt voids, for
// live readers, what they have seen of the step, and shows what stands of it again. It
// begins when
//
//   - the model call is repeated (Retry): only what was shown before the step stands,
//   - the log has lost records: all of the step stands,
//   - another owner of the run has shown something of the step: its reason says so.
//
// Where the claim's attempts are used up, or an attempt has too many chunks, the rest of
// the step is not shown live. Readers get it when it is committed.
//
// # A log that is away
//
// A log that does not answer for the patience counts as away. Nobody waits for it then.
// The append is repeated in the background, and the chunks of the step in flight are
// kept. When the log answers, they follow, or a new attempt begins. Of a step that is
// committed meanwhile only the boundary is kept, which sends readers to the state
// service. An append that is not known to be stored needs no care when all of it is void: a
// later attempt or boundary takes its place, because it may follow any record of a lower
// position. One that is void in part is repeated until its fate is known.
//
// A publisher that has shown something and is silent asks the log now and then whether
// its last record is still there.
//
// # Limits
//
// Large deltas are split before they are queued. A log that takes less than expected
// refuses an append without storing it. Its chunks are then sent in smaller appends, and a
// delta is halved. A chunk that cannot be made smaller is left out. The boundary of such a
// step says that the live log does not have all of it, so readers get the step as it is stored.
package publisher
