// Package follow gives a reader everything behind its position in a session: the stored steps, then
// the step in flight, then the end. Every public interface is a thin layer over it.
//
//	        ┌──────── read ───────┐      a gap, a record that does not fit, silence
//	        ▼                     │
//	state: ListSteps ──▶ rewinds, stored steps, the run
//	        │
//	        ▼
//	log: stored records ──▶ live records ──▶ the boundary of the step ──▶ …
//
// # Positions
//
// The state service owns every committed step, and the log owns the step in flight. So each
// position has one owner. A reader with a position
//
//	behind a stored step               continues with the next step
//	inside a rendered step             gets the rest of the rendered step
//	inside an attempt in flight        gets the rest from the log
//	inside an attempt of a step        gets the rest from the log if the log is complete;
//	committed meanwhile                else `rewound` to before the step, then the stored step
//	in void or unknown steps           gets `rewound` to the last valid step
//
// No position is an error.
//
// # Live records
//
// The chunks of an attempt are numbered without gaps. The follower needs neither acknowledgements
// nor a memory of other readers. The first record of an attempt names the position behind which
// everything is void. The boundary of a step names its last chunk; a reader at that chunk has the
// whole step. After any other record, the follower reads the stored steps. If these do not close
// the gap, the log has lost a part of the step in flight, and the follower waits for the next
// attempt or for the step.
//
// # Stored records
//
// The log may be ahead of the database: after a restored backup or a failover, it has records of work
// that the database has lost. A record is sent live if it continues what the reader has. Of the stored
// records, only those of the step in flight and of the session's claim are sent (type claims). A
// boundary among them is no news, because the commit came before it: the follower reads the steps again.
// What the state service does not know then is lost. The next claim begins above it, and its first
// record rewinds readers of lost records.
//
// # Silence
//
// While nothing is live, the follower polls the state service every second: the run is queued or
// waits for another, or the log is down. While a run is executing silently, it polls every few
// seconds, since the log may have lost a boundary.
//
// The poll may find a step whose boundary is not in the log yet. A live reader inside that step
// then waits for the boundary for a moment, because many clients cannot rewind.
//
// # The end
//
// A follow ends with the end of the requested run, or else of the newest run at the
// beginning. If the end comes from the state service, the steps were read after the run had ended.
// The last frame, and only the last, is terminal. The ends of other runs are chunks.
//
// A run that ended before its first step has no stored step. Its begin and its end come before those of the next run.
//
// A run suspended on sub-agents alone is no end while one of them is executing: the run that
// continues its message takes its place. The follow ends if all of them wait for a client.
//
// # Slow readers
//
// Readers share live records. A reader that lags behind their ring is not disconnected: it reads
// the stored steps, as after a gap.
//
// A reader that catches up holds a page of steps, or a call to the stream service, alone. It reads
// the next page after the sink has taken the previous one, and only a few readers hold a large page
// at a time. If the sink stalls, the reader releases the page or call. It continues from its cursor
// once the sink has taken the written frames:
//
//	page or call ──▶ buffered frames ──▶ sink ──▶ client
//	     ▲                               │ stalls
//	     └── read again ◀── the sink is done, or fails and ends the follow
//
// A stalled client thus costs only its buffer of about 48 KiB. To keep that limit for long texts,
// the texts of a stored step come in pieces. A sink without progress must fail by itself.
//
// # Families
//
// A reader of a root may include the sessions below it. Each has its own positions, and a cursor of
// the root cannot express them. So a session below begins with a `rewound` that names it, at the
// beginning of its current run, and is included only while it runs.
package follow
