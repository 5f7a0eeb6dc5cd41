// Package remote executes the runs of an agent of another Holdfast: it copies the work there into a session of this one.
//
// A session of a remote agent is a session like any other: it has runs, steps, messages and a stream, it can be a
// root, a sub-agent or a companion, and any executor may run it. Only its steps come from the other Holdfast, over its
// public API, in place of a model and tools.
//
//	other Holdfast ──chunks──▶ Mirror ──chunks──▶ Run.Show: the stream of the session here
//	       ▲                     └─────step──────▶ Run.Commit: a commit here for each commit there
//	       └──start, resume, answers, stops── Copier
//
// Nothing is copied twice or lost. The chunks of a step not committed here are read again by the next owner
// of the run, in a new attempt. Each commit here stores the number of the step there, so a committed step is not copied
// again.
//
// Calls there that wait for a client become calls of the session here. Their answers are sent to the other Holdfast. A call
// there whose result comes by callback does not: the run here goes on as its result is posted there.
//
// A Run is what the Copier needs of the run here. Package worker implements it.
package remote
