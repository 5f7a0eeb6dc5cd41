package session

// Target is a session to lock, and the rows to read.
type Target struct {
	Key
	Need  Need
	Owner string // the only user whose session may be seen or changed; empty for any
}

// CheckOwner gives NotFound (SESSION_NOT_FOUND) for an existing session of another user.
func (t Target) CheckOwner(v *View) error {
	if v.Session == nil || (Caller{Owner: t.Owner}).Reaches(v.Session) {
		return nil
	}
	return SessionNotFound(t.Key)
}

// Need lists the rows to read beside the session's own. A field fills the field of View with
// the same name, or the fields in its comment; View leaves the others empty.
type Need struct {
	RunID           string // Run
	RequestKey      string // KeyedRun; empty for none
	AgentType       string // Agent
	Definition      bool
	ExecutorID      string   // ExecutorRegistered
	MessageIDs      []string // TakenIDs, TakenOrdinals
	CallIDs         []string // NamedCalls
	CallsOfStep     bool     // CallIDs are those that a step opens, consumes or reports: NamedCalls may lack calls that it cannot change
	CheckpointID    string   // Checkpoint, CheckpointState
	CheckpointStep  int32    // Checkpoint, if the last committed step is this one; 0 for none
	CheckpointBelow int64    // Checkpoint: the newest with fewer messages than this; 0 for none
	Current         bool
	Live            bool
	State           bool // Session.State
	StateIfWritten  bool // Session.State, if a result of the journal has state writes
	Journal         bool
	Calls           bool
	Children        bool
	LiveBelow       int // the largest number to count up to; 0 for none
	Tail            Tail
	Waiting         bool // Waiting, WaitingInput
	OwnAgent        bool
	Undo            bool   // KeptMessages, ReportedLate, StartState, FormerCheckpoint
	RewindToMessage string // RewindPoint: id of the message; empty for none
	AnswerID        string // Answer: id of an assistant message; empty for none
	AskedFrom       int64  // Asked: the first ordinal; 0 for none
	FailedStep      bool   // Failed
	Stored          bool
	StoreKeys       []string // StoredKeys
}

// Tail bounds the last messages of the conversation. The zero value asks for none.
type Tail struct {
	MaxMessages int
	MaxBytes    int // of bodies; the last message is always included
}

// View is the rows of one session for a command. The store holds them locked until the Change
// is written. A command must not modify them.
type View struct {
	Session            *Session     // nil if it does not exist
	Run                *Run         // named by Need.RunID, or the due run; nil for none
	KeyedRun           *Run         // begun by Need.RequestKey
	Current            *Run         // the newest run; nil before the first
	Live               *Run         // queued or running
	OwnerUnregistered  bool         // no registered executor owns Run; only for due runs
	Agent              *Agent       // Need.AgentType, as an executor has announced it or as the tenant has stored it; nil if neither has
	Definition         string       // the hash of the tenant's stored definition of Session.AgentType; empty for none
	ExecutorRegistered bool         // Need.ExecutorID is registered
	TakenIDs           []string     // existing ids of Need.MessageIDs
	TakenOrdinals      []int64      // of the messages in TakenIDs
	Journal            *Journal     // of the step in flight; nil if nothing is recorded
	Checkpoint         *Checkpoint  // nil if the session does not have it
	CheckpointState    string       // the custom state of Checkpoint; only for Need.CheckpointID
	Calls              []Call       // the session's calls that are unconsumed, or have an unreported late answer; by creation time, then id
	NamedCalls         []Call       // existing calls of Need.CallIDs in the family; by id
	Children           []Child      // by session id
	LiveBelow          int          // the tree's sessions below its root that have not ended, at most Need.LiveBelow
	Tail               []Message    // in the order of the conversation
	Waiting            []WaitingRun // in the order in which they will begin
	WaitingInput       *RunInput    // of the first waiting run
	OwnAgent           *Agent       // the session's agent, as Agent; without a Type if there is none

	// For the undo of the newest run.
	KeptMessages     []Message   // messages since its start that the undo keeps
	ReportedLate     []Call      // calls whose late answer it has reported; by id
	StartState       string      // the custom state at its start; empty if unknown
	FormerCheckpoint *Checkpoint // the newest of earlier runs; nil for none

	RewindPoint *RewindPoint // nil if the conversation does not have the message
	Answer      *AnswerRun   // nil if there is no such message or session
	Asked       []Asked      // from Need.AskedFrom on, in the order of the conversation, at most MaxQuestions; nil if they were not read
	Failed      *FailedStep  // of the newest run; nil before the first
	Stored      Removed      // the rows that belong to the session, by table
	StoredKeys  []StoredKey  // the existing ones of Need.StoreKeys, in no order
}

// nextVersion returns the session's row for writing, with its version raised.
func (v *View) nextVersion(now Millis) *Session {
	s := *v.Session
	s.Version++
	s.UpdatedAt = now
	return &s
}

// AnswerRun is the newest run with a part of an assistant message.
type AnswerRun struct {
	Run             *Run      // nil if no run of the session has
	QuestionInPlace bool      // the run's first message, if it has one, is still in its place
	Questions       []Message // user messages before the answer, outside of steps: the newest first, at most MaxQuestions
}

// Asked is a message of a user outside of steps that belongs to a run.
type Asked struct {
	Message
	StartedBy string // of the run
}

// MaxQuestions is the number of user messages in the search for the question of an answer, or for messages missing in a
// client.
const MaxQuestions = 20

// FailedStep is the part of the newest run that a retry replaces or keeps.
type FailedStep struct {
	Checkpoint *Checkpoint // the run's newest with another status than failed; nil for none
	State      string      // the custom state of Checkpoint; empty if it was deleted
	Messages   []Message   // of the step that has ended the run, in the order of the conversation; empty if no step has
}

// WaitingRun is a run that waits for the live one.
type WaitingRun struct {
	Run
	MessageIDs []string // of its own messages
}

// RunInput is the input of a waiting run. It becomes part of the conversation when the run begins.
type RunInput struct {
	Messages []Message `json:"messages,omitempty"`
}

// MessageIDs returns the ids of the messages.
func (h *RunInput) MessageIDs() []string { return messageIDs(h.Messages) }
