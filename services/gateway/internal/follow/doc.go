// Package follow gives a reader of a session everything behind its position: the stored
// steps, then the step in flight, then the end. Every public interface is a thin layer
// over it.
//
//	        ┌──────── ask ────────┐      a gap, a record that does not fit, silence
//	        ▼                     │
//	state: ListSteps ──▶ what still stands, stored steps, the run
//	        │
//	        ▼
//	log: stored records ──▶ live records ──▶ the boundary of the step ──▶ …
//
// # What a position means
//
// The state service owns every committed step and the log owns the step in flight, so each
// position has one owner. A reader that stands
//
//	behind a step that is stored        goes on with the next one
//	inside a rendering                  gets the rest of the rendering
//	inside an attempt that is in flight gets the rest from the log
//	inside an attempt that became the   gets the rest from the log if it has all of it;
//	step meanwhile                      else `rewound` to before the step, and the step as stored
//	at what was taken back, or at what  is told `rewound` to the last step that stands
//	never was
//
// No position is an error.
//
// # Live records
//
// The chunks of an attempt are numbered without gaps, so the follower needs no
// acknowledgement and no memory of other readers. The first record of an attempt says
// behind which position everything is void. The boundary of a step names the last chunk that
// the step consists of; who stands there has the step. Whatever does not fit is a
// question to the state service. When the answer does not close the gap, the log has
// lost a part of the step in flight: the follower waits for the next attempt or for the
// step.
//
// # Silence
//
// While nothing is live (the run is queued or waits behind another one, or the log is away),
// the state service is asked every second. While a run is at work and says nothing, it is
// asked every few seconds, since a boundary may be lost with the log.
//
// # The end
//
// With a run, the follow ends with that run's end, otherwise with the end of the run that
// was the newest at the beginning. Exactly one terminal frame is given, the last one. The ends
// of other runs are chunks.
//
// # Slow readers
//
// Live records are shared. A reader that falls behind their ring is not cut: it asks the state
// service, as after a gap.
//
// A reader that catches up holds something for itself: a page of steps, or a call to the stream
// service. The next page is read when the sink has taken the one before, and only a few readers
// hold a large page at a time. When the sink takes nothing for a while, the reader gives up what
// it holds, and goes on from its cursor when the sink has taken what was written:
//
//	page or call ──▶ waiting frames ──▶ sink ──▶ client
//	     ▲                               │ takes nothing
//	     └── ask again ◀── the sink is done, or fails and ends the follow
//
// A client that takes nothing thus costs what waits for it, some 32 KiB. So that this holds
// for a long text as well, the text of a stored step comes in pieces. A sink that makes no
// progress has to fail by itself.
//
// # Families
//
// A reader of a root may have the sessions below it as well. Each has positions of its own,
// which no cursor of the root can name: a session below is told from the beginning of its
// current run, after a `rewound` that names it, and only while it is running.
package follow
