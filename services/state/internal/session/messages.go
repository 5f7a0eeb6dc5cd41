package session

import (
	"slices"

	"github.com/holdfast-run/holdfast/pkg/fault"
)

func messageIDs(messages []Message) []string {
	ids := make([]string, len(messages))
	for i, m := range messages {
		ids[i] = m.ID
	}
	return ids
}

// checkUnique gives Conflict (MESSAGE_EXISTS) for the first id that is taken or repeated. The session
// may be nil.
func (s *Session) checkUnique(messages []Message, taken []string) error {
	seen := make(map[string]bool, len(messages)+len(taken))
	for _, id := range taken {
		seen[id] = true
	}
	for _, m := range messages {
		if seen[m.ID] {
			return s.describeIn(fault.New(fault.Conflict, "MESSAGE_EXISTS",
				"the session has a message %q already; give the new one another id", m.ID))
		}
		seen[m.ID] = true
	}
	return nil
}

// checkMessageIDs gives Conflict (MESSAGE_EXISTS) for the first id that is repeated, or taken
// by a waiting run or by a message before the ordinal deletedFrom. Later messages are being
// deleted. It gives an IncompleteViewError to see the waiting runs.
func (v *View) checkMessageIDs(messages []Message, deletedFrom int64) error {
	var taken []string
	for i, id := range v.TakenIDs {
		if i >= len(v.TakenOrdinals) || v.TakenOrdinals[i] < deletedFrom {
			taken = append(taken, id)
		}
	}
	if v.Session != nil && v.Session.Waiting > 0 && len(messages) > 0 {
		if len(v.Waiting) == 0 {
			return &IncompleteViewError{[]Target{{Key: v.Session.Key, Need: Need{Waiting: true}}}}
		}
		for _, w := range v.Waiting {
			taken = append(taken, w.MessageIDs...)
		}
	}
	return v.Session.checkUnique(messages, taken)
}

// withOrdinals returns the messages with consecutive ordinals from the given one.
func withOrdinals(messages []Message, from int64) []Message {
	placed := slices.Clone(messages)
	for i := range placed {
		placed[i].Ordinal = from + int64(i)
	}
	return placed
}

// AppendMessages appends messages to the conversation at any time, also while a run is live.
// If the conversation has all of them by their ids, the command is a repeat and writes
// nothing.
//
// Faults: NotFound (SESSION_NOT_FOUND), Conflict (MESSAGE_EXISTS) if only some exist or an
// id is repeated, and an IncompleteViewError to see the waiting runs.
type AppendMessages struct {
	Key
	Messages []Message
	Now      Millis
}

// Need lists the rows for Decide.
func (c AppendMessages) Need() Need { return Need{MessageIDs: messageIDs(c.Messages)} }

// Conversation is a session after a change of its messages.
type Conversation struct {
	Messages int64 // their number
	Version  int64
}

func (s *Session) conversation() Conversation { return Conversation{s.MessageCount, s.Version} }

// Decide appends the messages.
func (c AppendMessages) Decide(v *View) (*Change, Conversation, error) {
	if v.Session == nil {
		return nil, Conversation{}, SessionNotFound(c.Key)
	}
	if c.isRepeat(v.TakenIDs) {
		return nil, v.Session.conversation(), nil
	}
	if err := v.checkMessageIDs(c.Messages, v.Session.MessageCount); err != nil {
		return nil, Conversation{}, err
	}
	s := v.nextVersion(c.Now)
	change := &Change{Session: s, Messages: withOrdinals(c.Messages, s.MessageCount)}
	s.MessageCount += int64(len(c.Messages))
	return change, s.conversation(), nil
}

// isRepeat reports whether all messages exist. It is true for no messages.
func (c AppendMessages) isRepeat(taken []string) bool {
	existing := make(map[string]bool, len(taken))
	for _, id := range taken {
		existing[id] = true
	}
	for _, m := range c.Messages {
		if !existing[m.ID] {
			return false
		}
		delete(existing, m.ID) // an id that is given twice was never written
	}
	return true
}

// Truncate deletes the last messages, and the checkpoints that count them.
//
// Faults: NotFound (SESSION_NOT_FOUND), Conflict (SESSION_BUSY), Invalid (COUNT_INVALID).
type Truncate struct {
	Key
	Messages int64 // how many to keep
	Now      Millis
}

// Need lists the rows for Decide.
func (c Truncate) Need() Need { return Need{Live: true, CheckpointBelow: c.Messages + 1} }

// Decide truncates the conversation.
func (c Truncate) Decide(v *View) (*Change, Conversation, error) {
	if err := c.checkIdle(v); err != nil {
		return nil, Conversation{}, err
	}
	s := v.nextVersion(c.Now)
	if c.Messages < 0 || c.Messages > s.MessageCount {
		return nil, Conversation{}, fault.New(fault.Invalid, "COUNT_INVALID",
			"session %q has %d messages and cannot be truncated to %d", c.SessionID, s.MessageCount, c.Messages)
	}
	if c.Messages == s.MessageCount {
		return nil, v.Session.conversation(), nil
	}
	s.MessageCount = c.Messages
	s.resetToCheckpoint(v.Checkpoint)
	return &Change{Session: s, Rewind: &Rewind{Messages: c.Messages}}, s.conversation(), nil
}
