// Package store is how the state service remembers: rows in, rows out, and no
// rule of its own. The rules are in package session.
//
// An implementation shows a command the rows of the sessions that it names,
// which nobody else changes meanwhile, and writes what the command decides, all
// of it or nothing. Transactions, locks, retries and batches stay behind the
// interface: commands that arrive together are written together (package group)
// without any caller noticing.
//
// When Update or UpdateDue answers nil, the change survives the death of the
// process at any later instruction (the memory store, which is for tests, keeps
// it as long as the process lives). A store that cannot be reached gives
// Unavailable (STORE_UNAVAILABLE): nothing was written, or everything was and only
// the answer was lost. Commands that are sent again after that find out which.
//
// All methods may be called by many goroutines at once. What they return
// belongs to the caller; what they are given is not kept.
package store

import (
	"context"
	"io"

	"github.com/holdfast-run/holdfast/pkg/fault"
	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// Store is everything that the state service asks of its database.
type Store interface {
	Updater
	Reader
	Registry
	Lister
	Accounts
	Memories
	io.Closer
}

// Signaler is a store that several replicas of the service share and that carries what
// they have to tell each other. Signals are as good as those of a bell: they may be lost,
// come twice, or late; what they are about is in the rows.
type Signaler interface {
	// Signal tells all other replicas that hear. A signal has no zero characters and at
	// most 4 KiB.
	Signal(ctx context.Context, signals []string) error

	// Hear gives hear the signals of the others, one at a time, until ctx ends or it
	// cannot hear any more, which the error says.
	Hear(ctx context.Context, hear func(signal string)) error
}

// Decide is a command of package session: a pure function from the sessions
// shown to the rows to write in each. It may be called several times for one
// Update, and only the last call counts. A nil change writes nothing in its
// session, and nil for all of them nothing at all; an error aborts with nothing
// written and comes back as it is.
type Decide func([]*session.View) ([]*session.Change, error)

// DecideDue is a command on one run that is due.
type DecideDue func(*session.View) (*session.Change, error)

// Updater runs commands.
type Updater interface {
	// Update shows decide the sessions of the targets, in the order of the
	// targets, and writes its changes, all or none of them. The targets name
	// different sessions, of any tenants, and there is at least one. bytes is
	// about how much memory the command holds while it waits.
	//
	// Exhausted (QUEUE_FULL) when too much is waiting already: nothing was
	// written.
	Update(ctx context.Context, targets []session.Target, bytes int, decide Decide) error

	// UpdateDue finds at most limit runs that are due, shows each to decide in
	// a view of its own, and writes the changes. The run that is due is
	// View.Run, and View.HolderSilent is always filled.
	// It returns what was written, in the order of the runs.
	//
	// A session that another UpdateDue works on at the moment is passed over,
	// not waited for. So two callers never get the same run, and an empty answer
	// does not say that nothing is due.
	UpdateDue(ctx context.Context, due Due, need session.Need, limit int, decide DecideDue) ([]Decided, error)
}

// Decided is a change that was written, and the rows as they were before it.
type Decided struct {
	View   *session.View
	Change *session.Change
}

// Due names a kind of work that runs wait for: Queued, Orphaned, Silent or
// Lost.
type Due interface{ due() }

// Queued are the runs of the agents that wait for an executor, the oldest
// first, but for those that are to wait until after Now. None are due for an executor that is
// not registered.
type Queued struct {
	ExecutorID string
	AgentTypes []string
	Now        session.Millis
}

// Orphaned are the runs of the agents that no registered executor announces, as
// far as they need no agent to end: those that Queued would find of them with a
// stop or with a deadline that is not after Now, about the oldest first. None are due for an executor that is not
// registered.
type Orphaned struct {
	ExecutorID string
	Now        session.Millis
}

// Silent are the running runs whose executor is not registered, in no order.
type Silent struct{}

// Lost are the running runs that the executor has claimed
// before a time and does not hold, in no order.
type Lost struct {
	ExecutorID    string
	Held          []string
	ClaimedBefore session.Millis // exclusive
}

func (Queued) due()   {}
func (Orphaned) due() {}
func (Silent) due()   {}
func (Lost) due()     {}

// Reader reads what is stored of one session. Each answer is as of one moment.
// NotFound (SESSION_NOT_FOUND) when there is no such session.
type Reader interface {
	// Session returns the session and what hangs on it.
	Session(ctx context.Context, key session.Key) (*Snapshot, error)

	// Run returns a run. NotFound (RUN_NOT_FOUND).
	Run(ctx context.Context, key session.Key, runID string) (*session.Run, error)

	// Runs returns at most limit runs that have begun, the newest first, of a
	// turn below beforeTurn where that is not 0, without their outputs.
	Runs(ctx context.Context, key session.Key, beforeTurn int32, limit int) ([]session.Run, error)

	// Waiting returns the runs that wait, in the order in which they will begin.
	Waiting(ctx context.Context, key session.Key) ([]session.Run, error)

	// Messages returns a page of the conversation in its order, and the number
	// of messages that the session has.
	Messages(ctx context.Context, key session.Key, page Page) ([]session.Message, int64, error)

	// Checkpoint returns a checkpoint and the custom state as of it; with an
	// empty id the newest one. NotFound (CHECKPOINT_NOT_FOUND).
	Checkpoint(ctx context.Context, key session.Key, id string) (*session.Checkpoint, string, error)

	// Checkpoints returns at most limit checkpoints, the newest first, of a
	// step below beforeStep where that is not 0, after leaving out offset of
	// them; and how many the session has.
	Checkpoints(ctx context.Context, key session.Key, beforeStep int32, offset, limit int) ([]session.Checkpoint, int64, error)

	// Steps returns a page of the session's committed steps as readers may see them.
	Steps(ctx context.Context, key session.Key, page StepPage) (*Steps, error)

	// Owners returns the ids of the sessions that own calls of the family that the
	// session belongs to, by call id. A call that the family does not have is left
	// out.
	Owners(ctx context.Context, key session.Key, callIDs []string) (map[string]string, error)

	// Family returns the session and the sub-sessions below it, however deep,
	// a parent before its children; at most limit.
	Family(ctx context.Context, key session.Key, limit int) ([]session.Key, error)
}

// Snapshot is a session as of one moment.
type Snapshot struct {
	Session  session.Session // with its custom state
	Current  *session.Run    // the newest run; nil before the first
	Open     int             // the calls of the whole family that somebody waits for: without an answer, and of a run that has not failed
	Calls    []session.Call  // not consumed; of a root those of the whole family; by their time of creation, then id
	Children []session.Child // by session id
	Waiting  []session.Run   // in the order in which they will begin
}

// Page is a range of a conversation. It ends with the last message of the
// session, after Limit messages, or before the message whose body would bring
// the bodies above MaxBytes; the first message counts whatever its size.
type Page struct {
	From     int64 // an ordinal
	Limit    int
	MaxBytes int
}

// StepPage is a range of the steps of a session. It ends with the last step, after
// Limit steps, or before the step whose record and messages would bring the page above
// MaxBytes; the first step counts whatever its size.
type StepPage struct {
	After    int32  // steps above this one
	RunID    string // only steps of this run; empty for all
	Limit    int    // at least 1
	MaxBytes int
}

// Steps is a page of steps, and their session as of the same moment.
type Steps struct {
	Session session.Session // without its custom state
	Current *session.Run    // the newest run; nil before the first
	Page    []session.StoredStep
	Runs    []session.Run // of the page, each once, in the order of their steps, without outputs
	More    bool          // steps follow the page
	Stands  int32         // the highest stored step that is not above StepPage.After; 0 for none
}

// Lister finds sessions. Each answer is as of one moment, and found by index.
type Lister interface {
	// Sessions returns a page of the tenant's sessions, the youngest first, of
	// equal age the higher id (by its bytes) first, without their custom states
	// and outputs.
	Sessions(ctx context.Context, tenant string, q SessionQuery) ([]session.Session, error)

	// CountSessions counts the sessions that fit, the place of the page aside. It
	// stops at most where that is not 0.
	CountSessions(ctx context.Context, tenant string, q SessionQuery, most int) (int64, error)

	// Overdue returns at most limit sessions with an open call whose deadline
	// is not after now, the longest overdue first.
	Overdue(ctx context.Context, now session.Millis, limit int) ([]session.Key, error)

	// Expired returns at most limit sessions that are not completed or failed
	// and whose ExpiresAt is set and not after now, the longest expired first.
	Expired(ctx context.Context, now session.Millis, limit int) ([]session.Key, error)
}

// SessionQuery says which sessions, and which page of them. The zero value of a
// condition leaves it out.
type SessionQuery struct {
	All    []session.Facet // the session has each of them
	Any    []session.Facet // the session has one of them
	From   session.Millis  // created at this time or later
	Before session.Millis  // created before this time
	After  *SessionPlace   // the page begins behind this place
	Offset int
	Limit  int // at least 1
}

// SessionPlace is a place in a list of sessions.
type SessionPlace struct {
	CreatedAt session.Millis
	SessionID string
}

// Accounts knows what was measured. Entries are written by commands.
type Accounts interface {
	// UsageEntries returns a page of a session's entries in the order of their
	// recording: by time, then run, step and position. NotFound
	// (SESSION_NOT_FOUND).
	UsageEntries(ctx context.Context, key session.Key, kinds []session.UsageKind, offset, limit int) ([]session.UsageEntry, error)

	// UsageSums adds entries up, one sum for each bucket and each kind, source,
	// model, tool, type and name, sorted by these. At most limit sums.
	UsageSums(ctx context.Context, tenant string, q UsageQuery, limit int) ([]UsageSum, error)
}

// UsageQuery says which entries are added up. The zero value of a condition
// leaves it out.
type UsageQuery struct {
	Sessions  []string // of these sessions
	Family    string   // of this session and the sub-sessions below it
	RunID     string
	UserID    string // of the sessions of this user
	AgentType string // of the sessions of this agent
	Kinds     []session.UsageKind
	Models    []string
	From      session.Millis // recorded at this time or later
	Before    session.Millis // recorded before this time
	Bucket    session.Millis // the length of a bucket; 0 for one bucket
}

// UsageSum is the sum of entries that are alike.
type UsageSum struct {
	Bucket  session.Millis // when the bucket begins, a multiple of its length; 0 for one bucket
	Usage   session.Usage  // Kind, Source, Model, Tool, Type and Name are those of the entries; the numbers are sums
	Count   int64
	Success int64 // how many entries say so
	First   session.Millis
	Last    session.Millis
}

// Memories keeps facts that outlive sessions.
type Memories interface {
	// Remember adds a record, or writes it over the one with the same id; then
	// CreatedAt stays. It reports which.
	Remember(ctx context.Context, tenant string, m session.Memory) (added bool, err error)

	// Memory returns a record. NotFound (MEMORY_NOT_FOUND).
	Memory(ctx context.Context, tenant, id string) (*session.Memory, error)

	// Recall returns the records that have one of the words, those with more of
	// them first, then the later updated, then the lower id. A query without
	// words gives every record, the later updated first.
	Recall(ctx context.Context, tenant string, q MemoryQuery) ([]Recalled, error)

	// ForgetMemory deletes a record. It reports false when there is none.
	ForgetMemory(ctx context.Context, tenant, id string) (bool, error)

	// Entities returns the pairs of entity and source that records have, sorted,
	// and how many each has; at most limit, behind the pair after.
	Entities(ctx context.Context, tenant string, after EntityCount, limit int) ([]EntityCount, error)
}

// MemoryQuery says which records are searched. The zero value of a condition
// leaves it out.
type MemoryQuery struct {
	Words    []string // each once, as session.Words gives them
	EntityID string
	Source   string
	MinHits  int // at least so many of the words
	Limit    int // at least 1
}

// Recalled is a record and how many of the words it has.
type Recalled struct {
	session.Memory
	Hits int
}

// EntityCount is how many records an entity has from a source.
type EntityCount struct {
	EntityID string
	Source   string
	Count    int64
}

// Registry knows the executors that live and the agents that they serve.
type Registry interface {
	// Announce registers an executor, anew when it was forgotten, and keeps
	// its agents for good. A later description of an agent takes the place of
	// an earlier one. The executor announces these agents and no others until it
	// is struck off or announces itself again.
	Announce(ctx context.Context, executorID string, agents []session.Agent, now session.Millis) error

	// Beat notes that the executor lives. It reports false, and does nothing,
	// when the executor is not registered.
	Beat(ctx context.Context, executorID string, now session.Millis) (known bool, err error)

	// Stops returns the runs that the executors run and somebody has asked to
	// stop, by run id. It costs by how many those are, and so may be asked often.
	Stops(ctx context.Context, executorIDs ...string) ([]StoppedRun, error)

	// Forget strikes the executors off that have not been heard since before
	// the time, and returns how many those were.
	Forget(ctx context.Context, heardBefore session.Millis) (int, error)

	// Heard returns the registered executors and when each was last heard.
	Heard(ctx context.Context) (map[string]session.Millis, error)

	// ForgetUnheard strikes those of the executors off that have not been heard
	// since, which is to say whose time is still the one given, as Heard has told
	// it: no other, so that no two clocks are compared. One that is being heard
	// at the moment stays. It returns those that are gone, in no order.
	ForgetUnheard(ctx context.Context, since map[string]session.Millis) ([]string, error)

	// Agents returns every agent that was ever announced, by type.
	Agents(ctx context.Context) ([]session.Agent, error)
}

// StoppedRun is a run that somebody has asked to stop.
type StoppedRun struct {
	ExecutorID string
	RunID      string
	Stop       session.Stop
}

// Unavailable is the fault of a store that cannot be reached, around the
// reason for it, which is for the log and does not travel.
func Unavailable(err error) error { return &unavailable{err} }

type unavailable struct{ cause error }

func (u *unavailable) Error() string { return "store unavailable: " + u.cause.Error() }

func (u *unavailable) Unwrap() []error {
	return []error{
		fault.New(fault.Unavailable, "STORE_UNAVAILABLE", "the database cannot be reached or is overloaded; send the same request again in a moment"),
		u.cause,
	}
}
