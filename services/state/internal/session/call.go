package session

// Call is a call that is answered from outside: a client tool, the approval of a server tool, a
// sub-agent, whose end is the answer, or a tool whose result comes by callback. One row holds the open call, its owner, its answer and
// the consumed answer, so readers never see one without the others.
type Call struct {
	CallID     string // unique in the family
	SessionID  string // the owner
	RunID      string // the run that suspended on it; empty for an orphan, whose run or session has failed
	Step       int32
	StepID     string
	ToolName   string
	Kind       CallKind
	ApprovalID string // of an approval
	Input      string // JSON
	Stash      []byte // opaque message that waits for the answer; nil for none
	CreatedAt  Millis
	DeadlineAt Millis // 0 for none
	ChildID    string // of the child that answers a SubAgent call; an earlier version left it empty: see Child.CallID

	Answer     AnswerKind // empty while the call is open
	Revision   int32      // number of answers; a late answer may replace a timeout
	Response   []byte     // opaque answer for the next step
	AnsweredAt Millis
	ConsumedAt Millis // when a step consumed the answer; the row is a tombstone afterwards

	ConsumedStep int32 // the consuming step; 0 before, and if the end of the run consumed it

	Late         []byte // opaque answer after a consumed timeout
	LateAt       Millis // 0 for none
	LateReported bool   // a step has reported the late answer to the model

	LateReportedStep int32 // the reporting step; 0 before

	Approvers  Approvers
	StartedBy  string // as Run.StartedBy, of the run that made the call
	Author     string // as Run.Author
	AnsweredBy string // the actor of the client's answer, in time or late; empty if unknown
}

// CallKind is the kind of answer that a call accepts.
type CallKind string

// The kinds of calls.
const (
	ClientTool CallKind = "client_tool"
	Approval   CallKind = "approval"
	SubAgent   CallKind = "sub_agent" // Call.ChildID answers it; see Family
	Callback   CallKind = "callback"  // another system posts the result
)

// AnswerKind is the source of an answer.
type AnswerKind string

// The sources.
const (
	AnswerClient    AnswerKind = "client"
	AnswerTimeout   AnswerKind = "timeout"   // the deadline has passed
	AnswerAbandoned AnswerKind = "abandoned" // the call was abandoned for a new message
	AnswerChild     AnswerKind = "child"     // the child has ended
)

func (c Call) isOpen() bool { return c.Answer == "" }

// isAwaited reports whether the call holds a suspended session: it is open, and its run
// has not failed.
func (c Call) isAwaited() bool { return c.isOpen() && c.RunID != "" }

// awaitsChild reports whether the call waits for a child.
func (c Call) awaitsChild() bool { return c.isOpen() && c.Kind == SubAgent }

// isFor reports whether the child answers the call.
func (c Call) isFor(child Child) bool {
	if c.ChildID == "" {
		return c.CallID == child.CallID
	}
	return c.ChildID == child.SessionID
}

// AwaitsClient reports whether a suspended session waits for a client to answer the call.
func (c Call) AwaitsClient() bool { return c.isAwaited() && !c.awaitsChild() }

// CountAwaited counts the calls that await a client.
func CountAwaited(calls []Call) (n int) {
	for _, call := range calls {
		if call.AwaitsClient() {
			n++
		}
	}
	return n
}

// withAnswer returns the call with a new, unconsumed answer.
func (c Call) withAnswer(by AnswerKind, response []byte, now Millis) Call {
	c.Answer, c.Response, c.AnsweredAt = by, response, now
	c.Revision++
	return c
}
