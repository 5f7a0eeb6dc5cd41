package worker

// Point is a moment between two effects of a run. If the process dies there, the effects before it
// have happened, and those behind it have not.
type Point string

// The points, in the order in which a run may pass them.
const (
	PointClaimed      Point = "claimed"       // nothing was done for the run
	PointDrained      Point = "drained"       // answers were read, nothing was done with them
	PointModelCalled  Point = "model_called"  // the first event of a reply has come
	PointReplied      Point = "replied"       // the reply is whole
	PointPlanRecorded Point = "plan_recorded" // no call has begun
	PointCallBegins   Point = "call_begins"   // the tool is about to be entered
	PointCallEnded    Point = "call_ended"    // the tool has returned, its result is not recorded
	PointCallRecorded Point = "call_recorded" // readers have not seen the result
	PointCallTold     Point = "call_told"     // the end of the call was shown
	PointCallsEnded   Point = "calls_ended"   // all calls have ended, nothing is committed
	PointCommitBegins Point = "commit_begins" // all of the step was shown
	PointCommitted    Point = "committed"     // readers have not seen that the step is
	PointStopSeen     Point = "stop_seen"     // a stop or deadline was noticed, nothing was done about it
	PointStopKept     Point = "stop_kept"     // what was under way has ended, the end is not committed
	PointFinishing    Point = "finishing"     // a run is about to be ended outside of a step
	PointFinished     Point = "finished"      // the outcome is durable, readers have not seen it
	PointReleasing    Point = "releasing"     // the run is about to be given back
)
