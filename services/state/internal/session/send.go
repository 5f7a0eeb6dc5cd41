package session

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

// Send begins a run with messages. It creates the session if it does not exist.
//
// A single message with a known id and equal content is a repeat: the run that answers it is
// returned.
//
// Faults: as for RunRequest, and Conflict (PARENT_MISMATCH, PARENT_ENDED, LOCATION_FIXED,
// SESSION_SUSPENDED, ANSWERS_UNKNOWN), Invalid (AGENT_REQUIRED), NotFound (AGENT_NOT_FOUND, and SESSION_NOT_FOUND for the parent),
// Unavailable (CALL_NOT_OPEN), Exhausted (TOO_MANY_WAITING).
type Send struct {
	RunRequest
	History []Message // the conversation of a new session before Messages
	Missing MissingPolicy
	// NewSession is of a new session, without Key, AgentType, Now and Schemas. Its ParentID also refuses an existing session
	// with another parent.
	NewSession Create
}

// Need lists the rows for Decide.
func (c Send) Need() Need {
	need := c.need()
	need.Current = need.Current || c.checksMissing()
	return need
}

// Decide sends the messages. The first view is the session's; the others may include the
// parent.
func (c Send) Decide(views ...*View) (*Change, Started, error) {
	v := views[0]
	if v.KeyedRun != nil {
		return c.answerRepeat(v, EntryStart)
	}
	if run, err := c.findRepeatedRun(v); run != nil || err != nil {
		if err != nil {
			return nil, Started{}, err
		}
		return nil, repeatedStart(v, run), nil
	}
	atWork, err := awaitedAtWork(views)
	if err != nil {
		return nil, Started{}, err
	}
	missing, err := c.findMissing(v, len(atWork) > 0)
	if err != nil {
		return nil, Started{}, err
	}
	if missing.replaced != "" {
		c.Missing = MissingStays
		return Edit{Send: c, Target: missing.replaced}.Decide(views...)
	}
	change, started, err := c.send(views, atWork)
	started.Missing = missing.stay
	return change, started, err
}

// send sends the messages of a new request. atWork are the children of the session that are at work.
func (c Send) send(views []*View, atWork map[string]bool) (*Change, Started, error) {
	v := views[0]
	if v.Session == nil {
		c.AgentType = cmp.Or(c.AgentType, c.DefaultAgent)
		if c.AgentType == "" && v.Agent != nil {
			c.AgentType = v.Agent.Type
		}
	}
	waits, err := c.admit(v, len(atWork) > 0)
	if err != nil {
		return nil, Started{}, err
	}
	if v.Session != nil {
		if err := v.checkMessageIDs(c.Messages, v.Session.MessageCount); err != nil {
			return nil, Started{}, err
		}
	} else if err := v.Session.checkUnique(slices.Concat(c.History, c.Messages), nil); err != nil {
		return nil, Started{}, err
	}
	if waits {
		return c.enqueue(v, atWork)
	}
	change, err := c.sessionChange(views)
	if err != nil {
		return nil, Started{}, err
	}
	if change.Created {
		change.appendMessages(c.History)
	}
	c.beginRun(change, v, EntryStart)
	change.appendMessages(c.Messages)
	return change, change.started(), nil
}

// findRepeatedRun returns the run of a message that was sent before: the run that waits with
// it, or the newest run of its answer. It is nil for a new message.
func (c Send) findRepeatedRun(v *View) (*Run, error) {
	if len(c.Messages) != 1 || v.Session == nil {
		return nil, nil //nolint:nilnil // neither a run nor an error
	}
	if v.Session.Waiting > 0 {
		if len(v.Waiting) == 0 {
			return nil, &IncompleteViewError{[]Target{{Key: c.Key, Need: Need{Waiting: true}}}}
		}
		for _, w := range v.Waiting {
			if slices.Contains(w.MessageIDs, c.Messages[0].ID) && bytes.Equal(w.RequestHash, c.RequestHash) {
				return &w.Run, nil
			}
		}
	}
	if !slices.Contains(v.TakenIDs, c.Messages[0].ID) {
		return nil, nil //nolint:nilnil // as above
	}
	if v.RewindPoint == nil || v.Current == nil && v.Session.CurrentRunID != "" {
		return nil, &IncompleteViewError{[]Target{{Key: c.Key, Need: Need{RewindToMessage: c.Messages[0].ID, Current: true}}}}
	}
	same, err := c.Bodies.SameContent(v.RewindPoint.Message, c.Messages[0])
	switch {
	case err != nil || !same || v.RewindPoint.answeringRun() == nil:
		return nil, err // checkMessageIDs refuses the id
	case !v.wroteNewestAnswer(v.RewindPoint.Run):
		return nil, v.Session.runStale(c.Key)
	default:
		return v.Current, nil
	}
}

// admit checks whether a run may begin now or has to wait. works reports whether children of the session are at
// work.
func (c Send) admit(v *View, works bool) (waits bool, err error) {
	s := v.Session
	switch err := c.checkNewTarget(v); {
	case err != nil:
		return false, err
	case s == nil && c.AgentType == "":
		return false, fault.New(fault.Invalid, "AGENT_REQUIRED", "session %q is new, and the request names no agent", c.SessionID)
	case s == nil && v.Agent == nil:
		return false, agentNotFound(c.AgentType)
	case s == nil:
		return false, nil
	case c.NewSession.ParentID != "" && c.NewSession.ParentID != s.ParentID:
		return false, fault.New(fault.Conflict, "PARENT_MISMATCH",
			"session %q exists and is not a sub-session of %q; omit the parent or use another session", c.SessionID, c.NewSession.ParentID)
	}
	switch {
	case s.Status == Active, works && (c.Abandon != nil || CountAwaited(v.Calls) == 0):
		return true, c.checkMayWait(v, true)
	case !s.Status.Suspended():
		return false, nil
	case c.Abandon == nil:
		return false, s.conflict("SESSION_SUSPENDED",
			"session %q waits for an answer (%s); submit it or interrupt the session", c.SessionID, s.Status)
	case s.Waiting > 0: // waiting runs come first
		return true, c.checkMayWait(v, false)
	default:
		return false, nil
	}
}

// sessionChange returns the change of an existing session, or of a new one.
func (c Send) sessionChange(views []*View) (*Change, error) {
	c.NewSession.Key, c.NewSession.AgentType, c.NewSession.Now, c.NewSession.Schemas = c.Key, c.AgentType, c.Now, c.Schemas
	v := views[0]
	if v.Session == nil {
		return c.NewSession.newSession(views)
	}
	if c.NewSession.ParentID != "" {
		if _, err := c.NewSession.findParent(views); err != nil {
			return nil, err
		}
	}
	change := &Change{Session: v.nextVersion(c.Now)}
	if err := c.takeAnswers(change, v); err != nil {
		return nil, err
	}
	change.abandonOpenCalls(v, c.Abandon, c.Now)
	return change, c.changeAgent(change, v)
}
