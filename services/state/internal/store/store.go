// Package store is how the state service remembers: rows in, rows out, and no
// rule of its own. The rules are in package session.
//
// An implementation shows a command the rows of one session, which nobody
// else changes meanwhile, and writes what the command decides, all of it or
// nothing. Transactions, locks, retries and batches stay behind the interface, so
// that commands which arrive together may later be written together without
// any caller noticing.
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
	io.Closer
}

// Decide is a command of package session: a pure function from the rows shown
// to the rows to write. It may be called several times for one Update, and only
// the last call counts. nil for the change writes nothing; an error aborts with
// nothing written and comes back as it is.
type Decide func(*session.View) (*session.Change, error)

// Updater runs commands.
type Updater interface {
	// Update shows decide the session and what need names of its rows, and
	// writes its change.
	Update(ctx context.Context, key session.Key, need session.Need, decide Decide) error

	// UpdateDue finds at most limit runs that are due, shows each to decide in
	// a view of its own, and writes the changes. The run that is due is
	// View.Run, and View.Unsettled and View.HolderSilent are always filled.
	// It returns what was written, in the order of the runs.
	//
	// A session that another UpdateDue works on at the moment is passed over,
	// not waited for. So two callers never get the same run, and an empty answer
	// does not say that nothing is due.
	UpdateDue(ctx context.Context, due Due, need session.Need, limit int, decide Decide) ([]Decided, error)
}

// Decided is a change that was written, and the rows as they were before it.
type Decided struct {
	View   *session.View
	Change *session.Change
}

// Due names a kind of work that runs wait for: Queued, Unsettled, Silent or
// Lost.
type Due interface{ due() }

// Queued are the runs of the agents that wait for an executor, the oldest
// first, but for those whose session has a former run that is not settled. None
// are due for an executor that is not registered.
type Queued struct {
	ExecutorID string
	AgentTypes []string
}

// Unsettled are the finished runs of the agents whose terminal record nobody
// who lives is writing, the oldest first. None are due for an executor that is
// not registered.
type Unsettled struct {
	ExecutorID string
	AgentTypes []string
}

// Silent are the running runs whose executor is not registered, in no order.
type Silent struct{}

// Lost are the runs, running or unsettled, that the executor has claimed
// before a time and does not hold, in no order.
type Lost struct {
	ExecutorID    string
	Held          []string
	ClaimedBefore session.Millis // exclusive
}

func (Queued) due()    {}
func (Unsettled) due() {}
func (Silent) due()    {}
func (Lost) due()      {}

// Reader reads what is stored. Each answer is as of one moment.
type Reader interface {
	// Session returns the session with its custom state, and its newest run.
	// NotFound (SESSION_NOT_FOUND).
	Session(ctx context.Context, key session.Key) (*session.Session, *session.Run, error)

	// Run returns a run. NotFound (SESSION_NOT_FOUND, RUN_NOT_FOUND).
	Run(ctx context.Context, key session.Key, runID string) (*session.Run, error)

	// Runs returns at most limit runs, the newest first, of a turn below
	// beforeTurn where that is not 0. NotFound (SESSION_NOT_FOUND).
	Runs(ctx context.Context, key session.Key, beforeTurn int32, limit int) ([]session.Run, error)

	// Messages returns a page of the conversation in its order, and the number
	// of messages that the session has. NotFound (SESSION_NOT_FOUND).
	Messages(ctx context.Context, key session.Key, page Page) ([]session.Message, int64, error)
}

// Page is a range of a conversation. It ends with the last message of the
// session, after Limit messages, or before the message whose body would bring
// the bodies above MaxBytes; the first message counts whatever its size.
type Page struct {
	From     int64 // an ordinal
	Limit    int
	MaxBytes int
}

// Registry knows the executors that live and the agents that they serve.
type Registry interface {
	// Announce registers an executor, anew when it was forgotten, and keeps
	// its agents for good. A later description of an agent takes the place of
	// an earlier one.
	Announce(ctx context.Context, executorID string, agents []session.Agent, now session.Millis) error

	// Beat notes that the executor lives. It reports false, and does nothing,
	// when the executor is not registered.
	Beat(ctx context.Context, executorID string, now session.Millis) (known bool, err error)

	// Forget strikes the executors off that have not been heard since before
	// the time, and returns how many those were.
	Forget(ctx context.Context, heardBefore session.Millis) (int, error)

	// Agents returns every agent that was ever announced, by type.
	Agents(ctx context.Context) ([]session.Agent, error)
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
