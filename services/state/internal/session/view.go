package session

// Need says which rows a command wants to be shown beside the session's own.
// What it leaves out, the View leaves empty.
type Need struct {
	RunID      string   // View.Run
	RequestKey string   // View.Keyed; empty for none
	AgentType  string   // View.AgentKnown
	MessageIDs []string // View.Taken
	Open       bool     // View.Live, View.Unsettled
	State      bool     // View.Session.State
	Written    bool     // View.Session.State, but only when a result of the journal writes to it
	Journal    bool     // View.Journal
	Checkpoint bool     // View.Checkpoint
	Tail       Tail     // View.Tail
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
	Session      *Session    // nil: there is no such session
	Run          *Run        // the run that Need.RunID names, or the one that is due; nil: there is none
	Keyed        *Run        // the run that Need.RequestKey started
	Live         *Run        // the run that is queued or running
	Unsettled    *Run        // the run that has finished and is not settled
	HolderSilent bool        // nobody who lives holds Run; only for a run that is due
	AgentKnown   bool        // an executor has announced Need.AgentType
	Taken        []string    // those of Need.MessageIDs that the session has
	Journal      *Journal    // of the step in flight; nil: nothing was recorded
	Checkpoint   *Checkpoint // of the last committed step
	Tail         []Message   // in the order of the conversation
}

// Change is the rows to write, all of them or none. What is nil or empty stays
// as it is.
type Change struct {
	Session      *Session // inserted when Created, else written over the session's row
	Created      bool
	NewState     bool  // Session.State is to be kept as of Session.StateVersion
	NewRun       *Run  // inserted
	Runs         []Run // written over the runs of the same ids
	Messages     []Message
	Plan         *Journal // begins the journal; its Results are not looked at
	Result       *Result  // goes behind the journal's results
	ResultAt     int32    // the place of Result among them
	ClearJournal bool
	Checkpoint   *Checkpoint
	Usage        []UsageEntry
}
