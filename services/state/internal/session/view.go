package session

// Target is a session that a command locks, and what it wants to be shown of
// it.
type Target struct {
	Key
	Need Need
}

// Need says which rows a command wants to be shown beside the session's own.
// What it leaves out, the View leaves empty.
type Need struct {
	RunID           string   // View.Run
	RequestKey      string   // View.Keyed; empty for none
	AgentType       string   // View.AgentKnown
	Executor        string   // View.ExecutorLives
	MessageIDs      []string // View.Taken
	CallIDs         []string // View.Named
	CheckpointID    string   // View.Checkpoint with View.CheckpointState
	CheckpointAt    int32    // View.Checkpoint, when the session's last committed step is this one; 0 for none
	CheckpointBelow int64    // View.Checkpoint: the newest that counts fewer messages than so many; 0 for none
	Current         bool     // View.Current
	Open            bool     // View.Live
	State           bool     // View.Session.State
	Written         bool     // View.Session.State, but only when a result of the journal writes to it
	Journal         bool     // View.Journal
	Calls           bool     // View.Calls
	Children        bool     // View.Children
	Tail            Tail     // View.Tail
	Waiting         bool     // View.Waiting, View.Held
	Busy            bool     // View.OnBusy
	Undo            bool     // View.Kept, View.Told, View.StartState, View.Former
	BackTo          string   // View.Back: a message's id; empty for none
	Answer          string   // View.Answer: the id of a message of the assistant; empty for none
	Retry           bool     // View.Failed
}

// Tail asks for the last messages of the conversation. The zero value asks for
// none.
type Tail struct {
	Messages int // at most so many
	Bytes    int // of bodies, at most; the very last message is shown whatever its size
}

// View is the rows of one session as a command sees them. They stay as they
// are until the command's Change is written. A command must not change them.
type View struct {
	Session         *Session    // nil: there is no such session
	Run             *Run        // the run that Need.RunID names, or the one that is due; nil: there is none
	Keyed           *Run        // the run that Need.RequestKey started
	Current         *Run        // the newest run; nil before the first
	Live            *Run        // the run that is queued or running
	HolderSilent    bool        // nobody who lives holds Run; only for a run that is due
	AgentKnown      bool        // an executor has announced Need.AgentType
	ExecutorLives   bool        // Need.Executor is registered
	Taken           []string    // those of Need.MessageIDs that the conversation has
	TakenAt         []int64     // their ordinals
	Journal         *Journal    // of the step in flight; nil: nothing was recorded
	Checkpoint      *Checkpoint // of this session; nil: it has no such checkpoint
	CheckpointState string      // the custom state as of Checkpoint; only for Need.CheckpointID
	Calls           []Call      // those of the session that are not consumed, or late and not told, by their time of creation, then id
	Named           []Call      // those of Need.CallIDs that the session's family has, by id
	Children        []Child     // by session id
	Tail            []Message   // in the order of the conversation
	Waiting         []Waiting   // in the order in which they will begin
	Held            *Held       // of the first of these
	OnBusy          BusyPolicy  // what the session's agent has announced; never empty when it is shown

	// For taking the newest run back.
	Kept       []Message   // from its StartMessageCount on those that it spares (Run.Spares)
	Told       []Call      // whose late answers its steps have told of, by id
	StartState string      // the custom state as of its beginning; empty when that is not known
	Former     *Checkpoint // the newest of former runs; nil: there is none

	Back   *Back       // around the message that Need.BackTo names; nil: the conversation has none
	Answer *AnswerRun  // what Need.Answer names; nil: it names nothing, or there is no session
	Failed *FailedStep // where the newest run can be tried again; nil before the first run
}

// AnswerRun is the newest run that has written a message of the assistant.
type AnswerRun struct {
	Run    *Run      // nil: no run of the session has written at it
	Stands bool      // where the run began stands its own message, or none: nothing has taken its place
	Asked  []Message // of the role user and of no step, before what the run has written: at most MostAsked, the newest first
}

// MostAsked is among how many messages of users the question of an answer is looked for.
const MostAsked = 20

// FailedStep is what there is of the newest run besides its first messages.
type FailedStep struct {
	Good     *Checkpoint // the run's newest of another status than failed; nil: it has none
	State    string      // the custom state as of Good; empty when that is not kept
	Messages []Message   // of the run and the step that has ended it (Run.FinishStep), in the order of the conversation; none where no step has
}

// Waiting is a run that waits.
type Waiting struct {
	Run
	MessageIDs []string // of the messages that it keeps
}

// Held is what a run keeps while it waits. It becomes part of the conversation when the run
// begins.
type Held struct {
	Messages []Message `json:"messages,omitempty"`
}

// MessageIDs returns the ids of the messages that are kept.
func (h *Held) MessageIDs() []string { return messageIDs(h.Messages) }

// Change is the rows to write, all of them or none. What is nil or empty stays
// as it is. The exported fields are written in their order.
type Change struct {
	Delete  bool     // everything that belongs to the session goes away; nothing else is looked at
	Session *Session // inserted when Created, else written over the session's row
	Created bool

	Rewind *Rewind // what goes away at the end of the conversation
	Copy   *Copy   // messages of another session to begin with

	NewState     bool      // Session.State is kept as a whole, as of Session.StateVersion, which Session.StateBase equals
	StateWrite   []StateOp // kept instead of the whole, as of Session.StateVersion, when Session.StateBase is lower
	Runs         []Run     // written over the runs of the same ids
	Begun        *Run      // that has waited, written over with its turn; Runs may hold the one that it takes over from
	NewRun       *Run      // inserted; likewise, so that one run is live at any moment
	Held         *Held     // of NewRun, which waits
	Unheld       []string  // these runs do not wait any more: what they keep goes away
	Messages     []Message
	Plan         *Journal // begins the journal; its Results are not looked at
	Result       *Result  // goes behind the journal's results
	ResultAt     int32    // the place of Result among them
	ClearJournal bool
	Checkpoint   *Checkpoint
	Usage        []UsageEntry
	DropCalls    []string // these calls of the session go away
	NewCalls     []Call   // inserted under the session's root
	Calls        []Call   // written over the calls of the same ids
	Children     []Child  // inserted, or written over those of the same ids

	newChild    *Child   // of a created sub-session: what its parent is to know of it; read by Family.Spread
	endChildren []string // the sub-sessions that end, since the calls that they are for are taken back; read by Family.Spread
	endWaiting  bool     // the runs that wait end with the session; read by Family.Spread
}

// Rewind takes back the end of a session. What it names must be there.
type Rewind struct {
	Messages     int64  // the messages from this ordinal on go away, and the checkpoints that count more than so many
	StateVersion int64  // the states that were written later go away, with their checkpoints; 0 keeps all
	RunID        string // the checkpoints of this run go away too; empty for no run
	Step         int32  // the checkpoints of later steps go away too, also those that count no more and changed nothing; 0 for no step
	CallsFrom    int32  // the calls of this step and of later ones go away; 0 keeps all
}

// Copy takes over the first messages of a session of the same tenant, whose
// row the same command has locked.
type Copy struct {
	From     string // a session id
	Messages int64
}
