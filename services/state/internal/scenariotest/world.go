package scenariotest

import (
	"errors"
	"fmt"

	"github.com/holdfast-run/holdfast/services/state/internal/session"
)

// World runs the commands of a scenario, and shows the rows that they write.
type World interface {
	// Do runs a command of package session by value, such as session.Send, and returns its answer. The answer is nil
	// for a command without one.
	Do(command any) (answer any, err error)

	// Claim claims the oldest queued run; nil if none is due.
	Claim(now session.Millis) (*Claimed, error)

	// Rows returns the rows of a session; nil if it does not exist. callIDs are the calls that the scenario has named.
	Rows(sessionID string, callIDs []string) (*Rows, error)
}

// Claimed is a claimed run with what its executor is told.
type Claimed struct {
	session.ClaimRef
	Stop  *session.Stop
	Calls []session.Call
}

// Rows are the rows of a session.
type Rows struct {
	Session     session.Session
	Runs        []session.Run // in the order of their turns; then those without a turn, by id
	Waiting     []string      // ids of runs, in the order of the queue
	Messages    []session.Message
	Checkpoints []session.Checkpoint // the oldest first
	Calls       []session.Call       // by id
	Children    []session.Child      // by id
	Journal     *session.Journal
	Usage       int // number of entries
}

// Update runs a command on the sessions of the targets: see store.Updater.
type Update func(targets []session.Target, decide func([]*session.View) ([]*session.Change, error)) error

// Apply runs a command of package session with its consequences for the family, and repeats it with more sessions while it
// gives a session.IncompleteViewError.
func Apply(command any, newID func() string, update Update) (answer any, err error) {
	c, err := commandOf(command)
	if err != nil {
		return nil, err
	}
	family := session.Family{NewID: newID, Abandon: abandoned, ChildEnd: childEnd, MaxUnread: 1 << 20}
	const deepest = 20 // generations of a family
	for range deepest {
		err := update(c.Targets, func(views []*session.View) (changes []*session.Change, err error) {
			changes, answer, err = c.Apply(views, family, session.Audit{}, nil)
			return changes, err
		})
		incomplete, more := errors.AsType[*session.IncompleteViewError](err)
		if !more {
			return answer, err
		}
		c.Targets = incomplete.Extend(c.Targets)
	}
	return nil, errors.New("the command does not stop asking for rows")
}

// abandoned returns the answer to an abandoned call.
func abandoned(session.Call) []byte { return []byte("gone") }

// childEnd returns the answer to the call of a child.
func childEnd(child *session.Session, status session.Status, _ int) []byte {
	return []byte(child.SessionID + " " + string(status))
}

// commandOf returns the command with its rules.
func commandOf(command any) (session.Command[any], error) {
	switch c := command.(type) {
	case session.Send:
		return onViews(c.Key, c.Need(), c.Now, c.Decide), nil
	case session.Edit:
		return onViews(c.Key, c.Need(), c.Now, c.Decide), nil
	case session.Regenerate:
		return onViews(c.Key, c.Need(), c.Now, c.Decide), nil
	case session.Resume:
		return onViews(c.Key, c.Need(), c.Now, c.Decide), nil
	case session.Retry:
		return onViews(c.Key, c.Need(), c.Now, c.Decide), nil
	case session.Create:
		return onViews(c.Key, c.Need(), c.Now, c.Decide), nil
	case session.Branch:
		return branch(c.Targets(), c.Now, c.Decide), nil
	case session.BranchAndStart:
		return branch(c.Targets(), c.Now, c.Decide), nil
	case session.Commit:
		return onView(c.Key, c.Need(), c.Now, c.Decide), nil
	case session.Finish:
		return onView(c.Key, c.Need(), c.Now, c.Decide), nil
	case session.Submit:
		return onView(c.Key, c.Need(), c.Now, c.Decide), nil
	case session.SubmitAll:
		return onView(c.Key, c.Need(), c.Now, c.Decide), nil
	case session.TimeoutCalls:
		return onView(c.Key, c.Need(), c.Now, c.Decide), nil
	case session.RequestStop:
		return onView(c.Key, c.Need(), c.Now, c.Decide), nil
	case session.SetStatus:
		return onView(c.Key, c.Need(), c.Now, c.Decide), nil
	case session.Expire:
		return onView(c.Key, c.Need(), c.Now, c.Decide), nil
	case session.AppendMessages:
		return onView(c.Key, c.Need(), c.Now, c.Decide), nil
	case session.Truncate:
		return onView(c.Key, c.Need(), c.Now, c.Decide), nil
	case session.RewindTo:
		return onView(c.Key, c.Need(), c.Now, c.Decide), nil
	case session.MergeState:
		return onView(c.Key, c.Need(), c.Now, c.Decide), nil
	case session.SaveState:
		return onView(c.Key, c.Need(), c.Now, c.Decide), nil
	case session.RecordResult:
		return onView(c.Key, c.Need(), 0, c.Decide), nil
	case session.UpdateSession:
		return onView(c.Key, c.Need(), c.Now, c.Decide), nil
	case session.RecordPlan:
		return onView(c.Key, c.Need(), 0, withoutAnswer(c.Decide)), nil
	case session.Release:
		return onView(c.Key, c.Need(), c.Now, withoutAnswer(c.Decide)), nil
	case session.PutChild:
		return onView(c.Key, c.Need(), c.Now, withoutAnswer(c.Decide)), nil
	case session.DeleteSession:
		return onView(c.Key, c.Need(), 0, withoutAnswer(c.Decide)), nil
	default:
		return session.Command[any]{}, fmt.Errorf("scenarios have no command %T", command)
	}
}

// onViews returns a command that may see more sessions than its own.
func onViews[A any](
	key session.Key, need session.Need, now session.Millis, decide func(...*session.View) (*session.Change, A, error),
) session.Command[any] {
	return session.Command[any]{
		Targets: []session.Target{{Key: key, Need: need}}, Now: now,
		Decide: func(views []*session.View) (*session.Change, any, error) { return decide(views...) },
	}
}

// onView returns a command that sees its own session.
func onView[A any](
	key session.Key, need session.Need, now session.Millis, decide func(*session.View) (*session.Change, A, error),
) session.Command[any] {
	return onViews(key, need, now, func(views ...*session.View) (*session.Change, A, error) { return decide(views[0]) })
}

// branch returns a command on a new session and its source, which changes only the new one.
func branch[A any](
	targets []session.Target, now session.Millis, decide func(...*session.View) (*session.Change, A, error),
) session.Command[any] {
	c := onViews(targets[0].Key, session.Need{}, now, decide)
	c.Targets, c.Alone = targets, true
	return c
}

func withoutAnswer(decide func(*session.View) (*session.Change, error)) func(*session.View) (*session.Change, any, error) {
	return func(v *session.View) (*session.Change, any, error) {
		change, err := decide(v)
		return change, nil, err
	}
}
