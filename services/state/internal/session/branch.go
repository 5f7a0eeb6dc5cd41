package session

import "github.com/holdfast-run/holdfast/pkg/fault"

// Branch creates a session from a checkpoint of another session: with its messages and
// its custom state. The source may be active and does not change. The new session is a
// paused root of the same user and organization.
//
// Faults: NotFound (SESSION_NOT_FOUND, CHECKPOINT_NOT_FOUND), Conflict (SESSION_EXISTS).
type Branch struct {
	From         Key
	CheckpointID string
	Key                 // of the new session, in the tenant of From
	Owner        string // as Target.Owner, of both sessions
	Schemas      SchemaFuncs
	Now          Millis
}

// Targets lists the sessions for Decide, in the order of its views.
func (c Branch) Targets() []Target {
	source := Target{Key: c.From, Need: Need{CheckpointID: c.CheckpointID, OwnAgent: true}, Owner: c.Owner}
	if c.Key == c.From {
		return []Target{source}
	}
	return []Target{{Key: c.Key, Owner: c.Owner}, source}
}

// Decide creates the session. The views are the new session's and the source's.
func (c Branch) Decide(views ...*View) (*Change, Session, error) {
	own, source := views[0], views[len(views)-1]
	if source.Session == nil {
		return nil, Session{}, SessionNotFound(c.From)
	}
	if own.Session != nil {
		return nil, Session{}, fault.New(fault.Conflict, "SESSION_EXISTS", "there is a session %q already; choose another id", c.SessionID)
	}
	if source.Checkpoint == nil {
		return nil, Session{}, checkpointNotFound(c.CheckpointID)
	}
	from := source.Session
	s := Session{
		Key: c.Key, AgentType: from.AgentType, RootID: c.SessionID, Status: Paused, Version: 1,
		MessageCount: min(from.MessageCount, source.Checkpoint.MessageCount),
		State:        source.CheckpointState, StateVersion: 1, StateBase: 1,
		UserID: from.UserID, OrganizationID: from.OrganizationID, Title: from.Title, Tags: from.Tags, Metadata: from.Metadata,
		CreatedAt: c.Now, UpdatedAt: c.Now,
	}
	change := &Change{Session: &s, Created: true, NewState: true, Copy: &Copy{From: c.From.SessionID, Messages: s.MessageCount}}
	if err := c.Schemas.addDefaults(change, source.OwnAgent); err != nil {
		return nil, Session{}, err
	}
	return change, s, nil
}

// BranchAndStart creates a session like Branch, and begins a run in it.
//
// Faults: as for RunRequest and Branch, and TooLarge (STATE_SIZE_EXCEEDED).
type BranchAndStart struct {
	RunRequest
	From         Key
	CheckpointID string
	Addition
}

// Targets lists the sessions for Decide, in the order of its views.
func (c BranchAndStart) Targets() []Target {
	need := Need{
		CheckpointID: c.CheckpointID, MessageIDs: append(messageIDs(c.allMessages(c.Messages)), c.EarlierIDs...), Current: true, OwnAgent: true,
	}
	source := Target{Key: c.From, Need: need, Owner: c.By.Owner}
	return []Target{{Key: c.Key, Need: Need{RequestKey: c.RequestKey}, Owner: c.By.Owner}, source}
}

// Unknown returns how many of EarlierIDs the new session does not have. The views are as for Decide.
func (c BranchAndStart) Unknown(views ...*View) int {
	source := views[1]
	if source.Checkpoint == nil {
		return 0
	}
	copied := *source
	copied.Waiting, copied.TakenIDs = nil, nil
	for i, id := range source.TakenIDs {
		if i < len(source.TakenOrdinals) && source.TakenOrdinals[i] < source.Checkpoint.MessageCount {
			copied.TakenIDs = append(copied.TakenIDs, id)
		}
	}
	return c.RunRequest.Unknown(&copied)
}

// Decide creates the session and its run. The views are the new session's and the source's.
func (c BranchAndStart) Decide(views ...*View) (*Change, Started, error) {
	own, source := views[0], views[1]
	if own.KeyedRun != nil {
		return c.answerRepeat(own, EntryResume)
	}
	change, _, err := Branch{From: c.From, CheckpointID: c.CheckpointID, Key: c.Key, Schemas: c.Schemas, Now: c.Now}.Decide(own, source)
	if err != nil {
		return nil, Started{}, err
	}
	if err := source.checkMessageIDs(c.allMessages(c.Messages), change.Session.MessageCount); err != nil {
		return nil, Started{}, err
	}
	if err := c.resumeRun(change, source, c.Addition); err != nil {
		return nil, Started{}, err
	}
	change.NewRun.inheritAuthor(source.Current)
	return change, change.started(), nil
}
