// Package session is the heart of the state service: the rules by which a
// session moves. It knows no database, no wire, no clock and no randomness.
//
// # Commands
//
// A command is a value with everything that it needs to know, and a method
// Decide that is a pure function: it is shown the rows of one session (View)
// and gives the rows to write (Change), or a fault and nothing is written. The
// store may call Decide again when another writer was faster, so Decide keeps
// nothing between calls and never changes what it is shown. A nil Change is a
// command that has nothing to write: the repetition of one that was done.
//
// # The life of a run
//
//	          Claim                Commit or Finish with an outcome       Settle
//	queued ────────▶ running ──────────────────────────────▶ finished ────────▶ settled
//	   ▲                │                                        │  ▲
//	   └─ Release ──────┤                                        └──┘
//	   └─ Requeue ──────┘                               ClaimSettling, Release
//
// A run is live while it is queued or running, and a session has at most one
// live run: its status is active for exactly that time. A finished run is work
// until it is settled, since its terminal record may not be in the stream yet.
// The session's next run may be started in the meantime; it stays queued until
// the former run is settled, so that the stream of a session has one writer and
// its records one order.
//
// # Who owns a run
//
// Each claim raises the epoch of the session by one and notes it in the run.
// A write names the epoch of its claim, and is refused as stale when the
// session has another, when the run was claimed under another, or when the run
// is queued: then its claim was given back or taken away, even though nobody
// has claimed it since. So two owners never write to one session, whatever they
// believe.
//
// # A step
//
// The step in flight is always the session's step_count + 1. Its journal
// holds what must not be done again: the plan (the first one stands) and the
// results of the calls that have ended (the first one of each stands). A
// journal belongs to the session, not to the owner, and so is handed from owner to
// owner. It ends with the commit of its step or with the end of the run, and its
// usage is kept in both cases: the tokens were spent.
//
// The state writes of the results are applied when the step commits, in the
// order of the calls in the plan, before the writes that the commit brings
// itself. They do not depend on which call ended first.
package session
