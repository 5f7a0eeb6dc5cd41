package worker

// Point is a moment between two effects of a run. If the process dies there, the earlier effects have happened
// and the later ones have not.
type Point string

// The points, in the order of a run.
const (
	PointClaimed      Point = "claimed"       // nothing has been done for the run
	PointDrained      Point = "drained"       // answers were read and not yet used
	PointContextGiven Point = "context_given" // the agent has returned rows of context; they are not stored
	PointModelCalled  Point = "model_called"  // the first event of a reply was received
	PointReplied      Point = "replied"       // the reply is complete
	PointPlanRecorded Point = "plan_recorded" // no call has begun
	PointCallBegins   Point = "call_begins"   // the tool is about to be called
	PointCallEnded    Point = "call_ended"    // the tool has returned; its result is not recorded
	PointCallRecorded Point = "call_recorded" // readers have not seen the result
	PointCallReported Point = "call_reported" // readers were shown the end of the call
	PointCallsEnded   Point = "calls_ended"   // all calls have ended; nothing is committed
	PointCommitBegins Point = "commit_begins" // readers were shown the complete step
	PointCommitted    Point = "committed"     // readers were not shown the commit
	PointStopSeen     Point = "stop_seen"     // a stop or deadline was noticed; nothing was done about it
	PointStopKept     Point = "stop_kept"     // the effect in progress has ended; the end of the run is not committed
	PointFinishing    Point = "finishing"     // the run is about to end outside of a step
	PointFinished     Point = "finished"      // the outcome is durable; readers were not shown it
	PointReleasing    Point = "releasing"     // the run is about to be released
)
