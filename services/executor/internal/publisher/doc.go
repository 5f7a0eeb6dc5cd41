// Package publisher streams the step in flight of one run to readers. It appends to the session's live log as
// the only writer of its epoch.
//
//	Show ──▶ queue (bounded; deltas merge) ──▶ one append in flight ──▶ stream service
//	  ▲ waits while the queue is full             │ LOG_UNAVAILABLE? the same request again
//	  └────────── Flush waits for this ◀──────────┤ RECORDS_LOST? a new attempt with the whole step
//	                                              │ WRITER_FENCED, LOG_AHEAD? the state service decides
//
// The next append takes all queued entries, up to a size: the rest of a step, its boundary, and the attempt that
// begins the next step. An idle system adds no delay, and a loaded one sends larger chunks in fewer requests.
//
// Four values share the lock of the publisher: attempt is the step in flight and how it is shown now, queue is what the log
// lacks and the request in flight, limits are the sizes that the log accepts, and checks are the times of its next check.
//
// # Attempts
//
// Chunks have positions (step, attempt, n): see package position. The publisher retains the chunks of the step
// in flight until the step is committed. A new attempt voids what live readers have seen of the step and shows
// the valid part again. It begins when
//
//   - the model call is retried (Retry): only chunks from before the step remain valid,
//   - the log has lost records: the whole step remains valid,
//   - another owner of the run has shown a part of the step: the reason says so.
//
// If the claim's attempts are used up, or an attempt has too many chunks, the rest of the step is not streamed.
// Readers receive it when it is committed.
//
// # Outages of the log
//
// After Config.Patience without an answer the log counts as unreachable, and callers stop waiting for it. The
// publisher repeats the append in the background and retains the chunks of the step in flight. When the log
// answers, they follow, or a new attempt begins. Of a step committed meanwhile only the boundary is
// retained, which sends readers to the state service. An append with an unknown outcome is irrelevant if all of
// it is void: a later attempt or boundary replaces it, because it may follow any record of a lower position. If
// only a part is void, the append is repeated until its outcome is known.
//
// A silent publisher with published records periodically asks the log whether its last record is still there.
//
// # A log that is ahead
//
// The log may have records of a later epoch or step. Then another executor owns the run, or the database has lost commits
// that the log has seen. The publisher ends with the end of the log (FencedError), and the runner returns its claim with it.
// A claim in force is then made again above the log. So that no step is committed under the number of a lost one, Confirm
// waits for the first answer of the log before a write to the state service.
//
// # Limits
//
// Large deltas are split before they are queued. A log with a lower limit than expected refuses an append
// without storing it. Its chunks are then sent in smaller appends, and a delta is halved. A chunk that cannot be
// made smaller is left out. The step's boundary then says that the live log is incomplete, so readers receive
// the stored step.
package publisher
